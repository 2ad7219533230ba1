package dra_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp/cmpopts"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

func TestPodIsAttachedAndDetachedOnce(t *testing.T) {
	r := newRig(t)
	agent := r.start()
	r.prepare(r.claimOf("b", "u2", "pod", netRequest{"x", "net3", ""}), r.claimOf("a", "u1", "pod", netRequest{"x", "net1", "info"}, netRequest{"y", "net2", ""}))
	if r.calls() != nil || r.files("cdi") != nil {
		t.Error("Prepare ran a plugin or opened a gate")
	}
	sb := r.runSandbox("s1", "pod")
	r.expectInterfaces("s1_net1", "s1_net2", "s1_net3")
	r.expectFiles("cdi", 3)
	others := &api.PodSandbox{Id: "s9", Uid: "other"} // its pod has no claim
	for _, sb := range []*api.PodSandbox{sb, sb, others} {
		must(t, agent.RunPodSandbox(t.Context(), sb))
	}
	for _, sb := range []*api.PodSandbox{sb, sb, others} {
		must(t, agent.StopPodSandbox(t.Context(), sb))
		must(t, agent.RemovePodSandbox(t.Context(), sb))
	}
	want := []string{"ADD s1 net1", "ADD s1 net2", "ADD s1 net3", "DEL s1 net1", "DEL s1 net2", "DEL s1 net3"}
	difftest.Equal(t, slices.Sorted(slices.Values(r.callNames())), want)
	for _, uid := range []string{"u1", "u2", "u1", "never"} {
		must(t, agent.Unprepare(t.Context(), uid))
	}
	r.expectNothing()
}

func TestDELRepeatsArgumentsOfADDBeforeNextADD(t *testing.T) {
	r := newRig(t)
	agent := r.start()
	sb := r.attachPod(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
	must(t, agent.RunPodSandbox(t.Context(), r.sandbox("s2", "pod")))
	must(t, agent.StopPodSandbox(t.Context(), sb)) // late, after the next sandbox was attached
	r.expectInterfaces("s2_net1")
	r.removeNetns(r.sandbox("s2", "pod"))
	must(t, agent.Unprepare(t.Context(), "u1"))
	args := func(sandbox string) string {
		return "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=" + sandbox + ";K8S_POD_UID=uid-pod;K8S_RESOURCE_CLAIM=a"
	}
	netns := filepath.Join(r.dir, "netns/")
	difftest.Equal(t, r.calls(), []call{
		{"ADD", "s1", "net1", netns + "/s1", args("s1"), false},
		{"DEL", "s1", "net1", netns + "/s1", args("s1"), true},
		{"ADD", "s2", "net1", netns + "/s2", args("s2"), false},
		{"DEL", "s2", "net1", "", args("s2"), true},
	})
}

func TestHostNetworkPodIsRejected(t *testing.T) {
	r := newRig(t)
	agent := r.start()
	r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
	sb := r.sandbox("s1", "pod")
	sb.Linux.Namespaces = sb.Linux.Namespaces[:1]
	err := agent.RunPodSandbox(t.Context(), sb)
	if want := "pod ns/pod: it is in the host's network namespace, and its claim of driver cni.dra.networking.x-k8s.io has a network; " +
		"remove spec.hostNetwork from the pod, or the network from the claim"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestFailingPluginFailsPodAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for behave, part := range map[string]string{
		"refuse":       "no address left",
		"die":          "exit status 7, without a CNI error",
		"garbage":      "no JSON",
		"flood":        "printed more than 10000000 bytes",
		"corrupt info": "fix the CNI plugin that wrote it",
	} {
		t.Run(behave, func(t *testing.T) {
			r := newRig(t)
			agent := r.start()
			stop := r.stop
			r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}, netRequest{"y", "net2", behave}, netRequest{"z", "net3", ""}))
			err := agent.RunPodSandbox(t.Context(), r.sandbox("s1", "pod"))
			says(t, err, part)
			want := []string{"ADD s1 net1", "ADD s1 net2", "ADD s1 net3", "DEL s1 net1", "DEL s1 net2", "DEL s1 net3"}
			difftest.Equal(t, slices.Sorted(slices.Values(r.callNames())), want)
			r.eventually("a status", func() bool { return len(r.lastReport().Devices) == 3 })
			for _, d := range r.lastReport().Devices {
				c := d.Conditions[0]
				if c.Type != "Ready" || c.Status != metav1.ConditionFalse || c.Reason != "NetworkInterfaceNotReady" || !strings.Contains(c.Message, part) {
					t.Errorf("got %+v", c)
				}
			}
			must(t, agent.Unprepare(t.Context(), "u1"))
			stop()
			r.expectNothing()
		})
	}
}

