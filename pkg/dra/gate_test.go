package dra_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/test/difftest"
)

// createContainer returns the error of a runtime that creates a container with these gates. It resolves each
// CDI spec and runs its hook, which compares network namespaces or pods: see cmd/cni-dra-gate.
func (r *rig) createContainer(sb *api.PodSandbox, gates ...string) error {
	for _, gate := range gates {
		data, err := os.ReadFile(filepath.Join(r.options.CDIDir, cdispec.FileName(driverName+"/claim", gate)))
		if err != nil {
			return fmt.Errorf("unresolvable CDI device: %w", err)
		}
		var spec specs.Spec
		if err := json.Unmarshal(data, &spec); err != nil {
			return err
		}
		for _, hook := range spec.Devices[0].ContainerEdits.Hooks {
			if hook.HookName != "createRuntime" || hook.Path != r.options.Gate || len(hook.Args) != 3 {
				return fmt.Errorf("hook %+v", hook)
			}
			if hook.Args[1] != "pod/"+sb.Uid && hook.Args[1] != netnsOf(sb) {
				return errors.New(hook.Args[2])
			}
		}
	}
	return nil
}

// variant is a kind of claims and pods. A promise about claims is tested for all variants.
type variant struct {
	name, parameters string
	gate             string // of request r
	hostNetwork      bool
}

func variants() []variant {
	return []variant{
		{"with a network", network(`{"type":"sriov"}`), "u1_r", false},
		{"for device nodes", "", "u1_r_" + vf3, false},
		{"for device nodes, in a pod on the host's network", "", "u1_r_" + vf3, true},
	}
}

// inBubbles runs a test for each variant.
func inBubbles(t *testing.T, test func(t *testing.T, r *rig, p *plugins, of variant)) {
	for _, of := range variants() {
		t.Run(of.name, bubble(func(t *testing.T, r *rig, p *plugins) {
			r.useJournal("mlx5-switchdev", strings.Replace(ownRules, `.vfIndex == 3`, `.vfIndex >= 0`, 1))
			test(t, r, p, of)
		}))
	}
}

// sandboxOf returns a sandbox of a pod of this variant.
func (r *rig) sandboxOf(of variant, id, pod string) *api.PodSandbox {
	sb := r.sandbox(id, pod)
	if of.hostNetwork {
		sb.Linux.Namespaces = sb.Linux.Namespaces[:1]
	}
	return sb
}

// The driver may not be running when a pod gets another sandbox, or when another pod has the claim.
func TestGateRejectsContainersOutsideItsPod(t *testing.T) {
	inBubbles(t, func(t *testing.T, r *rig, _ *plugins, of variant) {
		r.start()
		r.prepare(ownClaim("u1", vf3, of.parameters))
		first, second := r.sandboxOf(of, "s1", "pod"), r.sandboxOf(of, "s2", "pod")
		if hasNetwork := of.parameters != ""; hasNetwork {
			says(t, r.createContainer(first, of.gate), "unresolvable CDI device")
		} else { // the pod's next sandbox may have the device too
			second = r.sandboxOf(of, "s2", "other")
		}
		must(t, r.runPod(first))
		must(t, r.createContainer(first, of.gate))
		says(t, r.createContainer(second, of.gate), "claim ns/claim-u1, request r, is held by pod ns/pod")
		// A spec without the hook, from an earlier driver, still opens. The driver adds the hook.
		file := filepath.Join(r.options.CDIDir, cdispec.FileName(driverName+"/claim", of.gate))
		var spec map[string]any
		must(t, json.Unmarshal([]byte(difftest.Read(t, file)), &spec))
		delete(spec["devices"].([]any)[0].(map[string]any)["containerEdits"].(map[string]any), "hooks")
		old, err := json.Marshal(spec)
		must(t, err)
		r.stop()
		must(t, os.WriteFile(file, old, 0o644))
		must(t, r.createContainer(second, of.gate))
		r.start()
		r.listSandboxes(first)
		waitIdle()
		must(t, r.createContainer(first, of.gate))
		says(t, r.createContainer(second, of.gate), "claim ns/claim-u1")
		difftest.Equal(t, strings.Count(difftest.Read(t, file), r.options.Gate), 1)
		r.endPod(first)
		r.unprepare("u1")
		says(t, r.createContainer(second, of.gate), "unresolvable CDI device")
	})
}

// sriov-cni and ib-sriov-cni reset a VF only if CNI_NETNS is set, even if that namespace no longer exists.
// host-device fails on such a path. CRI-O removes the namespace before every DEL. After a reboot no plugin gets
// the path, because the VF is new.
func TestOnlyVFPluginsGetPathOfMissingNamespace(t *testing.T) {
	for name, test := range map[string]struct {
		ends func(r *rig, sb *api.PodSandbox)
		want func(path string) (vf, other string)
	}{
		"there": {func(*rig, *api.PodSandbox) {}, func(path string) (string, string) { return path, path }},
		"gone":  {(*rig).removeNetns, func(path string) (string, string) { return path, "" }},
		"gone with its boot": {func(r *rig, sb *api.PodSandbox) {
			r.removeNetns(sb)
			r.stop()
			r.options.BootID = "boot2"
			r.start()
		}, func(string) (string, string) { return "", "" }},
		"another": {func(r *rig, _ *api.PodSandbox) {
			r.stop()
			r.options.BootID = "boot2"
			r.start()
		}, func(string) (string, string) { return "", "" }},
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			r.start()
			sb := r.attachPod(ownClaim("u1", "cni", network(`{"type":"sriov"},{"type":"ib-sriov"},{"type":"host-device"}`)))
			test.ends(r, sb)
			r.unprepare("u1")
			vf, other := test.want(netnsOf(sb))
			want := map[string]string{"sriov": vf, "ib-sriov": vf, "host-device": other}
			p.mu.Lock()
			defer p.mu.Unlock()
			difftest.Equal(t, p.netns, want)
		}))
	}
}

