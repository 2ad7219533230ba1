//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// without is a captured host without what the parts name: an entry by its path, an interface
// by its line.
func without(text string, parts ...string) string {
	archive := txtar.Parse([]byte(text))
	names := func(line string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(line, part) })
	}
	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return names(f.Name + "/") })
	for n, f := range archive.Files {
		if f.Name != "netlink/ip-link.json" {
			continue
		}
		lines := slices.DeleteFunc(slices.Collect(strings.Lines(string(f.Data))), names)
		archive.Files[n].Data = []byte(strings.ReplaceAll(strings.Join(lines, ""), "},\n]", "}\n]"))
	}
	return string(txtar.Format(archive))
}

// onPF is what is published of the first PF and what is on it.
func onPF(t *testing.T) (devices []resourceapi.Device) {
	t.Helper()
	list, err := cluster.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + driver})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		for _, d := range s.Spec.Devices {
			if strings.HasPrefix(d.Name, "pci-0000-01-") {
				devices = append(devices, d)
			}
		}
	}
	return devices
}

// becomes gives the node another text, with another MTU of the bridge, and waits until the
// driver has published that.
func (n *nodeDevices) becomes(t *testing.T, text string) {
	t.Helper()
	const bridge, old = `"ifname":"` + pagesBridge + `","flags":["BROADCAST"],"mtu":`, "1500"
	if !strings.Contains(text, bridge+old) {
		t.Fatal("the captured host lacks the bridge")
	}
	n.mtu++
	n.write(t, n.host, strings.Replace(text, bridge+old, bridge+fmt.Sprint(n.mtu), 1))
	look(t)
	devices(t, func(have map[string]resourceapi.Device) error {
		if mtu := have["net-"+pagesBridge].Attributes["devinfo-cni.io/mtu"].IntValue; mtu == nil || *mtu != n.mtu {
			return fmt.Errorf("the bridge: %+v", have["net-"+pagesBridge])
		}
		return nil
	})
}

// ofFirstVF is a template for that VF alone.
func (s *space) ofFirstVF(subnet string) string {
	s.Helper()
	wanted := fmt.Sprintf(`device.attributes["resource.kubernetes.io"].?pciBusID.orValue("") == %q`, firstVF)
	return s.template(requests(request("vf", s.classWhere(wanted, s.onVF(subnet)))))
}

// heldVF: the interface of a VF goes into a pod, and comes back; the agent is killed
// meanwhile.
func heldVF(t *testing.T, n *nodeDevices) {
	s := begin(t)
	t.Cleanup(func() { n.write(t, n.host, n.text) })
	before := onPF(t)
	same := func(when, text string) {
		t.Helper()
		n.becomes(t, text)
		if diff := cmp.Diff(before, onPF(t)); diff != "" {
			t.Errorf("%s other devices are published (- is before):\n%s", when, diff)
		}
	}
	s.pod("a", s.ofFirstVF("10.11.81.0/24"))
	s.attached("a", "net0", "vf", "net1", "10.11.81.")
	inPod := without(n.text, "/net/eth2/", "/net/eth2 ", `"ifname":"eth2"`)
	same("with the VF in a pod", inPod)
	n.kill(t)
	same("after the agent was killed", inPod)
	same("with the VF back", n.text) // which DEL sees to before the claim is unprepared
	s.delete("a")
	same("after the pod", n.text)
}
