package claim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// variant is a kind of claims and pods. A promise about claims is tested for all variants.
type variant struct {
	name, parameters string
	gate             string // of request r
	hostNetwork      bool
}

func variants() []variant {
	return []variant{
		{"with a network", dratest.Network(`{"type":"sriov"}`), "u1_r", false},
		{"for device nodes", "", "u1_r_" + dratest.VF3, false},
		{"for device nodes, in a pod on the host's network", "", "u1_r_" + dratest.VF3, true},
	}
}

// inBubbles runs a test for each variant.
func inBubbles(t *testing.T, test func(t *testing.T, r *dratest.Rig, of variant)) {
	for _, of := range variants() {
		t.Run(of.name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			r.UseJournal("mlx5-switchdev", strings.Replace(dratest.Rules, `.vfIndex == 3`, `.vfIndex >= 0`, 1))
			test(t, r, of)
		}))
	}
}

// sandboxOf returns a sandbox of a pod of this variant.
func sandboxOf(r *dratest.Rig, of variant, id, pod string) *api.PodSandbox {
	sb := r.Sandbox(id, pod)
	if of.hostNetwork {
		sb.Linux.Namespaces = sb.Linux.Namespaces[:1]
	}
	return sb
}

// The driver may not be running when a pod gets another sandbox, or when another pod has the claim.
func TestGateRejectsContainersOutsideItsPod(t *testing.T) {
	inBubbles(t, func(t *testing.T, r *dratest.Rig, of variant) {
		r.Start()
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, of.parameters))
		first, second := sandboxOf(r, of, "s1", "pod"), sandboxOf(r, of, "s2", "pod")
		if hasNetwork := of.parameters != ""; hasNetwork {
			difftest.Says(t, r.CreateContainer(first, of.gate), "unresolvable CDI device")
		} else { // the pod's next sandbox may have the device too
			second = sandboxOf(r, of, "s2", "other")
		}
		difftest.Must(t, r.RunPod(first))
		difftest.Must(t, r.CreateContainer(first, of.gate))
		difftest.Says(t, r.CreateContainer(second, of.gate), "claim ns/claim-u1, request r, is held by pod ns/pod")
		// A spec without the hook, from an earlier driver, still opens. The driver adds the hook.
		file := filepath.Join(r.Options.CDIDir, cdispec.FileName(dratest.Driver+"/claim", of.gate))
		var spec map[string]any
		difftest.Must(t, json.Unmarshal([]byte(difftest.Read(t, file)), &spec))
		delete(spec["devices"].([]any)[0].(map[string]any)["containerEdits"].(map[string]any), "hooks")
		old, err := json.Marshal(spec)
		difftest.Must(t, err)
		r.Stop()
		difftest.Must(t, os.WriteFile(file, old, 0o644))
		difftest.Must(t, r.CreateContainer(second, of.gate))
		r.Start()
		r.ListSandboxes(first)
		dratest.WaitIdle()
		difftest.Must(t, r.CreateContainer(first, of.gate))
		difftest.Says(t, r.CreateContainer(second, of.gate), "claim ns/claim-u1")
		difftest.Equal(t, strings.Count(difftest.Read(t, file), r.Options.Gate), 1)
		r.EndPod(first)
		r.Unprepare("u1")
		difftest.Says(t, r.CreateContainer(second, of.gate), "unresolvable CDI device")
	})
}

