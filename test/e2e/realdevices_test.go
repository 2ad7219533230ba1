//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/test/difftest"
)

// TestRealDevices runs both agents, installed with Helm, on the machine of test/vm. Its README.md lists the
// devices.
func TestRealDevices(t *testing.T) {
	needsKit(t, "that of test/vm/cluster")
	if _, err := tryOnNode("", "test", "-e", "/sys/bus/pci/devices/"+blueVF); err != nil {
		t.Skip("the node has no VFs of igb: make test-e2e E2E=qemu")
	}
	r := &realNode{boot: functions(t)}
	program(t, "sriov", content(t, "bin/cluster/sriov"))
	r.nodeAgent = installChart(t, map[string]any{
		"agent": map[string]any{"doctor": true, "settings": map[string]any{"default.json": map[string]any{
			"injectDeviceNodes": true, "allowedDevices": []string{bluePF, redPF, virtioPF},
		}}},
		"dra": map[string]any{"enabled": true, "devices": realRules()},
	})
	ready(t, agentNamespace, system)
	play(t, r, r.explainBoth, []scenario[*realNode]{
		{"NodeOffersItsDevices", offersReal},
		{"VFIsRestoredAfterPod", vfByClaim},
		{"VFOfExampleIsAttached", vfByExample},
		{"VDPADeviceOnVhostIsAttached", vdpaByClaim},
		{"VFsOnVFIOAreAttached", vfioByClaim},
		{"UnpluggedVFIsReported", vfGoes},
		{"TwentyPodsSurviveKilledPrograms", everythingKilled},
	})
	// Multus waits ten seconds for a new pod in its cache. On an emulated machine that is too short for many pods at
	// once.
	multusWithVFs(t)
	play(t, r, r.explainBoth, []scenario[*realNode]{
		{"VFsOfDevicePluginAreAttached", devicePluginsVFs},
		{"VFIsHeldByClaimOrMultus", contendedVF},
		{"ResetNodeRecoversPods", machineReset},
	})
}

// realNode is the machine with both agents.
type realNode struct {
	*nodeAgent
	boot string // output of functions at the beginning
}

// The PFs of the machine. Three VFs of the first one are on igbvf, and the fourth is on vfio-pci.
const (
	bluePF, blueVF = "0000:01:00.0", "0000:01:10.0"
	redPF, redVF   = "0000:41:00.0", "0000:41:10.0"
	virtioPF       = "0000:02:00.0"
)

func realRules() []map[string]any {
	return []map[string]any{
		{"pfNames": []string{"enp1s0"}, "sharing": "exclusive", "attributes": map[string]any{"physicalNetwork": "blue"}},
		{"pfNames": []string{"enp65s0"}, "sharing": "exclusive", "attributes": map[string]any{"physicalNetwork": "red"}},
		{"select": `device.attributes["devinfo-cni.io"].?vdpaDriver.orValue("") == "vhost"`, "sharing": "exclusive", "resourceName": "example.com/vdpa"},
	}
}

// explainBoth logs the last lines of both agents' logs.
func (r *realNode) explainBoth(t *testing.T) {
	for _, name := range []string{agentName, system} {
		t.Logf("%s:\n%s", name, logOf(t, agentNamespace, name, 30))
	}
}

// functions returns the driver, the interface and the PF's settings of each VF as text.
func functions(t *testing.T) string {
	t.Helper()
	return feedOnNode(t, `
for vf in /sys/bus/pci/devices/*/physfn; do
  vf=${vf%/physfn}
  echo "${vf##*/}: driver $(basename "$(readlink "$vf/driver")"), override $(cat "$vf/driver_override")"
  for net in "$vf"/net/* "$vf"/virtio*/net/*; do
    [ ! -e "$net" ] || echo "  ${net##*/}: address $(cat "$net/address"), mtu $(cat "$net/mtu")"
  done
done
for pf in enp1s0 enp65s0; do
  echo "$pf:"
  ip link show dev "$pf" | grep '^ *vf '
done
`, "sh")
}

