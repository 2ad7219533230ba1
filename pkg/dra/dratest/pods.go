package dratest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/test/difftest"
)

// InBubble runs a test in a synctest bubble, where time advances when all goroutines wait. The plugins of the
// rig have no processes.
func InBubble(t *testing.T, test func(t *testing.T, r *Rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := NewRig(t)
		r.UsePlugins()
		r.Options.Sweep, r.Options.DelMinRetryTime, r.Options.Hold = 0, 0, 0 // the defaults
		r.runtimeWaits = 2 * time.Second
		test(t, r)
		if r.Agent != nil {
			r.Stop()
		}
		difftest.Same(t, "calls and devices that break a rule", r.Plugins.Violations, []string(nil))
	})
}

// Bubble returns a subtest that runs in a bubble.
func Bubble(test func(t *testing.T, r *Rig)) func(*testing.T) {
	return func(t *testing.T) { InBubble(t, test) }
}

// OnNode is InBubble with a started agent that offers devices, grants device nodes and leases devices.
func OnNode(t *testing.T, test func(t *testing.T, r *Rig)) {
	t.Helper()
	InBubble(t, func(t *testing.T, r *Rig) {
		r.UseJournal("mlx5-switchdev", "")
		r.Start()
		test(t, r)
	})
}

// InBubbleWithDevices is InBubble on a node with devices, with a started agent.
func InBubbleWithDevices(t *testing.T, test func(t *testing.T, r *Rig)) {
	t.Helper()
	InBubble(t, func(t *testing.T, r *Rig) {
		r.Kernel = AddDevices(&r.Options, r.Dir)
		r.Start()
		test(t, r)
	})
}

// ReadClaims makes reads of claims from the API server return copies of claim, or err, from now on.
func (r *Rig) ReadClaims(claim *resourceapi.ResourceClaim, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claim, r.claimErr = claim.DeepCopy(), err
}

// WaitIdle waits until all goroutines wait. It first sleeps, because a goroutine may be waiting for a lock with
// a timer.
func WaitIdle() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

// Prepare prepares claims like the kubelet.
func (r *Rig) Prepare(claims ...*resourceapi.ResourceClaim) {
	r.T.Helper()
	for _, claim := range claims {
		_, err := r.Agent.Prepare(r.T.Context(), claim, 0)
		difftest.Must(r.T, err)
	}
}

// PrepareFails checks that Prepare fails with an error that contains all parts.
func (r *Rig) PrepareFails(claim *resourceapi.ResourceClaim, parts ...string) {
	r.T.Helper()
	_, err := r.Agent.Prepare(r.T.Context(), claim, 0)
	difftest.Says(r.T, err, parts...)
}

// Unprepare repeats Unprepare like the kubelet, and returns how long it took to succeed.
func (r *Rig) Unprepare(uid string) time.Duration {
	r.T.Helper()
	began := time.Now()
	for time.Since(began) < time.Hour {
		ctx, cancel := context.WithTimeout(r.T.Context(), 45*time.Second)
		err := r.Agent.Unprepare(ctx, uid)
		cancel()
		if err == nil {
			return time.Since(began)
		}
		time.Sleep(2 * time.Second)
	}
	r.T.Fatal("the claim cannot be unprepared")
	return 0
}

// Sandbox returns a sandbox of a pod with a network namespace.
func (r *Rig) Sandbox(id, pod string) *api.PodSandbox {
	netns := filepath.Join(r.Dir, "netns", id)
	Check(os.WriteFile(netns, nil, 0o600))
	return &api.PodSandbox{Id: id, Name: pod, Namespace: "ns", Uid: "uid-" + pod,
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "ipc"}, {Type: "network", Path: netns}}}}
}

// NetnsOf returns the network namespace of a sandbox, or "" for the host's.
func NetnsOf(sb *api.PodSandbox) string {
	return nri.Namespace("network", sb.GetLinux().GetNamespaces()).GetPath()
}