func TestStatusHasConditionAndNetworkData(t *testing.T) {
	r := newRig(t)
	agent := r.start()
	r.attachPod(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
	r.eventually("a status", func() bool { return len(r.lastReport().Devices) == 1 })
	share := "share-u1x"
	got := r.lastReport()
	got.Devices = slices.Clone(got.Devices) // the agent compares its own copy
	data := got.Devices[0].Data
	got.Devices[0].Data = nil
	difftest.Same(t, "report", got, status.Report{Driver: driverName, Namespace: "ns", Name: "a", UID: "u1", Devices: []resourceapi.AllocatedDeviceStatus{{
		Driver: driverName, Pool: "node1", Device: "cni", ShareID: &share,
		Conditions:  []metav1.Condition{{Type: "Ready", Status: "True", Reason: "NetworkInterfaceReady", Message: "CNI-DRA-Driver has configured the device."}},
		NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.0.0.2/24"}, HardwareAddress: "02:00:00:00:00:01"},
	}}}, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime"), cmpopts.IgnoreTypes(runtime.RawExtension{}))
	var result struct{ CNIVersion string }
	if data == nil || json.Unmarshal(data.Raw, &result) != nil || result.CNIVersion != "1.0.0" {
		t.Errorf("data: %v", data)
	}
	r.eventually("the status is not pending any more", func() bool { return agent.Census().PendingStatus == 0 })
}

func TestPrepareAgainReturnsNetworkMetadata(t *testing.T) {
	r := newRig(t)
	agent := r.start()
	claim := r.claimOf("a", "u1", "pod", netRequest{"x", "net1", "info"})
	share := "share-u1x"
	want := []kubeletplugin.Device{{Requests: []string{"x"}, PoolName: "node1", DeviceName: "cni", ShareID: (*types.UID)(&share),
		CDIDeviceIDs: []string{driverName + "/claim=u1_x"}}}
	got, err := agent.Prepare(t.Context(), claim)
	must(t, err)
	difftest.Equal(t, got, want)
	must(t, agent.RunPodSandbox(t.Context(), r.sandbox("s1", "pod")))
	want[0].Metadata = &kubeletplugin.DeviceMetadata{
		NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.0.0.2/24"}, HardwareAddress: "02:00:00:00:00:01"},
	}
	difftest.Equal(t, r.metadata, want)
	claim.Status.Allocation.Devices.Config = nil // an accepted claim stays accepted
	for range 2 {
		got, err := agent.Prepare(t.Context(), claim)
		must(t, err)
		difftest.Equal(t, got, want)
		agent = r.start()
	}
}

func TestInterfaceNameIsUniqueInPod(t *testing.T) {
	r := newRig(t)
	r.start()
	r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}), r.claimOf("a", "u2", "pod2", netRequest{"x", "net1", ""}))
	r.prepareFails(r.claimOf("b", "u3", "pod", netRequest{"x", "net1", ""}), `request "x": claim ns/a already uses ifName "net1"; give each request a different ifName, by parameters in the claim that apply to this request only`)
}