// Another program may change a spec in any way. The next sweep writes it again, whatever remains the same in it.
func TestChangedSpecIsWrittenAgain(t *testing.T) {
	for name, change := range map[string]func(spec string) string{
		"a variable is missing": func(spec string) string { return strings.Replace(spec, `"DEVINFO_`, `"X_`, 1) },
		"a mount is added": func(spec string) string {
			return strings.Replace(spec, `"env"`, `"mounts": [{"hostPath": "/", "containerPath": "/h"}], "env"`, 1)
		},
		"it is empty":      func(string) string { return "" },
		"it is of nothing": func(string) string { return "{}" },
		"a space is added": func(spec string) string { return spec + " " },
	} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, r *dratest.Rig, of variant) {
				r.Start()
				r.Prepare(dratest.DeviceClaim("u1", dratest.VF3, of.parameters))
				difftest.Must(t, r.RunPod(sandboxOf(r, of, "s1", "pod")))
				dratest.WaitIdle()
				file := filepath.Join(r.Options.CDIDir, cdispec.FileName(dratest.Driver+"/claim", of.gate))
				before := difftest.Read(t, file)
				after := change(before)
				if after == before {
					t.Fatalf("nothing to change in %s", before)
				}
				difftest.Must(t, os.WriteFile(file, []byte(after), 0o644))
				time.Sleep(2 * time.Minute)
				dratest.WaitIdle()
				difftest.Same(t, "the spec", difftest.Read(t, file), before)
			})
		})
	}
}

// After a restart of the driver a running claim keeps what its containers were given, though its device cannot be read in that
// moment, or its interface is in the pod, or its spec cannot be read at first.
func TestSpecStaysIfItOrItsDeviceCannotBeReadAfterRestart(t *testing.T) {
	for _, unreadable := range []bool{false, true} {
		inBubbles(t, func(t *testing.T, r *dratest.Rig, of variant) {
			r.Start()
			claim, sb := dratest.DeviceClaim("u1", dratest.VF3, of.parameters), sandboxOf(r, of, "s1", "pod")
			r.Prepare(claim)
			difftest.Must(t, r.RunPod(sb))
			dratest.WaitIdle()
			file := filepath.Join(r.Options.CDIDir, cdispec.FileName(dratest.Driver+"/claim", of.gate))
			before := difftest.Read(t, file)
			r.Stop()
			finder, sys := r.Options.Devices.Finder, sysfs.New(fstest.MapFS{})
			r.Options.Devices.Finder = &discovery.Finder{Sys: sys, Interfaces: finder.Interfaces, Eswitches: finder.Eswitches}
			unblock := func() {}
			if unreadable {
				unblock = block(r, file)
			}
			r.Start()
			r.ListSandboxes(sb)
			dratest.WaitIdle()
			if unreadable && of.parameters == "" {
				r.PrepareFails(claim, "open the gate", "not a regular file")
			}
			unblock()
			time.Sleep(2 * time.Minute)
			dratest.WaitIdle()
			difftest.Same(t, "the spec", difftest.Read(t, file), before)
		})
	}
}

// block makes a file of the rig one that can be neither read nor written, until unblock.
func block(r *dratest.Rig, file string) (unblock func()) {
	r.T.Helper()
	difftest.Must(r.T, os.Rename(file, file+".saved"), os.MkdirAll(filepath.Join(file, "busy"), 0o700))
	return func() { difftest.Must(r.T, os.RemoveAll(file), os.Rename(file+".saved", file)) }
}

// expectRDMA checks that each gate sets the variable to want; "" = not set.
func expectRDMA(r *dratest.Rig, gates int, want string) {
	r.T.Helper()
	r.ExpectFiles("cdi", gates)
	for _, name := range r.Files("cdi") {
		spec := difftest.Read(r.T, filepath.Join(r.Options.CDIDir, name))
		_, value, _ := strings.Cut(spec, `"DEVINFO_RDMA_DEVICES=`)
		if value, _, _ = strings.Cut(value, `"`); value != want {
			r.T.Errorf("%s lists %q, want %q", name, value, want)
		}
	}
}

// A container may have several of the claims, and the last of its CDI specs sets the variable.
func TestEachGateListsAllRDMADevicesOfPod(t *testing.T) {
	const all = "mlx5_4:1,mlx5_2:1"
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		sb := r.AttachPod(dratest.ClaimFor("u1", dratest.RequestFor("r", dratest.VF0, "net10", "sriov")), dratest.ClaimFor("u2", dratest.RequestFor("r", dratest.VF2, "net2", "sriov")),
			r.ClaimOf("z", "u3", "pod", dratest.Net("x", "net3", "")))
		expectRDMA(r, 3, all)

		// A killed process may have updated only some of the gates.
		r.Stop()
		file := filepath.Join(r.Options.CDIDir, r.Files("cdi")[2])
		difftest.Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(difftest.Read(t, file), "mlx5_4:1,", "")), 0o644))
		r.Start()
		r.ListSandboxes(sb)
		dratest.WaitIdle()
		expectRDMA(r, 3, all)

		r.Unprepare("u2")
		dratest.WaitIdle()
		expectRDMA(r, 2, "mlx5_2:1")
		r.Unprepare("u1")
		dratest.WaitIdle()
		expectRDMA(r, 1, "")
		r.EndPod(sb)
		r.Unprepare("u3")
		r.ExpectNothing()
	})
}

