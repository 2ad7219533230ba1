//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/test/difftest"
)

// TestDriverOffersCapturedDevices follows docs/dra/from-device-plugin.md with a driver that offers VFs and a NIC of a
// captured host. The node need not have these interfaces. Scheduler, kubelet, runtime and CNI plugins are real, except
// that a macvlan replaces sriov-cni.
func TestDriverOffersCapturedDevices(t *testing.T) {
	needsKit(t, "they run the driver as a process of the node")
	a := offerDevices(t)
	play(t, a, a.explain, []scenario[*agent]{
		{"Today", today},
		{"3", byLimits},
		{"3WithMultus4.2", limitsWithOlderMultus},
		{"4", byClaims},
		{"5WithMultus4.2", olderMultus},
		{"5", forNewerMultus},
	})
}

// pagesPF is the page's PF. It has four VFs, and one of them is on vfio-pci.
const pagesPF = "ens1f0np0"

// offerDevices starts a driver with the page's rules.
func offerDevices(t *testing.T) *agent {
	t.Helper()
	dir := newDir(t)
	rules, host := filepath.Join(dir, "devices.yaml"), filepath.Join(dir, "host.txtar")
	text := replaced(t, "the page's rules", step(t, "devices.yaml"), [2]string{"ifNames: [eth0]", "ifNames: [" + cluster.master + "]"})
	difftest.Write(t, rules, text, 0o600)
	difftest.Write(t, host, hostText(t), 0o600)
	program(t, "sriov", strings.ReplaceAll(sriovStandIn, "MASTER", cluster.master))
	return startProcess(t, "--devices="+rules, "--capture="+host)
}

// hostText returns a captured host with the names of the page and the node. Its first PF has a carrier.
func hostText(t *testing.T) string {
	t.Helper()
	const noLink, link = `"flags":["NO-CARRIER","BROADCAST","MULTICAST","UP"],"mtu":1500,"operstate":"DOWN"`,
		`"flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,"operstate":"UP"`
	return replaced(t, "the captured host", content(t, "testdata/hosts/igb-sriov.txtar"),
		[2]string{`"eth0"`, `"` + pagesPF + `"`}, [2]string{"/net/eth0", "/net/" + pagesPF},
		[2]string{`"eth1"`, `"` + cluster.master + `"`}, [2]string{"/net/eth1", "/net/" + cluster.master},
		[2]string{noLink, link},
		[2]string{"\n-- netlink/ip-link.json --", "\n-- netlink/uplinks.json --\n[\"" + cluster.master + "\"]\n-- netlink/ip-link.json --"})
}

// replaced applies changes to a text. Each change must match.
func replaced(t *testing.T, what, text string, changes ...[2]string) string {
	t.Helper()
	for _, change := range changes {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("%s lacks %q", what, change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	return text
}

// devices waits until the node's offered devices pass a check.
func devices(t *testing.T, check func(map[string]resourceapi.Device) error) {
	t.Helper()
	node := onlyNode(t).Name
	eventually(t, 3*time.Minute, func() error {
		list, err := cluster.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + driver + ",spec.nodeName=" + node})
		if err != nil {
			return err
		}
		all := map[string]resourceapi.Device{}
		for _, slice := range list.Items {
			for _, d := range slice.Spec.Devices {
				all[d.Name] = d
			}
		}
		return check(all)
	})
}

// isOffered waits until the node offers all of these devices, or none of them.
func isOffered(t *testing.T, want bool, names ...string) {
	t.Helper()
	devices(t, func(have map[string]resourceapi.Device) (err error) {
		if len(have) == 0 {
			return errors.New("the node offers nothing")
		}
		for _, name := range names {
			if _, offered := have[name]; offered != want {
				err = errors.Join(err, fmt.Errorf("%s is offered: %v", name, offered))
			}
		}
		return err
	})
}

// classWhere creates a DeviceClass for our devices that match an expression, until the end of the test. It returns the
// name.
func (s *space) classWhere(expression string, config ...resourceapi.DeviceConfiguration) string {
	s.Helper()
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{GenerateName: s.name + "-"}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "device.driver == '" + driver + "' && " + expression}}}
	for _, c := range config {
		class.Spec.Config = append(class.Spec.Config, resourceapi.DeviceClassConfiguration{DeviceConfiguration: c})
	}
	class, err := cluster.client.ResourceV1().DeviceClasses().Create(s.ctx, class, metav1.CreateOptions{})
	must(s.T, err)
	s.Cleanup(func() {
		_ = cluster.client.ResourceV1().DeviceClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{})
	})
	return class.Name
}

// ours returns a condition on a string attribute of ours.
func ours(name, value string) string {
	return fmt.Sprintf(`device.attributes["devinfo-cni.io"].?%s.orValue("") == %q`, name, value)
}

// allocation waits for the allocation of a request, and returns it.
func (s *space) allocation(pod, request string) resourceapi.DeviceRequestAllocationResult {
	s.Helper()
	var found resourceapi.DeviceRequestAllocationResult
	eventually(s.T, 3*time.Minute, func() error {
		for _, claim := range s.claims(pod) {
			if claim.Status.Allocation == nil {
				continue
			}
			for _, r := range claim.Status.Allocation.Devices.Results {
				if r.Request == request {
					found = r
					return nil
				}
			}
		}
		return fmt.Errorf("request %s of pod %s is not allocated", request, pod)
	})
	return found
}

// waits checks that a pod is not scheduled, because no device can be allocated.
func (s *space) waits(pod string) {
	s.Helper()
	s.event(pod, "FailedScheduling", "cannot allocate all claims")
	s.notRunning(pod)
}

// vfOf returns the PCI address of the only device in a pod's metadata.
func (s *space) vfOf(pod string) string {
	s.Helper()
	for _, told := range s.running(pod).Claims {
		for _, r := range told.Requests {
			for _, d := range r.Devices {
				if id := d.Attributes["resource.kubernetes.io/pciBusID"].StringValue; d.Driver == driver && id != nil {
					return *id
				}
			}
		}
	}
	s.Fatalf("pod %s has not been told of a function", pod)
	return ""
}