// RemoveNetns removes the network namespace of a sandbox.
func (r *Rig) RemoveNetns(sb *api.PodSandbox) {
	r.T.Helper()
	NoError(r.T, os.Remove(filepath.Join(r.Dir, "netns", sb.Id)))
}

// ListSandboxes lists the running sandboxes to the agent, as the runtime does.
func (r *Rig) ListSandboxes(sandboxes ...*api.PodSandbox) {
	r.T.Helper()
	_, err := r.Agent.Synchronize(r.T.Context(), sandboxes, nil)
	difftest.Must(r.T, err)
}

// RunPod starts a sandbox within the runtime's time limit.
func (r *Rig) RunPod(sb *api.PodSandbox) error {
	ctx, cancel := context.WithTimeout(r.T.Context(), r.runtimeWaits)
	defer cancel()
	return r.Agent.RunPodSandbox(ctx, sb)
}

// RunSandbox starts a sandbox and returns it.
func (r *Rig) RunSandbox(id, pod string) *api.PodSandbox {
	r.T.Helper()
	sb := r.Sandbox(id, pod)
	difftest.Must(r.T, r.RunPod(sb))
	return sb
}

// AttachPod prepares claims and starts sandbox s1 of the pod named pod.
func (r *Rig) AttachPod(claims ...*resourceapi.ResourceClaim) *api.PodSandbox {
	r.T.Helper()
	r.Prepare(claims...)
	return r.RunSandbox("s1", "pod")
}

// CreateContainer returns the error of a runtime that creates a container with these gates. It resolves each
// CDI spec and runs its hook, which compares network namespaces or pods: see cmd/cni-dra-gate.
func (r *Rig) CreateContainer(sb *api.PodSandbox, gates ...string) error {
	for _, gate := range gates {
		data, err := os.ReadFile(filepath.Join(r.Options.CDIDir, cdispec.FileName(Driver+"/claim", gate)))
		if err != nil {
			return fmt.Errorf("unresolvable CDI device: %w", err)
		}
		var spec specs.Spec
		if err := json.Unmarshal(data, &spec); err != nil {
			return err
		}
		for _, hook := range spec.Devices[0].ContainerEdits.Hooks {
			if hook.HookName != "createRuntime" || hook.Path != r.Options.Gate || len(hook.Args) != 3 {
				return fmt.Errorf("hook %+v", hook)
			}
			if hook.Args[1] != "pod/"+sb.Uid && hook.Args[1] != NetnsOf(sb) {
				return errors.New(hook.Args[2])
			}
		}
	}
	return nil
}

// EndPod stops a sandbox, removes its network namespace, and removes the sandbox.
func (r *Rig) EndPod(sb *api.PodSandbox) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), 2*time.Second)
	defer cancel()
	NoError(r.T, r.Agent.StopPodSandbox(ctx, sb))
	r.RemoveNetns(sb)
	NoError(r.T, r.Agent.RemovePodSandbox(ctx, sb))
}

// EndAndUnprepare ends a pod and its claim, and checks that nothing is left.
func (r *Rig) EndAndUnprepare(sb *api.PodSandbox, uid string) {
	r.T.Helper()
	r.EndPod(sb)
	r.Unprepare(uid)
	r.ExpectNothing()
}

// GiveUpDEL attaches a claim to sandbox s1 and waits until its failing DEL is given up.
func (r *Rig) GiveUpDEL(claim *resourceapi.ResourceClaim) {
	r.T.Helper()
	r.Prepare(claim)
	sb := r.Sandbox("s1", "pod")
	_ = r.RunPod(sb)
	r.EndPod(sb)
	r.Unprepare(string(claim.UID))
	WaitIdle() // calls return before everything is on disk
}

// AttachDevice attaches sandbox s1 to a claim of a device.
func (r *Rig) AttachDevice(device, driver string) {
	r.T.Helper()
	r.AttachPod(OnDevice(r.ClaimOf("a", "u1", "pod", Net("x", "net1", "")), 0, device, driver))
}
