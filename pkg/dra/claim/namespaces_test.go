package claim_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// CRI-O removes the network namespace before it reports the end of the sandbox, but the driver has held it since ADD, or since
// the runtime listed the sandbox. If nobody holds it, only sriov-cni and ib-sriov-cni get its path, because they reset a VF
// only with CNI_NETNS, and host-device fails on such a path. After a reboot no plugin gets the path: the VF is new.
func TestDELFindsNamespaceThatRuntimeRemoved(t *testing.T) {
	restart := func(r *dratest.Rig, bootID string) {
		r.Stop()
		r.Options.BootID = bootID
		r.Start()
	}
	path := func(path string) (vf, other string) { return path, path }
	none := func(string) (string, string) { return "", "" }
	for name, test := range map[string]struct {
		ends func(r *dratest.Rig, sb *api.PodSandbox)
		want func(path string) (vf, other string)
	}{
		"there":   {func(*dratest.Rig, *api.PodSandbox) {}, path},
		"removed": {(*dratest.Rig).RemoveNetns, path},
		"removed after a restart": {func(r *dratest.Rig, sb *api.PodSandbox) {
			restart(r, "boot1")
			r.ListSandboxes(sb)
			dratest.WaitIdle()
			r.RemoveNetns(sb)
		}, path},
		"removed before a restart": {func(r *dratest.Rig, sb *api.PodSandbox) {
			r.RemoveNetns(sb)
			restart(r, "boot1")
		}, func(path string) (string, string) { return path, "" }},
		"removed before a reboot": {func(r *dratest.Rig, sb *api.PodSandbox) {
			r.RemoveNetns(sb)
			restart(r, "boot2")
		}, none},
		"there after a reboot": {func(r *dratest.Rig, _ *api.PodSandbox) { restart(r, "boot2") }, none},
	} {
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			r.Start()
			sb := r.AttachPod(dratest.DeviceClaim("u1", "cni", dratest.Network(`{"type":"sriov"},{"type":"ib-sriov"},{"type":"host-device"}`)))
			test.ends(r, sb)
			_ = r.Agent.StopPodSandbox(t.Context(), sb)
			r.Unprepare("u1")
			vf, other := test.want(dratest.NetnsOf(sb))
			difftest.Equal(t, r.Plugins.Netns, map[string]string{"sriov": vf, "ib-sriov": vf, "host-device": other})
			expectNotHeld(t, dratest.NetnsOf(sb))
		}))
	}
}

// Until a failing DEL is given up, the device is in the namespace that the driver holds.
func TestNamespaceIsClosedWhenDELIsGivenUp(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		sb := r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		r.Plugins.SetHook(dratest.Fail("DEL", ""))
		r.EndPod(sb)
		if !isHeld(t, dratest.NetnsOf(sb)) {
			t.Error("the namespace is closed before DEL has succeeded")
		}
		r.Unprepare("u1")
		dratest.WaitIdle()
		r.ExpectPhase("Undeleted", 1)
		expectNotHeld(t, dratest.NetnsOf(sb))
	})
}

// Otherwise a plugin of the former process makes an interface after the DEL.
func TestDELWaitsUntilLockOfFormerProcessCanBeRead(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		sb := r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		r.Plugins.SetHook(dratest.Fail("DEL", ""))
		r.EndPod(sb)
		r.Stop()
		r.Plugins.SetHook(nil)
		tried, lock := r.Plugins.Calls("DEL"), filepath.Join(r.Options.CacheDir, "u1@net1@s1/running")
		difftest.Must(t, os.RemoveAll(lock), os.Symlink(lock, lock))
		r.Start()
		time.Sleep(10 * time.Second)
		r.ExpectCalls("DEL", tried)
		difftest.Contains(t, r.Record("u1").Attachments[0].DelError, "not a regular file")
		difftest.Must(t, os.Remove(lock))
		r.Unprepare("u1")
		r.ExpectCalls("DEL", tried+1)
		r.ExpectNothing()
	})
}

func expectNotHeld(t *testing.T, netns string) {
	t.Helper()
	if isHeld(t, netns) {
		t.Errorf("%s is still open", netns)
	}
}

// isHeld reports whether this process has a file open, which may be removed.
func isHeld(t *testing.T, path string) bool {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	difftest.Must(t, err)
	return slices.ContainsFunc(files, func(f os.DirEntry) bool {
		target, _ := os.Readlink("/proc/self/fd/" + f.Name())
		return strings.TrimSuffix(target, " (deleted)") == path
	})
}
