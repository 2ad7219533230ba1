package apiserver_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"devinfo-cni.io/test/difftest"
)

// bin is the directory where make deps-apiserver puts the programs.
const bin = "../../bin"

// A controlPlane is a kube-apiserver with its etcd. Both listen on the loopback interface.
type controlPlane struct {
	Admin  *rest.Config // rights of an administrator
	Client kubernetes.Interface
	end    func() error
}

// run starts both programs, with flags for kube-apiserver.
func run(flags ...string) (*controlPlane, error) {
	env := envtest.Environment{BinaryAssetsDirectory: bin, UseExistingCluster: new(bool), ControlPlaneStartTimeout: 3 * time.Minute}
	for _, flag := range flags {
		key, value, _ := strings.Cut(flag, "=")
		env.ControlPlane.GetAPIServer().Configure().Append(strings.TrimPrefix(key, "--"), value)
	}
	admin, err := env.Start()
	if err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	client, err := kubernetes.NewForConfig(admin)
	return &controlPlane{admin, client, env.Stop}, err
}

// shared is the control plane of most tests. Each test has claims of its own.
var shared *controlPlane

var startShared = sync.OnceValue(func() (err error) {
	if shared, err = run(); err == nil {
		err = shared.install()
	}
	return err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		_ = shared.end()
	}
	os.Exit(code)
}

// server returns the shared control plane. The first call starts it.
func server(t *testing.T) *controlPlane {
	t.Helper()
	needPrograms(t)
	must(t, startShared())
	return shared
}

var must = difftest.Must

func needPrograms(t *testing.T) {
	t.Helper()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil && os.Getenv("DEVINFO_APISERVER") == "must" {
			t.Fatalf("%v: make deps-apiserver", err)
		} else if err != nil {
			t.Skip("no kube-apiserver and etcd in bin/: make deps-apiserver")
		}
	}
}

// start starts another control plane with flags for kube-apiserver. The end of the test stops it.
func start(t *testing.T, flags ...string) *controlPlane {
	t.Helper()
	needPrograms(t)
	p, err := run(flags...)
	must(t, err)
	t.Cleanup(func() { must(t, p.end()) })
	return p
}
