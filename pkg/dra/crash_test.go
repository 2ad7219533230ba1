package dra_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

const agentEnv = "DRA_TEST_AGENT"

// The test binary is also the CNI plugin, and the driver process that tests kill.
func TestMain(m *testing.M) {
	if os.Getenv(agentEnv) != "" {
		runVictim()
		return
	}
	dratest.Main(m)
}

// victim configures a driver process that attaches and detaches a pod and kills itself after a step.
type victim struct {
	Dir    string
	KillAt int    // step after which the process kills itself; 0 = never
	Killed string // the same, by its name
	Behave string
	Pipe   bool // whether plugins inherit file 3
}

// resetSteps are the steps in which a VF is reset.
var resetSteps = []string{
	"writing bus/pci/drivers/mlx5_core/unbind 0000:03:00.2", "writing bus/pci/devices/0000:03:00.2/driver_override mlx5_core",
	"writing bus/pci/drivers_probe 0000:03:00.2", "writing bus/pci/devices/0000:03:00.2/driver_override ",
}

func runVictim() {
	var d victim
	dratest.Check(json.Unmarshal([]byte(os.Getenv(agentEnv)), &d))
	dratest.Check(os.Unsetenv(agentEnv)) // plugins must not inherit it
	if d.Pipe {
		_, err := unix.FcntlInt(3, unix.F_DUPFD, 100) // files that the agent opens for plugins get lower numbers
		dratest.Check(err)
		syscall.CloseOnExec(3)
	}
	o := dratest.Options(d.Dir)
	kernel := dratest.AddDevices(&o, d.Dir)
	o.Devices.Inventory.Rules = rulesWithReset()
	o.Devices.Journal = dratest.JournalIn(d.Dir, o.BootID)
	o.Status = func(ctx context.Context, _ status.Report) error { <-ctx.Done(); return ctx.Err() } // so that each run has the same steps
	var steps atomic.Int32
	o.Reached = func(name string) {
		if int(steps.Add(1)) == d.KillAt || name == d.Killed {
			fmt.Println("killed after:", name)
			dratest.Check(restoretest.Open(d.Dir).Between(func() error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }))
		}
	}
	o.Devices.Custody = restore.New(kernel.Sys(), func(name, text string) error { // also within a reset
		err := kernel.Write(name, text)
		o.Reached("writing " + name + " " + strings.TrimSpace(text))
		return err
	}, kernel)
	agent, err := claim.New(o)
	dratest.Check(err)
	dratest.Survey(agent)
	dratest.Check(os.Remove(filepath.Join(o.StateDir, "offer"))) // no record
	ctx := context.Background()
	go agent.Run(ctx)
	claims := victimClaims(d)
	for _, claim := range claims {
		_, err := agent.Prepare(ctx, claim, 0)
		dratest.Check(err)
	}
	sb := (&dratest.Rig{Dir: d.Dir}).Sandbox("s1", "pod")
	dratest.Check(agent.RunPodSandbox(ctx, sb))
	dratest.Check(agent.StopPodSandbox(ctx, sb))
	for _, claim := range claims {
		dratest.Check(agent.Unprepare(ctx, string(claim.UID)))
	}
	fmt.Println(steps.Load())
}

// rulesWithReset are the rules of the node, with which each VF is reset after its pod.
func rulesWithReset() inventory.Rules {
	rules, err := inventory.ParseRules([]byte(strings.ReplaceAll(dratest.Rules, "sharing: exclusive", "sharing: exclusive\n  reset: always")))
	dratest.Check(err)
	return rules
}

func victimClaims(d victim) []*resourceapi.ResourceClaim {
	return []*resourceapi.ResourceClaim{
		dratest.ClaimIn(d.Dir, "a", "u1", "pod", dratest.Net("x", "net1", d.Behave)),
		dratest.OnDevice(dratest.OnDevice(dratest.ClaimIn(d.Dir, "b", "u2", "pod", dratest.Net("x", "net2", d.Behave), dratest.Net("y", "net3", d.Behave)), 0, dratest.VF0, ""), 1, dratest.VF2, "vfio-pci"),
		dratest.DeviceClaim("u3", dratest.VF3, ""), // without a network
	}
}

// run returns the output of the process: the step after which it was killed, or the number of steps. It waits
// until the plugins have exited too; they inherit the pipe.
func (v victim) run(t *testing.T) string {
	t.Helper()
	ended, pipe, err := os.Pipe()
	difftest.Must(t, err)
	defer ended.Close()
	v.Pipe = true
	cmd := v.command(t)
	cmd.ExtraFiles = []*os.File{pipe}
	out, err := cmd.Output()
	pipe.Close()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	_, err = io.ReadAll(ended)
	difftest.Must(t, err)
	return strings.TrimSpace(string(out))
}

func (v victim) command(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(v)
	difftest.Must(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), agentEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd
}

// restarts are the changes of the node before the next process starts.
var restarts = []struct {
	name    string
	happens func(r *dratest.Rig, sb *api.PodSandbox)
	listed  bool // the runtime still lists the sandbox
}{
	{"the pod runs", func(*dratest.Rig, *api.PodSandbox) {}, true},
	{"the sandbox is gone", func(r *dratest.Rig, sb *api.PodSandbox) {
		r.RemoveNetns(sb)
		dratest.Check(restoretest.Open(r.Dir).EndNetns(dratest.NetnsOf(sb)))
	}, false},
	{"the node was restarted", reboot, false},
}

