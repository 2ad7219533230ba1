package devices_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/test/difftest"
)

// mismatches returns the labels of the mismatches that the agent has counted once.
func mismatches(r *dratest.Rig) (all []string) {
	for name, n := range r.Samples() {
		if labels, is := strings.CutPrefix(name, "devinfo_dra_device_mismatches_total "); is && n == 1 {
			all = append(all, labels)
		}
	}
	slices.Sort(all)
	return all
}

func TestDeviceIsRestoredAfterDEL(t *testing.T) {
	t.Parallel()
	for name, device := range map[string][2]string{"VF": {dratest.VF0, ""}, "SF": {dratest.SF4, ""}, "vfio-pci": {dratest.VF2, "vfio-pci"}} {
		t.Run(name, func(t *testing.T) {
			dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
				b.AttachDevice(device[0], device[1])
				if cmp.Equal(dratest.CapturedDevices(), dratest.ReadDevices(b.Kernel)) {
					t.Error("the pod does not have the device")
				}
				told := b.Metadata
				attributes := told[len(told)-1].Metadata.Attributes
				b.EndPod(b.Sandbox("s1", "pod"))
				b.Unprepare("u1")
				dratest.ExpectRestored(t, b.Kernel)
				b.ExpectNothing()
				want := []string{"restored=true setting=mac", "restored=true setting=mtu", "restored=true setting=name"}
				if device[1] != "" {
					if driver := attributes["devinfo-cni.io/driver"].StringValue; driver == nil || *driver != device[1] {
						t.Errorf("metadata: driver %v", driver)
					}
					if _, has := attributes["devinfo-cni.io/ifName"]; has {
						t.Error("metadata has an interface name")
					}
					want = []string{"restored=true setting=driver", "restored=true setting=mac", "restored=true setting=name"}
				}
				difftest.Equal(t, mismatches(b), want)
				difftest.Equal(t, b.Notices(), []string(nil))
			})
		})
	}
}

// The administrator has removed the rules. Restoring a device still needs the journal.
func TestDriverWithoutRulesRestoresDevicesOfPods(t *testing.T) {
	dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
		b.Options.Devices.Journal = dratest.JournalIn(b.Dir, "boot1")
		b.Start()
		b.AttachDevice(dratest.VF0, "")
		b.Stop()
		b.Options.Devices.Inventory = nil
		b.Start()
		b.Prepare(dratest.OnDevice(b.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")), 0, dratest.VF0, "")) // again
		b.PrepareFails(dratest.DeviceClaim("u2", dratest.VF0, ""), "this node offers no devices of its own")
		b.EndAndUnprepare(b.Sandbox("s1", "pod"), "u1")
		dratest.ExpectRestored(t, b.Kernel)
		b.ExpectHolders("pci-0000:03:00.2")
		b.ExpectNothing()
	})
}

// The kernel removes a namespace asynchronously, so DEL may come first. Until the device is restored, the lease keeps
// the devinfo plugin from giving it to another pod.
func TestRestoreWaitsForDeviceOfRemovedNamespace(t *testing.T) {
	dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
		b.Options.Devices.Journal = dratest.JournalIn(b.Dir, "boot1")
		b.Start()
		b.AttachDevice(dratest.VF0, "")
		sb := b.Sandbox("s1", "pod")
		b.RemoveNetns(sb)
		b.Options.Devices.Journal = dratest.JournalIn(b.Dir, "boot1")
		b.Start() // the former process held the namespace
		time.AfterFunc(3*time.Second, func() { dratest.NoError(t, b.Kernel.EndNetns(dratest.NetnsOf(sb))) })
		began := time.Now()
		difftest.Must(t, b.Agent.StopPodSandbox(t.Context(), sb))
		if took := time.Since(began); took > time.Second {
			t.Errorf("StopPodSandbox took %v", took)
		}
		b.ExpectPhase("Restoring", 1)
		b.ExpectHolders("pci-0000:03:00.2", "claim ns/a")
		if took := b.Unprepare("u1"); took < 2*time.Second || took > 10*time.Second {
			t.Errorf("unprepared after %v", took)
		}
		dratest.ExpectRestored(t, b.Kernel)
		b.ExpectHolders("pci-0000:03:00.2")
		b.ExpectNothing()
		if n := b.Plugins.Calls("DEL"); n != 1 || len(b.Notices()) > 0 {
			t.Errorf("%d DELs, %q", n, b.Notices())
		}
	})
}

