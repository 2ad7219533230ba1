package apiserver_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

const (
	one   types.UID = "11111111-1111-4111-8111-111111111111"
	two   types.UID = "22222222-2222-4222-8222-222222222222"
	three types.UID = "33333333-3333-4333-8333-333333333333"
)

// since has the form that the API server returns: seconds, in local time.
var since = metav1.NewTime(time.Unix(1770000000, 0))

const result = `{"cniVersion":"1.0.0","interfaces":[{"mac":"b2:af:6a:f9:12:3b","name":"net1","sandbox":"/var/run/netns/a"}],"ips":[{"address":"10.10.1.2/24","interface":0}]}`

// attached returns the status of the driver's device after an ADD with this result.
func attached(t *testing.T, id types.UID) resourceapi.AllocatedDeviceStatus {
	t.Helper()
	network, warnings, err := metadata.NetworkData(json.RawMessage(result), "net1", "/var/run/netns/a")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return deviceOf(id, result, network, metav1.Condition{Status: metav1.ConditionTrue, Reason: "NetworkInterfaceReady"})
}

// failed returns the status of the driver's device after an ADD that failed.
func failed(id types.UID, err string) resourceapi.AllocatedDeviceStatus {
	return deviceOf(id, "", nil, metav1.Condition{Status: metav1.ConditionFalse, Reason: "NetworkInterfaceNotReady", Message: metadata.Message(err)})
}

func deviceOf(id types.UID, result string, network *resourceapi.NetworkDeviceData, ready metav1.Condition) resourceapi.AllocatedDeviceStatus {
	ready.Type, ready.LastTransitionTime = "Ready", since
	d := resourceapi.AllocatedDeviceStatus{Driver: driver, Pool: node, Device: "cni", NetworkData: network, Conditions: []metav1.Condition{ready}}
	d.Data, _ = metadata.Data(json.RawMessage(result), view.Device{})
	if id != "" {
		d.ShareID = (*string)(&id)
	}
	return d
}

func report(c *resourceapi.ResourceClaim, devices ...resourceapi.AllocatedDeviceStatus) status.Report {
	return status.Report{Driver: driver, Namespace: c.Namespace, Name: c.Name, UID: c.UID, Devices: devices}
}

func apply(t *testing.T, client kubernetes.Interface, r status.Report) {
	t.Helper()
	must(t, status.Apply(t.Context(), client, r))
}

// A second identical report changes nothing.
func TestFailureClearsData(t *testing.T) {
	p := server(t)
	c := p.claim(t, "failure", ours("net", one))
	agent := p.agent(t)
	apply(t, agent, report(c, attached(t, one)))
	before := p.get(t, c).ResourceVersion
	apply(t, agent, report(c, attached(t, one)))
	if now := p.get(t, c).ResourceVersion; now != before {
		t.Errorf("after a second identical report it is version %s, and was %s", now, before)
	}
	failed := failed(one, "plugin macvlan: no such master: eth9"+strings.Repeat("\u00e9", 1<<15))
	apply(t, agent, report(c, failed))
	difftest.Equal(t, p.devices(t, c), []resourceapi.AllocatedDeviceStatus{failed})
	apply(t, agent, report(c, attached(t, one)))
	difftest.Equal(t, p.devices(t, c), []resourceapi.AllocatedDeviceStatus{attached(t, one)})
}

// A user may have edited the status by hand, and then owns these fields.
func TestReportOverwritesManualEdits(t *testing.T) {
	p := server(t)
	c := p.claim(t, "force", ours("net", one))
	theirs := report(c, failed(one, "by hand"))
	theirs.Driver = "kubectl"
	apply(t, p.Client, theirs)
	apply(t, p.agent(t), report(c, attached(t, one)))
	difftest.Equal(t, p.devices(t, c), []resourceapi.AllocatedDeviceStatus{attached(t, one)})
}

