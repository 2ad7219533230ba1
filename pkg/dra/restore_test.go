package dra_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/test/difftest"
)

// inBubbleWithDevices is inBubble on a node with devices, with a started agent.
func inBubbleWithDevices(t *testing.T, test func(t *testing.T, b *rig)) {
	t.Helper()
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.addDevices()
		r.options.Notify = func(n claim.Notice) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notices = append(r.notices, n.Reason)
		}
		r.start()
		test(t, r)
		if len(p.violations) > 0 {
			t.Errorf("%q", p.violations)
		}
	})
}

// mismatches returns the labels of the mismatches that the agent has counted once.
func (r *rig) mismatches() (all []string) {
	for name, n := range r.samples() {
		if labels, is := strings.CutPrefix(name, "devinfo_dra_device_mismatches_total "); is && n == 1 {
			all = append(all, labels)
		}
	}
	slices.Sort(all)
	return all
}

// restartWithLeases restarts the agent with a journal.
func (r *rig) restartWithLeases() {
	r.stop()
	r.options.Devices.Journal = journalIn(r.dir, "boot1")
	r.start()
}

// attachDevice attaches sandbox s1 to a claim of a device.
func (r *rig) attachDevice(t *testing.T, device, driver string) {
	t.Helper()
	r.attachPod(onDevice(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}), 0, device, driver))
}

func TestDeviceIsRestoredAfterDEL(t *testing.T) {
	t.Parallel()
	for name, device := range map[string][2]string{"VF": {vf0, ""}, "SF": {sf4, ""}, "vfio-pci": {vf2, "vfio-pci"}} {
		t.Run(name, func(t *testing.T) {
			inBubbleWithDevices(t, func(t *testing.T, b *rig) {
				b.attachDevice(t, device[0], device[1])
				if cmp.Equal(capturedDevices(), readDevices(b.kernel)) {
					t.Error("the pod does not have the device")
				}
				attributes := b.metadata[len(b.metadata)-1].Metadata.Attributes
				b.endPod(b.sandbox("s1", "pod"))
				b.unprepare("u1")
				expectRestored(t, b.kernel)
				b.expectNothing()
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
				difftest.Equal(t, b.mismatches(), want)
				difftest.Equal(t, b.notices, []string(nil))
			})
		})
	}
}

// The administrator has removed the rules. Restoring a device still needs the journal.
func TestDriverWithoutRulesRestoresDevicesOfPods(t *testing.T) {
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.restartWithLeases()
		b.attachDevice(t, vf0, "")
		b.stop()
		b.options.Devices.Inventory = nil
		b.start()
		b.endAndUnprepare(b.sandbox("s1", "pod"), "u1")
		expectRestored(t, b.kernel)
		b.expectHolders("pci-0000:03:00.2")
		b.expectNothing()
	})
}

// The kernel removes a namespace asynchronously, so DEL may come first. Until the device is restored, the lease keeps
// the devinfo plugin from giving it to another pod.
func TestRestoreWaitsForDeviceOfRemovedNamespace(t *testing.T) {
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.restartWithLeases()
		b.attachDevice(t, vf0, "")
		sb := b.sandbox("s1", "pod")
		b.removeNetns(sb)
		time.AfterFunc(3*time.Second, func() { noError(t, b.kernel.EndNetns(netnsOf(sb))) })
		began := time.Now()
		must(t, b.agent.StopPodSandbox(t.Context(), sb))
		if took := time.Since(began); took > time.Second {
			t.Errorf("StopPodSandbox took %v", took)
		}
		b.expectPhase("Restoring", 1)
		b.expectHolders("pci-0000:03:00.2", "claim ns/a")
		if took := b.unprepare("u1"); took < 2*time.Second || took > 10*time.Second {
			t.Errorf("unprepared after %v", took)
		}
		expectRestored(t, b.kernel)
		b.expectHolders("pci-0000:03:00.2")
		b.expectNothing()
		if n := b.plugins.calls("DEL"); n != 1 || len(b.notices) > 0 {
			t.Errorf("%d DELs, %q", n, b.notices)
		}
	})
}