func TestUnrestoredDeviceIsWithheldAndReported(t *testing.T) {
	t.Parallel()
	dratest.InBubble(t, func(t *testing.T, b *dratest.Rig) {
		b.Kernel = dratest.AddDevices(&b.Options, b.Dir)
		next := dratest.OnDevice(b.ClaimOf("a", "u1", "next", dratest.Net("x", "net1", "")), 0, dratest.VF2, "")
		b.ReadClaims(next, nil)
		b.Start()
		b.AttachDevice(dratest.VF0, "")
		b.Kernel.Fault = func() error { return errors.New("firmware says no") }
		b.EndPod(b.Sandbox("s1", "pod"))
		difftest.Must(t, b.Kernel.EndNetns(filepath.Join(b.Dir, "netns/s1")))
		b.PrepareFails(next, "firmware says no", "mtu, mac, name", dratest.VF0)
		dratest.WaitIdle()
		withheld := []string{dratest.VF0} // a device whose DEL failed is withheld from the slices
		difftest.Equal(t, slices.Sorted(maps.Keys(b.Agent.Node.Withheld())), withheld)
		time.Sleep(10 * time.Minute)
		dratest.WaitIdle()
		b.ExpectPhase("Undeleted", 1)
		difftest.Equal(t, slices.Sorted(maps.Keys(b.Agent.Node.Withheld())), withheld)
		difftest.Equal(t, mismatches(b), []string{"restored=false setting=mac", "restored=false setting=mtu", "restored=false setting=name"})
		if !slices.Contains(b.Notices(), claim.NoticeDevice) {
			t.Errorf("told %q", b.Notices())
		}
		left := b.Record("u1").Undeleted
		if len(left) != 1 || left[0].Device != dratest.VF0 || !strings.Contains(left[0].DelError, "firmware says no") {
			t.Errorf("got %+v", left)
		}
		b.Kernel.Fault = nil
		b.Prepare(dratest.OnDevice(b.ClaimOf("b", "u2", "other", dratest.Net("x", "net1", "")), 0, dratest.VF0, "")) // the scheduler allocated it before
		b.Plugins.Violations = nil
		err := b.RunPod(b.Sandbox("s2", "other"))
		if err != nil || len(b.Plugins.Violations) != 1 || !strings.Contains(b.Plugins.Violations[0], "9000") {
			t.Errorf("%v; %q", err, b.Plugins.Violations)
		}
		b.Plugins.Violations = nil
		b.EndPod(b.Sandbox("s2", "other"))
		b.Unprepare("u2")
		dratest.ExpectRestored(t, b.Kernel)
		time.Sleep(2 * time.Hour)
		dratest.WaitIdle()
		dratest.ExpectRestored(t, b.Kernel)
		difftest.Equal(t, len(b.Agent.Node.Withheld()), 0)
	})
}

// A setting of a newer kernel must not take the devices of all nodes away, but an administrator may ask for that.
func TestDeviceWithHarmlessDifferenceIsOffered(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"", "onDifference: withhold"} {
		t.Run(rule, func(t *testing.T) {
			dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
				b.Stop()
				rules, err := inventory.ParseRules([]byte("devices: [{ifNames: [enp3s0f0v0], sharing: exclusive, " + rule + "}]"))
				difftest.Must(t, err)
				b.Options.Devices.Inventory.Rules = rules
				b.Start()
				dratest.Survey(b.Agent)
				b.AttachDevice(dratest.VF0, "")
				difftest.Must(t, b.Kernel.Configure("0000:03:00.2", settings.Dump{"rtnetlink-99": "07000000", "rings": "07", "xdp": "program 9"}))
				b.EndPod(b.Sandbox("s1", "pod"))
				difftest.Must(t, b.Kernel.EndNetns(filepath.Join(b.Dir, "netns/s1")))
				time.Sleep(10 * time.Minute)
				dratest.WaitIdle()
				withheld := []string(nil)
				notice, phase := claim.NoticeDiffers, "Prepared"
				if rule != "" {
					withheld, notice, phase = []string{dratest.VF0}, claim.NoticeDevice, "Undeleted"
				}
				b.ExpectPhase(phase, 1)
				difftest.Equal(t, slices.Sorted(maps.Keys(b.Agent.Node.Withheld())), withheld)
				if told := b.Notices(); len(told) == 0 || told[len(told)-1] != notice {
					t.Errorf("told %q", told)
				}
				if got := mismatches(b); !slices.Contains(got, "restored=false setting=rtnetlink-99") || !slices.Contains(got, "restored=true setting=xdp") {
					t.Errorf("counted %q", got)
				}
				dratest.Survey(b.Agent)
				offer, err := state.ReadOffer(b.Options.StateDir)
				difftest.Must(t, err)
				if why := offer.Devices[0].Why; strings.Contains(why, "rtnetlink-99 is 7, was none") != (rule != "") {
					t.Errorf("offered? %q", why)
				}
			})
		})
	}
}

