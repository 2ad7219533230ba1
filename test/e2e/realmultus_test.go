//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// The resources of the device plugin: VFs of the first PF.
const (
	netVF     = "example.com/vf"      // 0000:01:10.2, on igbvf
	dpdkVF    = "example.com/dpdk"    // 0000:01:10.6, on vfio-pci
	claimedVF = "example.com/claimed" // 0000:01:10.0, of which the driver knows too
)

const secondVF, vfioVF = "0000:01:10.2", "0000:01:10.6"

// multusWithVFs has Multus and the device plugin on the node for the time of the test.
func multusWithVFs(t *testing.T) {
	t.Helper()
	withMultus(t)
	file := func(vf string) string { return string(pciText(vf, bluePF)) }
	devicePlugin(t, pool{netVF, []string{secondVF}, file(secondVF)}, pool{dpdkVF, []string{vfioVF}, file(vfioVF)}, pool{claimedVF, []string{blueVF}, file(blueVF)})
}

// sriovThenDevinfo is a network of a VF that Multus names.
func (s *space) sriovThenDevinfo(name, resource, subnet string) {
	s.Helper()
	plugins := []map[string]any{{"type": "sriov"}, {"type": "devinfo", "capabilities": capability}}
	network := s.network(name, plugins...)
	if subnet != "" {
		network = s.on(subnet, plugins...)
	}
	s.nad(name, resource, network)
}

// devicePluginsVFs has a pod with a VF as an interface, and one on vfio-pci.
func devicePluginsVFs(t *testing.T, r *realNode) {
	s := begin(t)
	s.sriovThenDevinfo("net", netVF, "10.12.10.0/24")
	s.sriovThenDevinfo("dpdk", dpdkVF, "")
	s.create(withNetworks("a", []string{netVF, dpdkVF}, "net", "dpdk"))
	v := s.in("a", "net1", "10.12.10.")
	s.tells(v, "net1", pciText(secondVF, bluePF))
	s.tells(v, "net2", pciText(vfioVF, bluePF))
	group := onNode(t, "readlink", "/sys/bus/pci/devices/"+vfioVF+"/iommu_group")
	s.sees(v, "/dev/vfio/"+group[strings.LastIndex(group, "/")+1:], "/dev/vfio/vfio")
	for _, variable := range []string{"DEVINFO_NET1", "DEVINFO_NET2"} {
		if v.Environment[variable] == "" {
			t.Errorf("the container has no %s: %v", variable, v.Environment)
		}
	}
	s.delete("a")
	r.asAtBoot(t, false)
}

// contendedVF is a VF that a claim and a pod of Multus want, each of them when the other has it.
func contendedVF(t *testing.T, r *realNode) {
	s := begin(t)
	s.nad("vf", claimedVF, s.network("multus", map[string]any{
		"type": "devinfo", "capabilities": capability, "delegates": []map[string]any{
			{"type": "sriov", "ipam": map[string]any{"type": "host-local", "subnet": "10.12.11.0/24"}},
		},
	}))
	template := s.template(requests(request("vf", s.classWhere(exactly(blueVF), opaque("net1", s.on("10.12.12.0/24", map[string]any{"type": "sriov"}))))))
	s.pod("claims", template)
	s.attached("claims", "net0", "vf", "net1", "10.12.12.")
	s.create(withNetworks("asks", []string{claimedVF}, "vf"))
	s.event("asks", "device "+blueVF+": is held by claim "+s.name+"/"+s.claims("claims")["net0"].Name, "the kubelet tries again until the claim is given back")
	s.notRunning("asks")
	s.delete("claims")
	s.in("asks", "net1", "10.12.11.")
	isOffered(t, false, "pci-0000-01-10-0")
	s.pod("late", template)
	s.waits("late")
	s.delete("asks")
	isOffered(t, true, "pci-0000-01-10-0")
	s.attached("late", "net0", "vf", "net1", "10.12.12.")
	s.delete("late")
	r.asAtBoot(t, false)
}

// healthy has doctor find nothing.
func (r *realNode) healthy(t *testing.T) {
	t.Helper()
	var out string
	eventually(t, limit, func() (err error) {
		if out, err = tryKubectl(t, "doctor", onlyNode(t).Name); err != nil {
			err = fmt.Errorf("kubectl devinfo doctor: %w\n%s", err, out)
		}
		return err
	})
	t.Logf("$ kubectl devinfo doctor %s\n%s", onlyNode(t).Name, out)
}
