//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// bothAgents runs cni-dra-driver beside devinfo-agent, and a pod with a network from each: what CDI
// mounts for the claim is below the directory that the agent mounts.
func bothAgents(t *testing.T, m *multus, _ *nodeAgent) {
	startProcess(t)
	s := begin(t)
	s.lan(m, "lan", "10.11.93.0/24")
	claimed := s.macvlan("10.11.94.0/24", map[string]any{"type": "devinfo", "capabilities": capability, "deviceInfo": m.declared()})
	pod := withNetworks("a", nil, "lan")
	with := podWith("a", s.template(requests(request("lan", s.class("net9", claimed)))))
	pod.Spec.ResourceClaims, pod.Spec.Containers[0].Resources = with.Spec.ResourceClaims, with.Spec.Containers[0].Resources
	other := *with.Spec.Containers[0].DeepCopy()
	other.Name, other.Resources.Claims = "unclaimed", nil
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, other)
	pod.Spec.InitContainers[0].Command = []string{"/pod-view", "-once"}
	s.create(pod)
	s.attached("a", "net0", "lan", "net9", "10.11.94.")
	view := s.running("a")
	s.has("container with the claim", view, files("net1", "net9"))
	s.tells(view, "net1", m.pci("1.1.0").Encode())
	s.tells(view, "net9", m.pci("1.1.0").Encode())
	without := s.said("a", "unclaimed")
	s.has("container without the claim", without, files("net1"))
	s.knows(without)
}

// contended is a VF that a claim and a pod of Multus want, each of them when the other has it. The
// node has none, so plugin and driver read the /sys of a captured host, one of whose VFs is on
// vfio-pci and needs no interface.
func contended(t *testing.T, m *multus, a *nodeAgent) {
	const vf = "0000:01:10.6"
	a.onCapturedHost(t, "igb-sriov")
	sriov(t)
	dir, err := os.MkdirTemp("", "e2e-contended-") // t.TempDir has the test's name, and is the node's too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rules := filepath.Join(dir, "devices.yaml")
	if err := os.WriteFile(rules, []byte("devices:\n- pciAddresses: ["+vf+"]\n  as: exclusive\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	driver := startProcess(t)
	driver.stop(t)
	driver.flags("--devices=" + rules)
	driver.start(t)
	s := begin(t)
	s.nad(m, "vf", "", map[string]any{"cniVersion": "1.0.0", "name": s.name + "-multus", "plugins": []map[string]any{{
		"type": "devinfo", "deviceInfoFile": "auto", "delegates": []map[string]any{
			{"type": "sriov", "deviceID": vf, "ipam": map[string]any{"type": "host-local", "subnet": "10.11.98.0/24"}},
		},
	}}})
	wanted := fmt.Sprintf(`device.attributes["resource.kubernetes.io"].?pciBusID.orValue("") == %q`, vf)
	template := s.template(requests(request("vf", s.classWhere(wanted, s.onVF("10.11.97.0/24")))))
	s.pod("claims", template)
	s.attached("claims", "net0", "vf", "net1", "10.11.97.")
	s.create(withNetworks("asks", nil, "vf"))
	s.event("asks", "device "+vf+": is held by claim "+s.name+"/"+s.claims("claims")["net0"].Name, "the kubelet tries again until the claim is given back")
	s.notRunning("asks")
	s.delete("claims")
	if v := s.running("asks"); v.interfaceIn("net1", "10.11.98.") == nil {
		t.Errorf("net1 has no address 10.11.98...: %+v", v.Interfaces)
	}
	offers := func(want bool) {
		t.Helper()
		devices(t, func(have map[string]resourceapi.Device) error {
			if _, offered := have["pci-0000-01-10-6"]; offered != want {
				return fmt.Errorf("the VF is offered: %v", offered)
			}
			return nil
		})
	}
	offers(false)
	s.pod("late", template)
	s.waits("late")
	s.delete("asks")
	soon(t, func() { offers(true) })
	s.attached("late", "net0", "vf", "net1", "10.11.97.")
}