// A reset removes what nobody can restore, and is not repeated. udev may then rename the interface. During the reset the
// published slices stay as they are.
func TestVFIsResetOnceUnlessItsRuleForbidsIt(t *testing.T) {
	const address, device = "0000:01:10.0", "pci-0000-01-10-0"
	for rule, want := range map[string]struct {
		unbinds int
		notices []string
	}{"": {1, nil}, ", reset: auto": {1, nil}, ", reset: always": {1, nil}, ", reset: never": {0, []string{claim.NoticeDiffers}}} {
		t.Run(rule, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			k := dratest.AddDevicesOf(capturetest.Text(t, "igb-sriov"), &r.Options, r.Dir)
			n, unbinds, slices := dratest.NewNode(t, "igb-sriov"), 0, inventory.Published(nil)
			during := func() {
				t.Helper()
				if slices != nil {
					difftest.Same(t, "slices", dratest.Survey(r.Agent), slices)
				}
			}
			n.Rules = "devices: [{drivers: [igbvf], sharing: exclusive" + rule + "}]"
			r.Options.Devices.Inventory = n.Inventory()
			r.Options.Devices.Inventory.Host = func() (inventory.Host, error) {
				h, err := n.Host()
				h.Sys = k.Sys()
				return h, err
			}
			r.Options.Devices.Custody = restore.New(k.Sys(), func(name, text string) error {
				switch {
				case strings.HasSuffix(name, "/unbind"):
					unbinds++
					defer during()
				case name == "bus/pci/drivers_probe": // udev renames the interface after its name was restored
					time.AfterFunc(50*time.Millisecond, func() {
						i, err := k.Interface("", "eth2")
						dratest.NoError(t, errors.Join(err, k.Rename(i, "udev0")))
					})
				}
				return k.Write(name, text)
			}, k)
			slices = dratest.Survey(r.Start())
			before, err := k.Host().Look(hostdev.Ref{PCI: address, IfName: "eth2"})
			difftest.Must(t, err)
			r.Prepare(dratest.DeviceClaim("u1", device, `"device":[],`+dratest.Network(`{"type":"x"}`)))
			r.Stop()
			record := state.Path(r.Options.StateDir, "u1")
			if strings.Contains(rule, "auto") { // older builds have recorded no mode
				difftest.Write(t, record, strings.Replace(difftest.Read(t, record), `"reset":"auto"`, `"reset":""`, 1), 0o600)
				dratest.Survey(r.Start())
			} else {
				r.Start() // it has not read the node yet when the sandbox starts
			}
			sb := r.Sandbox("s1", "pod")
			difftest.Must(t, r.RunPod(sb), k.Move(address, "", dratest.NetnsOf(sb), "net1"), k.Configure(address, settings.Dump{"rtnetlink-99": "07000000"}))
			r.EndPod(sb)
			difftest.Must(t, k.EndNetns(dratest.NetnsOf(sb)))
			r.Unprepare("u1")
			time.Sleep(time.Second)
			difftest.Same(t, "unbinds", unbinds, want.unbinds)
			difftest.Equal(t, r.Notices(), want.notices)
			after, err := k.Host().Look(hostdev.Ref{PCI: address, IfName: "eth2"})
			difftest.Must(t, err)
			delete(after.Settings, "rtnetlink-99")
			difftest.Equal(t, after, before)
			difftest.Must(t, k.Write("bus/pci/drivers/igbvf/unbind", address))
			if reflect.DeepEqual(dratest.Survey(r.Agent), slices) {
				t.Error("the slices never change, so nothing was tested")
			}
		}))
	}
}

// The new boot may have configured the device.
func TestDeviceIsNotRestoredAfterReboot(t *testing.T) {
	t.Parallel()
	dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
		b.AttachDevice(dratest.VF2, "vfio-pci")
		b.Stop()
		difftest.Must(t, os.Remove(filepath.Join(b.Dir, "netns/s1")))
		difftest.Must(t, os.RemoveAll(filepath.Join(b.Dir, "kernel")))
		b.Options.BootID = "boot2"
		b.Kernel = dratest.AddDevices(&b.Options, b.Dir)
		difftest.Must(t, b.Kernel.Use("0000:03:00.4", 2000, "02:00:00:00:00:01"))
		b.Start()
		b.ListSandboxes()
		b.Unprepare("u1")
		b.ExpectNothing()
		if now := dratest.ReadDevices(b.Kernel)["0000:03:00.4"]; now.MTU != 2000 || now.Driver != "mlx5_core" {
			t.Errorf("got %+v", now)
		}
	})
}

func TestUnpluggedDeviceDoesNotBlockUnprepare(t *testing.T) {
	dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
		b.AttachDevice(dratest.VF0, "")
		difftest.Must(t, os.Remove(filepath.Join(b.Dir, "kernel/sys/bus/pci/devices/0000:03:00.2")))
		b.EndAndUnprepare(b.Sandbox("s1", "pod"), "u1")
	})
}

