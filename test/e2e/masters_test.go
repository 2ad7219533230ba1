//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// sharedCard is chosen by an attribute of its rule; its attachments are counted.
func sharedCard(t *testing.T, _ *nodeDevices) {
	s := begin(t)
	class := s.classWhere(ours("role", "lan"), opaque("net1", withoutMaster(s.macvlan("10.11.75.0/24"))))
	template := s.template(requests(request("lan", class)))
	var shares []string
	for _, pod := range []string{"a", "b"} {
		s.pod(pod, template)
		s.attached(pod, "net0", "lan", "net1", "10.11.75.")
		got := s.allocation(pod, "lan")
		if n := got.ConsumedCapacity["attachments"]; got.Device != "pci-0000-41-00-0" || got.ShareID == nil || n.Value() != 1 {
			t.Errorf("pod %s has %+v", pod, got)
			continue
		}
		shares = append(shares, string(*got.ShareID))
	}
	if len(shares) == 2 && shares[0] == shares[1] {
		t.Errorf("both pods have share %s", shares[0])
	}
	s.pod("c", template) // the rule says attachments: 2
	s.waits("c")
	s.delete("a")
	s.attached("c", "net0", "lan", "net1", "10.11.75.")
}

// vhostUserPort is the example: its class takes the device for software networks, though
// the node has free VFs.
func vhostUserPort(t *testing.T, _ *nodeDevices) {
	userspace(t)
	s := begin(t)
	s.apply(content(t, "deploy/cni-dra-driver/examples/vhost-user.yaml"))
	t.Cleanup(func() { shell(t, "kubectl delete deviceclass vhost-user") })
	v := s.running("demo-vhost-user")
	if got := s.allocation("demo-vhost-user", "port"); got.Device != "cni" {
		t.Errorf("the pod has device %s", got.Device)
	}
	var attributes map[string]resourceapi.DeviceAttribute
	if told := v.Claims["resourceclaimtemplates/net/port"]; told != nil && len(told.Requests) == 1 && len(told.Requests[0].Devices) == 1 {
		attributes = map[string]resourceapi.DeviceAttribute{}
		for name, a := range told.Requests[0].Devices[0].Attributes {
			attributes[string(name)] = a
		}
	}
	if path := attributes["vhost-user-path"].StringValue; path == nil || len(v.SocketDirs) != 1 || !strings.HasPrefix(*path, v.SocketDirs[0]+"/") {
		t.Errorf("socket directories %q, attributes %s", v.SocketDirs, fmt.Sprint(attributes))
	}
}