func TestUnrestoredDeviceIsWithheldAndReported(t *testing.T) {
	t.Parallel()
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.attachDevice(t, vf0, "")
		b.kernel.Fault = func() error { return errors.New("firmware says no") }
		b.endPod(b.sandbox("s1", "pod"))
		must(t, b.kernel.EndNetns(filepath.Join(b.dir, "netns/s1")))
		b.prepareFails(onDevice(b.claimOf("a", "u1", "next", netRequest{"x", "net1", ""}), 0, vf2, ""), "firmware says no", "mtu, mac, name", vf0)
		waitIdle()
		withheld := map[string]bool{vf0: true} // a device whose DEL failed is withheld from the slices
		difftest.Equal(t, b.agent.Node.Withheld(), withheld)
		time.Sleep(10 * time.Minute)
		waitIdle()
		b.expectPhase("Undeleted", 1)
		difftest.Equal(t, b.agent.Node.Withheld(), withheld)
		difftest.Equal(t, b.mismatches(), []string{"restored=false setting=mac", "restored=false setting=mtu", "restored=false setting=name"})
		if !slices.Contains(b.notices, claim.NoticeDevice) {
			t.Errorf("told %q", b.notices)
		}
		left := b.record("u1").Undeleted
		if len(left) != 1 || left[0].Device != vf0 || !strings.Contains(left[0].DelError, "firmware says no") {
			t.Errorf("got %+v", left)
		}
		b.kernel.Fault = nil
		b.prepare(onDevice(b.claimOf("b", "u2", "other", netRequest{"x", "net1", ""}), 0, vf0, "")) // the scheduler allocated it before
		b.plugins.violations = nil
		err := b.runPod(b.sandbox("s2", "other"))
		if err != nil || len(b.plugins.violations) != 1 || !strings.Contains(b.plugins.violations[0], "9000") {
			t.Errorf("%v; %q", err, b.plugins.violations)
		}
		b.plugins.violations = nil
		b.endPod(b.sandbox("s2", "other"))
		b.unprepare("u2")
		expectRestored(t, b.kernel)
		time.Sleep(2 * time.Hour)
		waitIdle()
		expectRestored(t, b.kernel)
		difftest.Equal(t, b.agent.Node.Withheld(), map[string]bool{})
	})
}

// A setting of a newer kernel must not take the devices of all nodes away, but an administrator may ask for that.
func TestDeviceWithHarmlessDifferenceIsOffered(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"", "onDifference: withhold"} {
		t.Run(rule, func(t *testing.T) {
			inBubbleWithDevices(t, func(t *testing.T, b *rig) {
				b.stop()
				rules, err := inventory.ParseRules([]byte("devices: [{ifNames: [enp3s0f0v0], sharing: exclusive, " + rule + "}]"))
				must(t, err)
				b.options.Devices.Inventory.Rules = rules
				b.start()
				dra.Survey(b.agent)
				b.attachDevice(t, vf0, "")
				must(t, b.kernel.Configure("0000:03:00.2", link.Settings{"rtnetlink-99": "07000000", "rings": "07", "xdp": "program 9"}))
				b.endPod(b.sandbox("s1", "pod"))
				must(t, b.kernel.EndNetns(filepath.Join(b.dir, "netns/s1")))
				time.Sleep(10 * time.Minute)
				waitIdle()
				withheld := map[string]bool{}
				notice, phase := claim.NoticeDiffers, "Prepared"
				if rule != "" {
					withheld[vf0], notice, phase = true, claim.NoticeDevice, "Undeleted"
				}
				b.expectPhase(phase, 1)
				difftest.Equal(t, b.agent.Node.Withheld(), withheld)
				if n := len(b.notices); n == 0 || b.notices[n-1] != notice {
					t.Errorf("told %q", b.notices)
				}
				if got := b.mismatches(); !slices.Contains(got, "restored=false setting=rtnetlink-99") || !slices.Contains(got, "restored=true setting=xdp") {
					t.Errorf("counted %q", got)
				}
				dra.Survey(b.agent)
				offer, err := state.ReadOffer(b.options.StateDir)
				must(t, err)
				if why := offer.Devices[0].Why; strings.Contains(why, "rtnetlink-99 is 7, was none") != (rule != "") {
					t.Errorf("offered? %q", why)
				}
			})
		})
	}
}