// Attaching a device that the host has begun to use would cut off the node. The driver rebinds a function only if it is
// unused at the time of ADD.
func TestDeviceIsCheckedAtADD(t *testing.T) {
	unreadable := func() (inventory.Host, error) { return inventory.Host{}, errors.New("no answer") }
	for name, test := range map[string]struct {
		device, driver string
		happens        func(b *dratest.Rig, n *dratest.Node)
		want           []string
	}{
		"lost": {dratest.VF0, "", func(b *dratest.Rig, _ *dratest.Node) {
			difftest.Must(b.T, os.Remove(filepath.Join(b.Dir, "kernel/sys/bus/pci/devices/0000:03:00.2")))
		}, []string{dratest.VF0, "the node has lost it"}},
		"with another function in its IOMMU group": {dratest.VF2, "vfio-pci", func(b *dratest.Rig, _ *dratest.Node) {
			difftest.Must(b.T, os.Symlink("x", filepath.Join(b.Dir, "kernel/sys/kernel/iommu_groups/56/devices/0000:03:00.2")))
		}, []string{"driver: vfio-pci", "IOMMU group 56", "0000:03:00.2"}},
		"an uplink": {dratest.VF0, "", func(b *dratest.Rig, n *dratest.Node) {
			n.Text = append(n.Text, "\n-- netlink/uplinks.json --\n[\"enp3s0f0v0\"]\n"...)
			dratest.Survey(b.Agent)
		}, []string{dratest.VF0, "the host needs it: enp3s0f0v0 has a default route"}},
		"of a capture, which the driver does not bind": {dratest.VF2, "vfio-pci", func(b *dratest.Rig, _ *dratest.Node) {
			b.Options.Devices.Custody = nil
			b.Start()
		}, []string{dratest.VF2, "driver: vfio-pci", "--capture"}},
		"no longer readable": {dratest.VF2, "vfio-pci", func(b *dratest.Rig, n *dratest.Node) {
			dratest.Survey(b.Agent)
			n.Text = bytes.Replace(n.Text, []byte("/0000:03:00.4/device --\n0x101e\n"), []byte("/0000:03:00.4/device !EIO --\n"), 1)
		}, []string{dratest.VF2, "input/output error"}},
		"of a node that cannot be read": {dratest.VF2, "vfio-pci", func(b *dratest.Rig, _ *dratest.Node) {
			dratest.Survey(b.Agent)
			b.Options.Devices.Inventory.Host = unreadable
		}, []string{dratest.VF2, "no answer"}},
		"of a node that cannot be read, before the next driver's first survey": {dratest.VF0, "", func(b *dratest.Rig, _ *dratest.Node) {
			b.Options.Devices.Inventory.Host = unreadable
			b.Start()
		}, []string{dratest.VF0, "no answer"}},
		"of a node whose rules were removed": {dratest.VF2, "vfio-pci", func(b *dratest.Rig, _ *dratest.Node) {
			b.Options.Devices.Inventory = nil
			b.Start()
		}, []string{dratest.VF2, "driver: vfio-pci", "offers no devices"}},
		"an uplink, before the next driver's first survey": {dratest.VF0, "", func(b *dratest.Rig, n *dratest.Node) {
			n.Text = append(n.Text, "\n-- netlink/uplinks.json --\n[\"enp3s0f0v0\"]\n"...)
			b.Start()
		}, []string{dratest.VF0, "the host needs it: enp3s0f0v0 has a default route"}},
	} {
		t.Run(name, func(t *testing.T) {
			dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
				b.Stop()
				n := b.Offer("mlx5-switchdev", "")
				b.Start()
				b.Prepare(dratest.OnDevice(b.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")), 0, test.device, test.driver))
				test.happens(b, n)
				difftest.Says(t, b.RunPod(b.Sandbox("s1", "pod")), test.want...)
				b.ExpectCalls("", 0)
			})
		})
	}
}

func TestFailedDriverBindFailsADDAndIsUndone(t *testing.T) {
	dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
		left := 2 // setting the override, and unbind
		b.Kernel.Fault = func() error {
			if left--; left == -1 {
				return errors.New("probe failed")
			}
			return nil
		}
		b.Prepare(dratest.OnDevice(b.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")), 0, dratest.VF2, "vfio-pci"))
		sb := b.Sandbox("s1", "pod")
		difftest.Says(t, b.RunPod(sb), "driver: vfio-pci", "probe failed")
		b.EndPod(sb)
		b.Unprepare("u1")
		dratest.ExpectRestored(t, b.Kernel)
		b.ExpectNothing()
	})
}