func TestReportReplacesOnlyDevicesOfItsDriver(t *testing.T) {
	p := server(t)
	gpu := share{"gpu", "gpu.example.com", "gpu-0", ""}
	c := p.claim(t, "whole", ours("a", one), ours("b", two), gpu)
	theirs := resourceapi.AllocatedDeviceStatus{Driver: gpu.driver, Pool: node, Device: gpu.device}
	apply(t, p.Client, status.Report{Driver: gpu.driver, Namespace: c.Namespace, Name: c.Name, UID: c.UID, Devices: []resourceapi.AllocatedDeviceStatus{theirs}})
	agent := p.agent(t)
	for _, list := range [][]resourceapi.AllocatedDeviceStatus{
		{attached(t, one), attached(t, two)}, {failed(two, "gone"), attached(t, one)}, {attached(t, two)}, nil,
	} {
		apply(t, agent, report(c, list...))
		now := p.devices(t, c)
		if n := slices.IndexFunc(now, func(d resourceapi.AllocatedDeviceStatus) bool { return d.Driver == gpu.driver }); n < 0 {
			t.Errorf("the other driver's device is gone: %v", now)
		} else {
			now = slices.Delete(now, n, n+1)
		}
		byShare := func(a, b resourceapi.AllocatedDeviceStatus) int { return strings.Compare(*a.ShareID, *b.ShareID) }
		slices.SortFunc(now, byShare)
		slices.SortFunc(list, byShare)
		if len(now)+len(list) > 0 {
			difftest.Equal(t, now, list)
		}
	}
}

func TestTwoClaimsShareOneDevice(t *testing.T) {
	p := server(t)
	a, b := p.claim(t, "share-a", ours("net", one)), p.claim(t, "share-b", ours("net", two))
	agent := p.agent(t)
	apply(t, agent, report(a, attached(t, one)))
	apply(t, agent, report(b, attached(t, two)))
	difftest.Equal(t, p.devices(t, a), []resourceapi.AllocatedDeviceStatus{attached(t, one)})
	difftest.Equal(t, p.devices(t, b), []resourceapi.AllocatedDeviceStatus{attached(t, two)})

	for _, wrong := range []types.UID{"", two, three} {
		err := status.Apply(t.Context(), agent, report(a, attached(t, wrong)))
		if err == nil || !strings.Contains(err.Error(), "must be an allocated device in the claim") {
			t.Errorf("share %q: %v", wrong, err)
		}
	}
	difftest.Equal(t, p.devices(t, a), []resourceapi.AllocatedDeviceStatus{attached(t, one)})
}

func TestMissingRightIsRetried(t *testing.T) {
	p := server(t)
	c := p.claim(t, "rights", ours("net", one))
	for _, test := range []struct {
		client kubernetes.Interface
		want   string
	}{
		{p.account(t, namespace, namespace, other), "cannot arbitrary-node:patch"},
		{p.account(t, namespace, namespace, ""), "cannot arbitrary-node:patch"},
		{p.without(t, "associated-node:patch", "resourceclaims/driver"), "cannot associated-node:patch"},
		{p.without(t, "patch", "resourceclaims/status"), `cannot patch resource "resourceclaims/status"`},
	} {
		err := status.Apply(t.Context(), test.client, report(c, attached(t, one)))
		if err == nil || !strings.Contains(err.Error(), test.want) || !status.Retry(err) {
			t.Errorf("%v\nwant %q, and another try", err, test.want)
		}
	}
	if got := p.devices(t, c); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestDeletedClaimIsNotReported(t *testing.T) {
	p := server(t)
	agent := p.agent(t)
	c := p.claim(t, "gone", ours("net", one))
	must(t, p.Client.ResourceV1().ResourceClaims(c.Namespace).Delete(t.Context(), c.Name, metav1.DeleteOptions{}))
	if err := status.Apply(t.Context(), agent, report(c, attached(t, one))); err == nil || status.Retry(err) {
		t.Errorf("deleted: %v", err)
	}
	replaced := p.claim(t, "gone", ours("net", one))
	if err := status.Apply(t.Context(), agent, report(c, attached(t, one))); status.Retry(err) || !errors.Is(err, status.ErrGone) {
		t.Errorf("replaced: %v", err)
	}
	if got := p.devices(t, replaced); got != nil {
		t.Errorf("the new claim has %+v", got)
	}
}

func TestDeallocatedClaimHasNoStatus(t *testing.T) {
	p := server(t)
	c := p.claim(t, "deallocated", ours("net", one))
	agent := p.agent(t)
	apply(t, agent, report(c, attached(t, one)))
	now := p.get(t, c)
	now.Status.Allocation, now.Status.ReservedFor = nil, nil
	_, err := p.Client.ResourceV1().ResourceClaims(c.Namespace).UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
	must(t, err)
	if got := p.devices(t, c); got != nil {
		t.Errorf("the API server keeps %+v", got)
	}
	if err := status.Apply(t.Context(), agent, report(c, attached(t, one))); err == nil {
		t.Error("the API server takes the status")
	}
}
