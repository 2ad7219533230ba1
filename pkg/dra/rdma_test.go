package dra_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/test/difftest"
)

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
	r.step = func(name string) {
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