// A device without a network has no interface name to sort by.
func TestRDMADevicesWithoutNetworkAreListedLast(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Offer("mlx5-switchdev", strings.Replace(dratest.Rules, "vfIndex == 3", "vfIndex == 0", 1))
		r.Start()
		sb := r.AttachPod(dratest.DeviceClaim("u1", dratest.VF0, ""), dratest.ClaimFor("u2", dratest.RequestFor("r", dratest.VF2, "net2", "sriov")))
		expectRDMA(r, 2, "mlx5_4:1,mlx5_2:1")
		r.EndPod(sb)
		dratest.WaitIdle()
		expectRDMA(r, 1, "mlx5_2:1")
	})
}

// expectRDMAAtOpening fails the test if a gate is opened while an open gate of the pod does not list the RDMA devices of
// all open gates. devices maps the ends of gates' names to their devices.
func expectRDMAAtOpening(r *dratest.Rig, devices map[string]string) {
	r.Options.Reached = func(name string) {
		if name != "gate open" {
			return
		}
		for _, file := range r.Files("cdi") {
			if file[0] == '.' { // another claim's write has begun; runtimes do not read this file
				continue
			}
			spec := difftest.Read(r.T, filepath.Join(r.Options.CDIDir, file))
			for _, other := range r.Files("cdi") {
				for gate, device := range devices {
					if strings.HasSuffix(other, gate+".json") && !strings.Contains(spec, device) {
						r.T.Errorf("%s does not list %s of %s", file, device, other)
					}
				}
			}
		}
	}
}

// A sandbox does not wait for late networks, so its containers may start at any time.
func TestNoGateListsFewerRDMADevicesThanAreAttached(t *testing.T) {
	late := func(r dratest.Request) dratest.Request {
		r.Parameters = `"waitForAttach":false,` + r.Parameters
		return r
	}
	first, second := dratest.RequestFor("r", dratest.VF0, "net10", "sriov"), dratest.RequestFor("s", dratest.VF2, "net2", "sriov")
	for name, claims := range map[string]func() []*resourceapi.ResourceClaim{
		"a late network of another claim": func() []*resourceapi.ResourceClaim {
			return []*resourceapi.ResourceClaim{dratest.ClaimFor("u1", first), dratest.ClaimFor("u2", late(second))}
		},
		"a late network of the claim": func() []*resourceapi.ResourceClaim {
			return []*resourceapi.ResourceClaim{dratest.ClaimFor("u1", first, late(second))}
		},
		"a late ADD that runs": func() []*resourceapi.ResourceClaim {
			return []*resourceapi.ResourceClaim{dratest.ClaimFor("u1", first, late(dratest.RequestFor("t", "cni", "net3", "x"))), dratest.ClaimFor("u2", second)}
		},
	} {
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			r.Offer("mlx5-switchdev", "")
			expectRDMAAtOpening(r, map[string]string{"_r": "mlx5_2:1", "_s": "mlx5_4:1"})
			r.Start()
			r.Plugins.SetHook(func(command, _, ifName string) error {
				if command == "ADD" {
					time.Sleep(map[string]time.Duration{"net2": time.Second, "net3": time.Minute}[ifName])
				}
				return nil
			})
			r.AttachPod(claims()...)
			time.Sleep(2 * time.Minute)
			dratest.WaitIdle()
			expectRDMA(r, len(r.Files("cdi")), "mlx5_4:1,mlx5_2:1")
		}))
	}
}