// expectRDMA checks that each gate sets the variable to want; "" = not set.
func (r *rig) expectRDMA(gates int, want string) {
	r.t.Helper()
	r.expectFiles("cdi", gates)
	for _, name := range r.files("cdi") {
		spec := difftest.Read(r.t, filepath.Join(r.options.CDIDir, name))
		_, value, _ := strings.Cut(spec, `"DEVINFO_RDMA_DEVICES=`)
		if value, _, _ = strings.Cut(value, `"`); value != want {
			r.t.Errorf("%s lists %q, want %q", name, value, want)
		}
	}
}

// A container may have several of the claims, and the last of its CDI specs sets the variable.
func TestEachGateListsAllRDMADevicesOfPod(t *testing.T) {
	const all = "mlx5_4:1,mlx5_2:1"
	onNode(t, func(t *testing.T, r *rig, _ *plugins) {
		sb := r.attachPod(claimFor("u1", requestFor("r", vf0, "net10", "sriov", 0)), claimFor("u2", requestFor("r", vf2, "net2", "sriov", 0)),
			r.claimOf("z", "u3", "pod", netRequest{"x", "net3", ""}))
		r.expectRDMA(3, all)

		// A killed process may have updated only some of the gates.
		r.stop()
		file := filepath.Join(r.options.CDIDir, r.files("cdi")[2])
		must(t, os.WriteFile(file, []byte(strings.ReplaceAll(difftest.Read(t, file), "mlx5_4:1,", "")), 0o644))
		r.start()
		r.listSandboxes(sb)
		waitIdle()
		r.expectRDMA(3, all)

		r.unprepare("u2")
		waitIdle()
		r.expectRDMA(2, "mlx5_2:1")
		r.unprepare("u1")
		waitIdle()
		r.expectRDMA(1, "")
		r.endPod(sb)
		r.unprepare("u3")
		r.expectNothing()
	})
}

// A device without a network has no interface name to sort by.
func TestRDMADevicesWithoutNetworkAreListedLast(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		r.offer("mlx5-switchdev", strings.Replace(ownRules, "vfIndex == 3", "vfIndex == 0", 1))
		r.start()
		sb := r.attachPod(ownClaim("u1", vf0, ""), claimFor("u2", requestFor("r", vf2, "net2", "sriov", 0)))
		r.expectRDMA(2, "mlx5_4:1,mlx5_2:1")
		r.endPod(sb)
		waitIdle()
		r.expectRDMA(1, "mlx5_2:1")
	})
}

// expectRDMAAtOpening fails the test if a gate is opened while an open gate of the pod does not list the RDMA devices of
// all open gates. devices maps the ends of gates' names to their devices.
func (r *rig) expectRDMAAtOpening(devices map[string]string) {
	r.reached = func(name string) {
		if name != "gate open" {
			return
		}
		for _, file := range r.files("cdi") {
			if file[0] == '.' { // another claim's write has begun; runtimes do not read this file
				continue
			}
			spec := difftest.Read(r.t, filepath.Join(r.options.CDIDir, file))
			for _, other := range r.files("cdi") {
				for gate, device := range devices {
					if strings.HasSuffix(other, gate+".json") && !strings.Contains(spec, device) {
						r.t.Errorf("%s does not list %s of %s", file, device, other)
					}
				}
			}
		}
	}
}

// A sandbox does not wait for late networks, so its containers may start at any time.
func TestNoGateListsFewerRDMADevicesThanAreAttached(t *testing.T) {
	late := func(r request) request {
		r.parameters = `"waitForAttach":false,` + r.parameters
		return r
	}
	first, second := requestFor("r", vf0, "net10", "sriov", 0), requestFor("s", vf2, "net2", "sriov", 0)
	for name, claims := range map[string]func() []*resourceapi.ResourceClaim{
		"a late network of another claim": func() []*resourceapi.ResourceClaim {
			return []*resourceapi.ResourceClaim{claimFor("u1", first), claimFor("u2", late(second))}
		},
		"a late network of the claim": func() []*resourceapi.ResourceClaim {
			return []*resourceapi.ResourceClaim{claimFor("u1", first, late(second))}
		},
		"a late ADD that runs": func() []*resourceapi.ResourceClaim {
			return []*resourceapi.ResourceClaim{claimFor("u1", first, late(requestFor("t", "cni", "net3", "x", 0))), claimFor("u2", second)}
		},
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			r.offer("mlx5-switchdev", "")
			r.expectRDMAAtOpening(map[string]string{"_r": "mlx5_2:1", "_s": "mlx5_4:1"})
			r.start()
			p.setHook(func(command, _, ifName string) error {
				if command == "ADD" {
					time.Sleep(map[string]time.Duration{"net2": time.Second, "net3": time.Minute}[ifName])
				}
				return nil
			})
			r.attachPod(claims()...)
			time.Sleep(2 * time.Minute)
			waitIdle()
			r.expectRDMA(len(r.files("cdi")), "mlx5_4:1,mlx5_2:1")
		}))
	}
}
