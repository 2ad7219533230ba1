//go:build vm

package vm_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/agent/inject/injecttest"
	"devinfo-cni.io/pkg/core/nri/nritest"
)

const inside = "/var/run/k8s.cni.cncf.io/devinfo"

// nri returns the runtime's side of NRI, with the agent of this machine connected.
func nri(t *testing.T) *adaptation.Adaptation {
	t.Helper()
	adaptation.SetPluginRegistrationTimeout(patient) // the machine is slow
	dir := t.TempDir()
	n := nritest.Serve(t, dir+"/nri", nil)
	var decided deciding
	c, err := injecttest.Config(os.Getenv("DEVINFO_NODE_CONFIG"), stageDir, &decided)
	must(t, err)
	c.Socket = dir + "/nri"
	agent := inject.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	eventually(t, "the agent is connected", func() bool {
		_, err := n.CreateContainer(t.Context(), &adaptation.CreateContainerRequest{Pod: &api.PodSandbox{Id: "on-the-host"}, Container: &api.Container{Id: "c0"}})
		return err == nil && decided.Load()
	})
	return n
}

// deciding becomes true when the agent has decided about a container.
type deciding struct {
	injecttest.Uncounted
	atomic.Bool
}

func (d *deciding) Decided(inject.Decision, inject.Reason, time.Duration) { d.Store(true) }

const stageDir = "/run/agent/stage"

// sandbox returns the attachment's pod in the runtime's form for NRI.
func (a *attachment) sandbox() *api.PodSandbox {
	return &api.PodSandbox{
		Id: a.rt.ContainerID, Uid: "7d0f3c52-0f6e-4a52-9a55-000000000001", Name: "pod", Namespace: "default",
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: a.rt.NetNS}}},
	}
}

// container requests a container of the pod through NRI, and returns the adjustment: variables, directories, and
// device nodes with the numbers on this machine.
func (a *attachment) container(n *adaptation.Adaptation) *api.ContainerAdjustment {
	a.t.Helper()
	answer, err := n.CreateContainer(a.t.Context(), &adaptation.CreateContainerRequest{Pod: a.sandbox(), Container: &api.Container{
		Id: "c1", PodSandboxId: a.rt.ContainerID, Name: "app", Env: []string{"PATH=/bin"}, Linux: &api.LinuxContainer{},
	}})
	must(a.t, err)
	return answer.GetAdjust()
}

// given compares the adjustment of a container: a directory that has the node's file for the interface, a variable,
// and device nodes.
func given(t *testing.T, a *api.ContainerAdjustment, ifName, info string, nodes ...string) {
	t.Helper()
	if len(a.GetMounts()) != 1 || a.Mounts[0].Destination != inside {
		t.Fatalf("mounts: %v", a.GetMounts())
	}
	same(t, "the container's "+ifName+".json", indent(t, read(t, filepath.Join(a.Mounts[0].Source, ifName+".json"))), indent(t, info))
	want := api.KeyValue{Key: "DEVINFO_" + strings.ToUpper(ifName), Value: inside + "/" + ifName + ".json"}
	if !slices.ContainsFunc(a.GetEnv(), func(e *api.KeyValue) bool { return e.Key == want.Key && e.Value == want.Value }) {
		t.Errorf("variables %v, want %s=%s", a.GetEnv(), want.Key, want.Value)
	}
	var got, there bytes.Buffer
	for _, d := range a.GetLinux().GetDevices() {
		fmt.Fprintf(&got, "%s %s %d:%d %04o %d:%d\n", d.Path, d.Type, d.Major, d.Minor, d.FileMode.GetValue(), d.Uid.GetValue(), d.Gid.GetValue())
	}
	for _, path := range nodes {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		fmt.Fprintf(&there, "%s c %d:%d %04o %d:%d\n", path, unix.Major(st.Rdev), unix.Minor(st.Rdev), st.Mode&0o777, st.Uid, st.Gid)
	}
	same(t, "nodes", got.String(), there.String())
}