// macs matches the MACs of VFs. VFs that are created again get other ones.
var macs = regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`)

// asAtBoot waits until no state of pods is left and the VFs are as at the beginning. If remade is true their MACs may
// differ.
func (r *realNode) asAtBoot(t *testing.T, remade bool) {
	t.Helper()
	clean(t)
	eventually(t, limit, func() error {
		want, is := r.boot, functions(t)
		if remade {
			want, is = macs.ReplaceAllString(want, "MAC"), macs.ReplaceAllString(is, "MAC")
		}
		if diff := cmp.Diff(want, is); diff != "" {
			return fmt.Errorf("functions (- is at boot):\n%s", diff)
		}
		return nil
	})
	if remade {
		r.boot = functions(t)
	}
}

// vfOn returns an expression that selects the VFs of a network on igbvf.
func vfOn(network string) string {
	return ours("physicalNetwork", network) + ` && ` + ours("kind", "vf") + ` && ` + ours("driver", "igbvf")
}

// exactly returns an expression that selects one function.
func exactly(address string) string {
	return fmt.Sprintf(`device.attributes["resource.kubernetes.io"].?pciBusID.orValue("") == %q && %s`, address, `!("vdpaDriver" in device.attributes["devinfo-cni.io"])`)
}

// netns returns the path of a pod's network namespace in the status of its claim.
func (s *space) netns(pod, request string) (path string) {
	s.Helper()
	eventually(s.T, limit, func() error {
		for _, claim := range s.claims(pod) {
			d, err := deviceOf(claim, request)
			if err != nil || d.Data == nil {
				continue
			}
			var result struct{ Interfaces []struct{ Sandbox string } }
			if err := json.Unmarshal(d.Data.Raw, &result); err == nil && len(result.Interfaces) > 0 {
				path = result.Interfaces[0].Sandbox
				return nil
			}
		}
		return fmt.Errorf("no claim of %s says where request %s is", pod, request)
	})
	return path
}

func offersReal(t *testing.T, _ *realNode) {
	want := []string{"cni", "pci-0000-01-10-0", "pci-0000-01-10-2", "pci-0000-01-10-4", "pci-0000-01-10-6",
		"pci-0000-41-10-0", "pci-0000-41-10-2", "vdpa-vpvdpa0"}
	devices(t, func(have map[string]resourceapi.Device) error {
		var names []string
		for name, d := range have {
			names = append(names, name)
			if len(d.Taints) > 0 {
				return fmt.Errorf("%s has the taints %+v", name, d.Taints)
			}
		}
		slices.Sort(names)
		if diff := cmp.Diff(want, names); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// frames returns the number of frames that a PF has received.
func frames(t *testing.T, pf string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(onNode(t, "cat", "/sys/class/net/"+pf+"/statistics/rx_packets"), &n)
	must(t, err)
	return n
}

// sends makes a pod send ARP requests, and checks that its PF receives them. The card's internal switch forwards
// broadcast frames to the PF.
func (s *space) sends(pod, request, pf string) {
	s.Helper()
	before := frames(s.T, pf)
	eventually(s.T, limit, func() error {
		_, _ = tryOnNode("", "nsenter", "--net="+s.netns(pod, request), "arping", "-c", "5", "-w", "5", "-I", "net1", "10.12.255.254")
		if now := frames(s.T, pf); now < before+5 {
			return fmt.Errorf("%s has received %d frames, and before %d", pf, now, before)
		}
		return nil
	})
}

// spoils changes the settings of a VF that a pod can change.
func (s *space) spoils(pod, request string) {
	s.Helper()
	for _, change := range []string{"down", "address 02:00:00:00:00:66", "mtu 1400", "up"} {
		onNode(s.T, strings.Fields("nsenter --net="+s.netns(pod, request)+" ip link set net1 "+change)...)
	}
}

// pciText returns the device-info file of a VF.
func pciText(vf, pf string) []byte {
	return []byte(fmt.Sprintf(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": %q, "pf-pci-address": %q}}`, vf, pf))
}

func vfByClaim(t *testing.T, r *realNode) {
	s := begin(t)
	s.pod("a", s.template(requests(request("vf", s.classWhere(vfOn("blue"), opaque("net1", s.on("10.12.1.0/24", map[string]any{"type": "host-device"})))))))
	s.attached("a", "net0", "vf", "net1", "10.12.1.")
	s.tells(s.running("a"), "net1", pciText(s.vfOf("a"), bluePF))
	s.sends("a", "vf", "enp1s0")
	s.spoils("a", "vf")
	s.delete("a")
	r.asAtBoot(t, false)
}

// vfByExample runs the example of docs/dra/README.md.
func vfByExample(t *testing.T, r *realNode) {
	s := begin(t, content(t, "deploy/examples/vf-claim.yaml"))
	s.attached("vf", "blue", "vf", "net1", "10.57.1.")
	s.tells(s.running("vf"), "net1", pciText(s.vfOf("vf"), bluePF))
	s.delete("vf")
	r.asAtBoot(t, false)
}

// sees compares the paths of a container's device nodes.
func (s *space) sees(v *view, want ...string) {
	s.Helper()
	var paths []string
	for _, node := range v.Nodes {
		path, _, _ := strings.Cut(node, " ")
		paths = append(paths, path)
	}
	difftest.Same(s.T, "nodes of the container", paths, want)
}

func vdpaByClaim(t *testing.T, r *realNode) {
	s := begin(t)
	s.pod("a", s.template(requests(request("vdpa", s.classWhere(ours("vdpaDriver", "vhost")+` && device.attributes["devinfo-cni.io"].?pfName.orValue("") == "enp2s0"`)))))
	v := s.running("a")
	node := feedOnNode(t, "basename /sys/bus/vdpa/devices/vpvdpa0/vhost-vdpa-*", "sh")
	s.sees(v, "/dev/"+node)
	s.delete("a")
	r.asAtBoot(t, false)
}

// vfioByClaim binds a VF to vfio-pci for its pod, beside a VF that is always on vfio-pci.
func vfioByClaim(t *testing.T, r *realNode) {
	s := begin(t)
	for pod, vf := range map[string]string{"bound": redVF, "always": vfioVF} {
		parameters := map[string]any{
			"ifName": "net1", "driver": "vfio-pci", "config": s.network(pod, map[string]any{"type": "devinfo"}),
			"device": []any{map[string]any{"plugin": "devinfo", "key": "deviceID"}},
		}
		s.pod(pod, s.template(requests(request("vf", s.classWhere(exactly(vf), opaqueWith(parameters))))))
		v := s.running(pod)
		group := onNode(t, "readlink", "/sys/bus/pci/devices/"+vf+"/iommu_group")
		s.sees(v, "/dev/vfio/"+group[strings.LastIndex(group, "/")+1:], "/dev/vfio/vfio")
	}
	s.delete("bound")
	s.delete("always")
	r.asAtBoot(t, false)
}