// A spec that could not be written still lists the former devices, and a container may have both claims. A restarted driver
// does not know what a spec lists that it cannot read.
func TestGateStaysClosedUntilOtherGatesListItsRDMADevice(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
			r.Plugins.SetHook(func(command, _, ifName string) error {
				if command == "ADD" && ifName == "net2" {
					time.Sleep(time.Second)
				}
				return nil
			})
			late := dratest.RequestFor("s", dratest.VF2, "net2", "sriov")
			late.Parameters = `"waitForAttach":false,` + late.Parameters
			sb := r.AttachPod(dratest.ClaimFor("u1", dratest.RequestFor("r", dratest.VF0, "net10", "sriov")), dratest.ClaimFor("u2", late))
			unblock := block(r, filepath.Join(r.Options.CDIDir, r.Files("cdi")[0]))
			if restarts {
				r.Start()
				r.ListSandboxes(sb)
			}
			time.Sleep(10 * time.Minute)
			difftest.Says(t, r.CreateContainer(sb, "u2_s"), "unresolvable CDI device")
			unblock()
			time.Sleep(10 * time.Minute)
			expectRDMA(r, 2, "mlx5_4:1,mlx5_2:1")
		})
	}
}

// The cost of a pod is linear in its interfaces. Each gate knows the RDMA devices of the whole pod, and each step reads the
// gates of its claim.
func TestCostOfPodIsLinear(t *testing.T) {
	reads := func(claims int) (n int) {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.Start()
			var all []*resourceapi.ResourceClaim
			for c := range claims {
				var networks []dratest.NetRequest
				for i := range 8 {
					networks = append(networks, dratest.Net(fmt.Sprint("r", i), fmt.Sprint("net", c*8+i), ""))
				}
				all = append(all, r.ClaimOf(fmt.Sprint("c", c), fmt.Sprint("u", c), "pod", networks...))
			}
			r.Prepare(all...)
			before := difftest.ReadCalls(t)
			sb := r.RunSandbox("s1", "pod")
			dratest.WaitIdle()
			n = difftest.ReadCalls(t) - before
			difftest.Equal(t, len(r.Plugins.InterfaceNames()), claims*8)
			r.EndPod(sb)
		})
		return n
	}
	few, many := reads(2), reads(8)
	if many > 6*few {
		t.Errorf("%d calls of read for 16 interfaces, %d for 64", few, many)
	}
}

// No plugin of the chain writes device information. A user who can replace the file with a link would choose the file
// that the runtime mounts.
func TestDriverDescribesDeviceThatNoPluginDescribes(t *testing.T) {
	for _, exposed := range []error{nil, errors.New("it is theirs")} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.Offer("mlx5-switchdev", "")
			var asked []string
			r.Options.Unexposed = func(root, dir string) error {
				asked = append(asked, root+" "+dir)
				return exposed
			}
			r.Start()
			claim := dratest.DeviceClaim("u1", dratest.VF3, dratest.Network(`{"type":"sriov"}`)) // the VF is bound to vfio-pci
			dratest.SetIfName(claim, "net2")                                                     // the captured pod has no net2
			sb := r.AttachPod(claim)
			if at := r.Record("u1").Attachments[0]; at.PCI() != "0000:03:00.5" || len(r.Files("info")) != 1 {
				t.Errorf("got %s, files %q", at.Info, r.Files("info"))
			}
			mounted := strings.Contains(spec(r), filepath.Join(r.Options.DeviceInfoDir, r.Files("info")[0]))
			difftest.Equal(t, mounted, exposed == nil)
			difftest.Contains(t, spec(r), `"DEVINFO_NET2_PCI_ADDRESS=0000:03:00.5"`) // variables do not need the file
			difftest.Equal(t, asked, []string{"/ " + r.Options.DeviceInfoDir})
			told := r.Metadata[0].Metadata.Attributes
			if n := told["devinfo-cni.io/vfIndex"].IntValue; n == nil || *n != 3 || told["devinfo-cni.io/type"].StringValue == nil {
				t.Errorf("attributes of the slice or of the device information are missing: %v", told)
			}
			r.EndAndUnprepare(sb, "u1")
		})
	}
}
