package dra_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/test/difftest"
)

// Multus attaches a device with a resourceName: see inventory.ResourceName.
func TestDeviceWithResourceNameNeedsNoNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.offer("mlx5-switchdev", "")
		agent := r.start()
		devices, err := agent.Prepare(t.Context(), ownClaim("u1", vf3, ""))
		must(t, err)
		attributes := devices[0].Metadata.Attributes
		for name, want := range map[string]string{"k8s.cni.cncf.io/deviceID": "0000:03:00.5", "k8s.cni.cncf.io/resourceName": "example.com/vf", "resource.kubernetes.io/pciBusID": "0000:03:00.5"} {
			difftest.Same(t, name, attributes[name].StringValue, &want)
		}
		difftest.Contains(t, string(r.attachment("u1").Info), "0000:03:00.5")
		r.expectFiles("dp", 0) // the device plugin's file is written only if the host is no capture, which may be of another node
		sb := r.attachPod(r.claimOf("z", "u2", "pod", netRequest{"x", "net1", ""}))
		r.expectFiles("cdi", 2)
		must(t, r.createContainer(sb, "u1_r_"+vf3))
		difftest.Equal(t, p.started, []string{"ADD s1 net1"})
		waitIdle() // until the driver writes nothing more
		must(t, os.RemoveAll(r.options.CDIDir))
		time.Sleep(2 * time.Minute)
		r.expectFiles("cdi", 2)
		r.start()
		r.prepare(ownClaim("u1", vf3, ""))
		r.endPod(sb)
		r.unprepare("u1")
		r.unprepare("u2")
		r.expectCalls("DEL", 1)
		r.expectNothing()
	})
}

// Multus assigns the devices to its networks by position, so a pod with two VFs has count: 2.
func TestRequestMayHaveSeveralDevicesWithoutNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.useJournal("mlx5-switchdev", strings.Replace(ownRules, `.vfIndex == 3`, `.vfIndex >= 0`, 1))
		agent := r.start()
		former := ownClaim("u0", vf0, "")
		former.Status.ReservedFor[0].UID = "uid-former"
		r.prepare(former)
		claim := ownClaim("u1", vf3, "")
		claim.Spec.Devices.Requests[0].Exactly.Count = 2
		second := claim.Status.Allocation.Devices.Results[0]
		second.Device = vf0
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, second)
		r.prepareFails(claim, vf0+" (0000:03:00.2) is held by claim ns/claim-u0")
		r.unprepare("u0")
		devices, err := agent.Prepare(t.Context(), claim)
		must(t, err)
		if len(devices) != 2 || devices[0].DeviceName != vf3 || devices[1].DeviceName != vf0 || slices.Equal(devices[0].CDIDeviceIDs, devices[1].CDIDeviceIDs) {
			t.Errorf("got %+v", devices)
		}
		sb := r.runSandbox("s1", "pod")
		r.expectFiles("cdi", 2)
		must(t, r.createContainer(sb, "u1_r_"+vf3, "u1_r_"+vf0))
		r.expectCalls("", 0)
		r.endAndUnprepare(sb, "u1")
	})
}

// spec returns the CDI spec of the only gate.
func (r *rig) spec() string {
	r.t.Helper()
	return difftest.Read(r.t, filepath.Join(r.options.CDIDir, r.files("cdi")[0]))
}
