package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// The test binary is also the driver.
func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const asDriver = "CNI_DRA_DRIVER_TEST"

// launched starts the driver as a process, and returns once the kubelet could register it.
func launched(t *testing.T, o *options) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "--node-name="+o.nodeName, "--kubeconfig="+o.kubeconfig, "--kubelet-plugins-dir="+o.pluginsDir,
		"--kubelet-registrar-dir="+o.registrarDir, "--node-config="+o.nodeConfig, "--cdi-dir="+o.cdiDir, "--cni-bin-dir="+o.cniBinDirs[0],
		"--nri-socket="+o.nriSocket, "--enable-device-metadata", "--http-endpoint="+o.httpEndpoint)
	gate := filepath.Join(t.TempDir(), "gate")
	must(t, os.WriteFile(gate, nil, 0o755))
	cmd.Args = append(cmd.Args, "--gate-program="+gate)
	cmd.Env = append(os.Environ(), asDriver+"=1")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	must(t, cmd.Start())
	conn, err := grpc.NewClient("unix:"+filepath.Join(o.registrarDir, driver+"-reg.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		if _, err = registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{}); err == nil {
			return cmd
		}
		if ctx.Err() != nil {
			t.Fatalf("it does not start: %v", err)
		}
		conn.ResetConnectBackoff()
		time.Sleep(5 * time.Millisecond)
	}
}

// The kubelet removes a driver's ResourceSlices 30 s after the driver has gone. Of the gap
// that an update makes, this is the agent's own share: to end, and to be back so far that
// the kubelet can register it. What a busy machine adds is not, so the shortest update counts.
func TestAnUpdateIsShort(t *testing.T) {
	const exitLimit, gapLimit = 5 * time.Second, 15 * time.Second
	o := alone(t)
	running := launched(t, o)
	exit, gap := time.Hour, time.Hour
	for n := 0; n < 5 && (exit >= exitLimit || gap >= gapLimit); n++ {
		began := time.Now()
		terminate(t, running)
		exit = min(exit, time.Since(began))
		running = launched(t, o)
		gap = min(gap, time.Since(began))
	}
	terminate(t, running)
	t.Logf("an agent with nothing to do ends after %v, and the next one is there after %v", exit, gap)
	if exit >= exitLimit || gap >= gapLimit {
		t.Errorf("limits: %v, %v", exitLimit, gapLimit)
	}
}

func terminate(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("at its end: %v", err)
	}
}
