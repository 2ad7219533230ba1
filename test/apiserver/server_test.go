package apiserver_test

import (
	"os"
	"sync"
	"testing"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/test/controlplane"
)

// bin is where make deps-apiserver puts the programs.
const bin = "../../bin"

type controlPlane struct{ *controlplane.Plane }

// shared is the one that most tests use, each with claims of its own.
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

// server gives the shared control plane, which the first test starts.
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

// start starts another one, with flags for kube-apiserver, until the test ends.
func start(t *testing.T, flags ...string) *controlPlane {
	t.Helper()
	needPrograms(t)
	p, err := controlplane.Start(bin, flags...)
	must(t, err)
	t.Cleanup(p.End)
	return &controlPlane{p}
}
