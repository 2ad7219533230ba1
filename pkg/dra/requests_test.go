package dra_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An asked is one request of a claim, and what the scheduler has allocated to it.
type asked struct {
	request string // "request/subrequest" where a list of alternatives was given
	device  string
	ifName  string
	plugin  string
	count   int64
}

// claimFor is a claim with these requests; their configurations are a class'.
func claimFor(uid types.UID, all ...asked) *resourceapi.ResourceClaim {
	claim := ownClaim(uid, "", "")
	claim.Spec.Devices.Requests = nil
	allocation := &claim.Status.Allocation.Devices
	allocation.Results = nil
	for _, a := range all {
		name, sub, listed := strings.Cut(a.request, "/")
		request := resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "c", Count: a.count}}
		if listed {
			request.Exactly, request.FirstAvailable = nil, []resourceapi.DeviceSubRequest{{Name: "other", DeviceClassName: "d"}, {Name: sub, DeviceClassName: "c", Count: a.count}}
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, request)
		result := resourceapi.DeviceRequestAllocationResult{Request: a.request, Driver: driverName, Pool: "node1", Device: a.device}
		if a.device == pf {
			share := types.UID("share-" + a.request)
			result.ShareID = &share
		}
		allocation.Results = append(allocation.Results, result)
		config := ownClaim(uid, a.device, network(`{"type":"`+a.plugin+`"}`)).Status.Allocation.Devices.Config[0]
		config.Requests = []string{a.request}
		config.Opaque.Parameters.Raw = []byte(strings.ReplaceAll(string(config.Opaque.Parameters.Raw), "net1", a.ifName))
		allocation.Config = append(allocation.Config, config)
	}
	return claim
}

// What a claim can ask of the scheduler is attached as allocated, or refused with a reason.
func TestWhateverTheSchedulerAllocatesIsAttachedOrRefused(t *testing.T) {
	apart, alike := resourceapi.FullyQualifiedName("devinfo-cni.io/pfName"), resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot")
	for name, test := range map[string]struct {
		claim *resourceapi.ResourceClaim
		want  []string // on record: request, and the device in the configuration
		why   string   // it is refused
	}{
		"firstAvailable, the VF":        {claimFor("u1", asked{"r/vf", vf0, "net1", "sriov", 0}), []string{`r/vf "deviceID":"0000:03:00.2"`}, ""},
		"firstAvailable, else a master": {claimFor("u1", asked{"r/lan", pf, "net1", "macvlan", 0}), []string{`r/lan "master":"p0"`}, ""},
		"matchAttribute": {constrained(&resourceapi.DeviceConstraint{Requests: []string{"a", "b"}, MatchAttribute: &alike},
			asked{"a", vf0, "net1", "sriov", 0}, asked{"b", vf2, "net2", "sriov", 1}), []string{`a "deviceID":"0000:03:00.2"`, `b "deviceID":"0000:03:00.4"`}, ""},
		"distinctAttribute": {constrained(&resourceapi.DeviceConstraint{Requests: []string{"a", "b"}, DistinctAttribute: &apart},
			asked{"a", pf, "net1", "macvlan", 0}, asked{"b", vf2, "net2", "sriov", 0}), []string{`a "master":"p0"`, `b "deviceID":"0000:03:00.4"`}, ""},
		"an extended resource":        {ofScheduler(claimFor("u1", asked{"container-0-request-0", vf0, "net1", "sriov", 1})), []string{`container-0-request-0 "deviceID":"0000:03:00.2"`}, ""},
		"two of an extended resource": {ofScheduler(claimFor("u1", asked{"container-0-request-0", vf0, "net1", "sriov", 2})), nil, "may have several devices"},
		"two alternatives at once":    {claimFor("u1", asked{"r/vf", vf0, "net1", "sriov", 2}), nil, "may have several devices"},
		"two of one interface name":   {claimFor("u1", asked{"a", vf0, "net1", "sriov", 0}, asked{"b", vf2, "net1", "sriov", 0}), nil, "net1"},
	} {
		t.Run(name, func(t *testing.T) {
			timeless(t, func(t *testing.T, r *rig, p *plugins) {
				r.options.Inventory = newNode(t, "mlx5-switchdev").inventory()
				agent := r.start()
				_, err := agent.Prepare(t.Context(), test.claim)
				if test.why != "" {
					if err == nil || !strings.Contains(err.Error(), test.why) {
						t.Errorf("got %v", err)
					}
					must(t, r.runPod(r.sandbox("s1", "pod")))
					if n := p.calls(""); n > 0 {
						t.Errorf("%q", p.told)
					}
					return
				}
				must(t, err)
				must(t, r.runPod(r.sandbox("s1", "pod")))
				if n := p.calls("ADD"); n != len(test.want) {
					t.Errorf("%q", p.told)
				}
				record := r.record("u1")
				for n, want := range test.want {
					request, device, _ := strings.Cut(want, " ")
					if at := record.Attachments[n]; at.Request != request || !strings.Contains(string(at.List), device) {
						t.Errorf("got %s, %s, want %s", at.Request, at.List, want)
					}
				}
				if specs := r.files("cdi"); len(specs) != len(test.want) {
					t.Errorf("gates: %q", specs)
				}
			})
		})
	}
}

func constrained(c *resourceapi.DeviceConstraint, all ...asked) *resourceapi.ResourceClaim {
	claim := claimFor("u1", all...)
	claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{*c}
	return claim
}

// ofScheduler makes a claim one that the scheduler has made for the extended resources of
// a pod: it is owned by the pod, and has no template.
func ofScheduler(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	yes := true
	claim.Name = "pod-extended-resources-x"
	claim.Annotations = map[string]string{"resource.kubernetes.io/extended-resource-claim": "true"}
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "uid-pod", Controller: &yes}}
	return claim
}

// Claims of one pod, each without a network, do not get into each other's way.
func TestSeveralDevicesWithoutANetworkGoToOnePod(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		n := newNode(t, "mlx5-switchdev")
		n.rules = strings.Replace(ownRules, "vfIndex == 3", "vfIndex in [0, 3]", 1)
		r.options.Inventory = n.inventory()
		r.start()
		r.prepare(ownClaim("u1", vf0, ""), ownClaim("u2", vf3, ""))
		must(t, r.runPod(r.sandbox("s1", "pod")))
		if n := p.calls(""); n > 0 || len(r.files("cdi")) != 2 {
			t.Errorf("%q, gates %q", p.told, r.files("cdi"))
		}
	})
}