func reboot(r *dratest.Rig, sb *api.PodSandbox) {
	r.RemoveNetns(sb)
	difftest.Must(r.T, os.RemoveAll(filepath.Join(r.Dir, "kernel")))
	r.Options.BootID = "boot2"
	for _, dir := range []string{"cdi", "info", "dp"} {
		difftest.Must(r.T, os.RemoveAll(filepath.Join(r.Dir, dir)))
	}
}

func TestNextStartCleansUpAfterKillAtAnyStep(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes half a minute")
	}
	steps, err := strconv.Atoi(victim{Dir: dratest.NewRig(t).Dir}.run(t))
	if err != nil || steps < 20 {
		t.Fatalf("%d steps, %v", steps, err)
	}
	turns := make(chan struct{}, 8) // the trials mostly wait for the disk and for processes
	var all sync.WaitGroup
	for i, after := range restarts {
		try := func(name string, d victim) {
			turns <- struct{}{}
			all.Go(func() {
				defer func() { <-turns }()
				t.Run(after.name+"/"+name, func(t *testing.T) { killAndRestart(t, d, after.happens, after.listed) })
			})
		}
		for _, name := range resetSteps {
			try(name, victim{Killed: name})
		}
		for step := 1; step <= steps; step++ {
			if every := os.Getenv("DEVINFO_CRASH") == "all"; !every && step%len(restarts) != i {
				continue // another restart has this step
			}
			try(fmt.Sprint(step), victim{KillAt: step})
		}
	}
	all.Wait()
}

func killAndRestart(t *testing.T, d victim, happens func(*dratest.Rig, *api.PodSandbox), listed bool) {
	r := dratest.NewRig(t)
	d.Dir = r.Dir
	killed := d.run(t)
	if d.Killed != "" && killed != strings.TrimSpace("killed after: "+d.Killed) {
		t.Errorf("%s, want %s", killed, d.Killed)
	}
	sb := r.Sandbox("s1", "pod")
	happens(r, sb)
	dratest.AddDevices(&r.Options, r.Dir)
	expectCleanRestart(t, r, d, sb, listed)
	if t.Failed() {
		t.Errorf("%s: calls: %q", killed, r.CallNames())
	}
}

// expectCleanRestart starts the next process and checks that it completes all pending work.
func expectCleanRestart(t *testing.T, r *dratest.Rig, d victim, sb *api.PodSandbox, listed bool) {
	t.Helper()
	var pods []*api.PodSandbox
	attached, gates, bare := 0, 0, 0
	for _, name := range r.Files("state") {
		uid, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		for _, at := range r.Record(uid).Attachments {
			switch {
			case at.Bare():
				gates++
				bare++
			case listed:
				attached++
				gates++
			}
		}
	}
	if listed {
		pods = []*api.PodSandbox{sb}
	}
	r.Options.Devices.Journal = dratest.JournalIn(r.Dir, r.Options.BootID)
	agent := r.Start()
	stop := r.Stop
	_, err := agent.Synchronize(t.Context(), pods, nil)
	difftest.Must(t, err)
	want := fmt.Sprintf("%d attached, %d CDI files, %d of the device plugin, idle", attached, gates, bare)
	dratest.WaitUntil(t, func() string {
		phases := agent.Census().Phases
		got := fmt.Sprintf("%d attached, %d CDI files, %d of the device plugin", len(r.Files("there")), len(r.Files("cdi")), len(r.Files("dp")))
		if phases["Added"] == attached && phases["Adding"]+phases["Deleting"]+phases["Restoring"] == 0 {
			got += ", idle"
		}
		if got == want {
			return ""
		}
		return fmt.Sprintf("got %s; want %s; phases %v", got, want, phases)
	})
	for _, claim := range victimClaims(d) {
		difftest.Must(t, agent.Unprepare(t.Context(), string(claim.UID)))
	}
	r.ExpectNothing()
	dratest.ExpectRestored(t, restoretest.Open(r.Dir))
	if leases, err := r.Options.Devices.Journal.Claims(); err != nil || len(leases) > 0 {
		t.Errorf("leases of %q, %v", leases, err)
	}
	last := map[string]string{}
	for _, c := range r.Calls() {
		last[c.Sandbox+c.IfName] = c.Command
	}
	for what, command := range last {
		difftest.Same(t, "last call of "+what, command, "DEL")
	}
	stop()
}

// A plugin can outlive the driver. A DEL before the plugin exits would find nothing to delete.
func TestDELWaitsForPluginsOfKilledDriver(t *testing.T) {
	t.Parallel()
	r := dratest.NewRig(t)
	d := victim{Dir: r.Dir, Behave: "slow"}
	cmd := d.command(t)
	difftest.Must(t, cmd.Start())
	difftest.Eventually(t, "the first plugin runs", func() bool { return len(r.Calls()) == 1 })
	difftest.Must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	r.RemoveNetns(r.Sandbox("s1", "pod"))
	dratest.AddDevices(&r.Options, r.Dir)
	agent := r.Start()
	_, err := agent.Synchronize(t.Context(), nil, nil)
	difftest.Must(t, err)
	difftest.Eventually(t, "DEL is to run", func() bool { return agent.Census().Phases["Deleting"] > 0 })
	difftest.Equal(t, len(r.CallNames()), 1) // otherwise the interface stays, too
	difftest.Must(t, os.WriteFile(filepath.Join(r.Dir, "go-on"), nil, 0o644))
	difftest.Eventually(t, "the DEL was run", func() bool { return len(r.Calls()) > 1 && agent.Census().Phases["Prepared"] == 4 }) // all
	r.ExpectFiles("there", 0)
}
