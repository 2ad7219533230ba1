// Package controlplane runs kube-apiserver and etcd, which "make deps-apiserver" builds, for tests and benchmarks. Both
// listen on the loopback interface, and end with the process that started them.
package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A Plane is a kube-apiserver with its etcd.
type Plane struct {
	Dir    string       // directory of their files; the caller may add files
	Admin  *rest.Config // rights of an administrator
	Client kubernetes.Interface

	bin   string
	ended []<-chan error // one for each started program
	stop  context.CancelFunc
}

// Built returns an error if the directory lacks one of the programs.
func Built(bin string) error {
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("%w: make deps-apiserver", err)
		}
	}
	return nil
}

// Start starts both programs, and waits until the API is served. The caller must call End.
func Start(bin string, apiserverFlags ...string) (plane *Plane, err error) {
	dir, err := os.MkdirTemp("", "apiserver")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	plane = &Plane{Dir: dir, bin: bin, stop: cancel}
	done := false
	defer func() {
		if !done {
			plane.End()
		}
	}()
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	if err := plane.credentials(); err != nil {
		return nil, err
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	plane.run(ctx, "etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	plane.run(ctx, "kube-apiserver", append([]string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]), "--cert-dir=" + filepath.Join(dir, "certs"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + plane.file("sa.pem"),
		"--service-account-signing-key-file=" + plane.file("sa.pem"), "--token-auth-file=" + plane.file("tokens.csv"),
		"--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount", "--allow-privileged",
	}, apiserverFlags...)...)
	plane.Admin = &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", ports[2]), BearerToken: "admin", QPS: 1000, Burst: 1000,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "certs", "apiserver.crt")},
	}
	if err := plane.await(); err != nil {
		return nil, err
	}
	done = true
	return plane, nil
}

func (p *Plane) file(name string) string { return filepath.Join(p.Dir, name) }

// credentials creates the key for service account tokens, and the administrator's token.
func (p *Plane) credentials() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.file("sa.pem"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(p.file("tokens.csv"), []byte("admin,admin,admin,system:masters\n"), 0o600)
}

// run starts a program. It ends with ctx or with this process.
func (p *Plane) run(ctx context.Context, name string, args ...string) {
	ended := make(chan error, 1)
	p.ended = append(p.ended, ended)
	go func() {
		defer close(ended)
		// The kernel sends Pdeathsig when the thread that started the program ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		log, err := os.Create(p.file(name + ".log"))
		if err != nil {
			ended <- err
			return
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		ended <- cmd.Run()
	}()
}

// await waits until the API server is ready, and sets the client.
func (p *Plane) await() error {
	var last error
	for range 600 {
		for _, ended := range p.ended {
			select {
			case err := <-ended:
				return fmt.Errorf("it ended: %w\n%s", err, p.logs())
			default:
			}
		}
		if p.Client, last = kubernetes.NewForConfig(p.Admin); last == nil { // fails until the server has written its certificate
			if _, last = p.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background()); last == nil {
				return nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("not ready after a minute: %w\n%s", last, p.logs())
}

// logs returns the last lines of both programs.
func (p *Plane) logs() string {
	var text strings.Builder
	for _, name := range []string{"etcd", "kube-apiserver"} {
		data, _ := os.ReadFile(p.file(name + ".log"))
		lines := strings.Split(string(data), "\n")
		fmt.Fprintf(&text, "%s:\n%s\n", name, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return text.String()
}

// End stops both programs, and removes their files.
func (p *Plane) End() {
	p.stop()
	for _, ended := range p.ended {
		<-ended
	}
	os.RemoveAll(p.Dir)
}

// freePorts returns unused TCP ports of the loopback interface.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, listenErr := net.Listen("tcp", "127.0.0.1:0")
		if listenErr != nil {
			return nil, listenErr
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
