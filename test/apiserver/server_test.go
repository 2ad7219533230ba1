package apiserver_test

import (
	"os"
	"sync"
	"testing"

	"devinfo-cni.io/test/controlplane"
	"devinfo-cni.io/test/difftest"
)

// bin is the directory where make deps-apiserver puts the programs.
const bin = "../../bin"

type controlPlane struct{ *controlplane.Plane }

// shared is the control plane of most tests. Each test has claims of its own.
var shared struct {
	sync.Once
	controlPlane
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.Plane != nil {
		shared.End()
	}
	os.Exit(code)
}

// server returns the shared control plane. The first call starts it.
func server(t *testing.T) *controlPlane {
	t.Helper()
	needPrograms(t)
	shared.Do(func() {
		if shared.Plane, shared.err = controlplane.Start(bin); shared.err == nil {
			shared.err = shared.install()
		}
	})
	must(t, shared.err)
	return &shared.controlPlane
}

var must = difftest.Must

func needPrograms(t *testing.T) {
	t.Helper()
	switch err := controlplane.Built(bin); {
	case err == nil:
	case os.Getenv("DEVINFO_APISERVER") == "must":
		t.Fatal(err)
	default:
		t.Skip("no kube-apiserver and etcd in bin/: make deps-apiserver")
	}
}

// start starts another control plane with flags for kube-apiserver. The end of the test stops it.
func start(t *testing.T, flags ...string) *controlPlane {
	t.Helper()
	needPrograms(t)
	p, err := controlplane.Start(bin, flags...)
	must(t, err)
	t.Cleanup(p.End)
	return &controlPlane{p}
}