// A reset removes what nobody can restore, and is not repeated. udev may then rename the interface.
func TestVFIsResetOnceUnlessItsRuleForbidsIt(t *testing.T) {
	const address, device = "0000:01:10.0", "pci-0000-01-10-0"
	for rule, want := range map[string]struct {
		unbinds int
		notices []string
	}{"": {1, nil}, ", reset: never": {0, []string{claim.NoticeDiffers}}} {
		t.Run(rule, bubble(func(t *testing.T, r *rig, p *plugins) {
			k := addDevicesOf(capturetest.Text(t, "igb-sriov"), &r.options, r.dir)
			n, unbinds := newNode(t, "igb-sriov"), 0
			n.rules = "devices: [{drivers: [igbvf], sharing: exclusive" + rule + "}]"
			r.options.Devices.Inventory = n.inventory()
			r.options.Devices.Custody = restore.New(k.Sys(), func(name, text string) error {
				switch {
				case strings.HasSuffix(name, "/unbind"):
					unbinds++
				case name == "bus/pci/drivers_probe": // udev renames the interface after its name was restored
					time.AfterFunc(50*time.Millisecond, func() {
						i, err := k.Interface("", "eth2")
						noError(t, errors.Join(err, k.Change(i, link.Change{Name: "udev0"})))
					})
				}
				return k.Write(name, text)
			}, k)
			r.options.Notify = func(n claim.Notice) { r.notices = append(r.notices, n.Reason) }
			dra.Survey(r.start())
			before, err := k.Host().Look(hostdev.Ref{PCI: address, IfName: "eth2"})
			must(t, err)
			sb := r.attachPod(ownClaim("u1", device, `"device":[],`+network(`{"type":"x"}`)))
			must(t, k.Move(address, "", netnsOf(sb), "net1"), k.Configure(address, link.Settings{"rtnetlink-99": "07000000"}))
			r.endPod(sb)
			must(t, k.EndNetns(netnsOf(sb)))
			r.unprepare("u1")
			time.Sleep(time.Second)
			difftest.Same(t, "unbinds", unbinds, want.unbinds)
			difftest.Equal(t, r.notices, want.notices)
			after, err := k.Host().Look(hostdev.Ref{PCI: address, IfName: "eth2"})
			must(t, err)
			delete(after.Settings, "rtnetlink-99")
			difftest.Equal(t, after, before)
		}))
	}
}

// The new boot may have configured the device.
func TestDeviceIsNotRestoredAfterReboot(t *testing.T) {
	t.Parallel()
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.attachDevice(t, vf2, "vfio-pci")
		b.stop()
		must(t, os.Remove(filepath.Join(b.dir, "netns/s1")))
		must(t, os.RemoveAll(filepath.Join(b.dir, "kernel")))
		b.options.BootID = "boot2"
		b.addDevices()
		must(t, b.kernel.Use("0000:03:00.4", 2000, "02:00:00:00:00:01"))
		b.start()
		b.listSandboxes()
		b.unprepare("u1")
		b.expectNothing()
		if now := readDevices(b.kernel)["0000:03:00.4"]; now.MTU != 2000 || now.Driver != "mlx5_core" {
			t.Errorf("got %+v", now)
		}
	})
}

func TestUnpluggedDeviceDoesNotBlockUnprepare(t *testing.T) {
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.attachDevice(t, vf0, "")
		must(t, os.Remove(filepath.Join(b.dir, "kernel/sys/bus/pci/devices/0000:03:00.2")))
		b.endAndUnprepare(b.sandbox("s1", "pod"), "u1")
	})
}

// Attaching a device that the host has begun to use would cut off the node. The driver rebinds a function only if it is
// unused at the time of ADD.
func TestDeviceIsCheckedAtADD(t *testing.T) {
	for name, test := range map[string]struct {
		device, driver string
		happens        func(b *rig, n *node) error
		want           []string
	}{
		"lost": {vf0, "", func(b *rig, _ *node) error {
			return os.Remove(filepath.Join(b.dir, "kernel/sys/bus/pci/devices/0000:03:00.2"))
		}, []string{vf0, "the node has lost it"}},
		"with another function in its IOMMU group": {vf2, "vfio-pci", func(b *rig, _ *node) error {
			return os.Symlink("x", filepath.Join(b.dir, "kernel/sys/kernel/iommu_groups/56/devices/0000:03:00.2"))
		}, []string{"driver: vfio-pci", "IOMMU group 56", "0000:03:00.2"}},
		"an uplink": {vf0, "", func(b *rig, n *node) error {
			n.text = append(n.text, "\n-- netlink/uplinks.json --\n[\"enp3s0f0v0\"]\n"...)
			dra.Survey(b.agent)
			return nil
		}, []string{vf0, "the host needs it: enp3s0f0v0 has a default route"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWithDevices(t, func(t *testing.T, b *rig) {
				b.stop()
				n := b.offer("mlx5-switchdev", "")
				b.start()
				b.prepare(onDevice(b.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}), 0, test.device, test.driver))
				must(t, test.happens(b, n))
				says(t, b.runPod(b.sandbox("s1", "pod")), test.want...)
				b.expectCalls("", 0)
			})
		})
	}
}

func TestFailedDriverBindFailsADDAndIsUndone(t *testing.T) {
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		left := 2 // setting the override, and unbind
		b.kernel.Fault = func() error {
			if left--; left == -1 {
				return errors.New("probe failed")
			}
			return nil
		}
		b.prepare(onDevice(b.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}), 0, vf2, "vfio-pci"))
		sb := b.sandbox("s1", "pod")
		says(t, b.runPod(sb), "driver: vfio-pci", "probe failed")
		b.endPod(sb)
		b.unprepare("u1")
		expectRestored(t, b.kernel)
		b.expectNothing()
	})
}
