//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// bareTwo creates a pod that requests two devices by its limits, as for a device plugin. The class has no network,
// because Multus attaches the devices.
func bareTwo(t *testing.T, _ *nodeDevices) {
	before := len(calls(t))
	s := begin(t)
	const name = "e2e.example.com/blue"
	s.extendedClass(name, ours("physicalNetwork", "blue"))
	p := podWith("a")
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("2")}
	s.create(p)
	v := s.running("a")
	if len(v.Interfaces) != 2 { // lo, eth0
		t.Errorf("interfaces: %+v", v.Interfaces)
	}
	var told []string
	for _, claim := range v.Claims {
		for _, r := range claim.Requests {
			for _, d := range r.Devices {
				told = append(told, *d.Attributes["resource.kubernetes.io/pciBusID"].StringValue)
			}
		}
	}
	if len(told) != 2 || told[0] == told[1] {
		t.Errorf("the pod has been told of %q", told)
	}
	if n := len(calls(t)); n != before {
		t.Errorf("sriov was called %d times", n-before)
	}
}

// givenAway allocates one VF to a pod through a device plugin, and locks another one like sriov-cni.
func givenAway(t *testing.T, _ *nodeDevices) {
	const resourceName, locks = "e2e.example.com/vf", "/var/lib/cni/sriov/pci/"
	const locked = "0000:01:10.2"
	devicePlugin(t, pool{resourceName, []string{firstVF}, ""})
	both := []string{"pci-0000-01-10-0", "pci-0000-01-10-2"}
	s := begin(t)
	holder := podWith("holder")
	holder.Spec.Containers[0].Resources.Limits = corev1.ResourceList{resourceName: resource.MustParse("1")}
	s.create(holder)
	s.running("holder")
	onNode(t, "mkdir", "-p", locks)
	t.Cleanup(func() { onNode(t, "rm", "-rf", "/var/lib/cni/sriov") })
	feedOnNode(t, "/proc/1/ns/net", "tee", locks+locked)
	look(t)
	isOffered(t, false, both...)
	s.pod("a", s.template(requests(request("vf", s.classWhere(exactly(firstVF), s.onVF("10.11.80.0/24"))))))
	s.waits("a")
	s.delete("holder")
	onNode(t, "rm", locks+locked)
	began := time.Now()
	look(t)
	isOffered(t, true, both...)
	took := time.Since(began).Round(time.Second)
	// The next poll may be a minute away, and the kubelet must report the device as free twice, ten seconds apart.
	if t.Logf("the freed devices are offered after %v", took); took > 30*time.Second*time.Duration(patience) {
		t.Error("this is too late")
	}
	s.attached("a", "net0", "vf", "net1", "10.11.80.")
}

// vhostUserPort is the example. Its class uses the device for software networks, although the node has free VFs.
func vhostUserPort(t *testing.T, _ *nodeDevices) {
	userspace(t)
	s := begin(t)
	s.apply(content(t, "deploy/cni-dra-driver/examples/vhost-user.yaml"))
	t.Cleanup(func() { shell(t, "kubectl delete deviceclass vhost-user") })
	v := s.running("demo-vhost-user")
	if got := s.allocation("demo-vhost-user", "port"); got.Device != "cni" {
		t.Errorf("the pod has device %s", got.Device)
	}
	told := v.device("net", "port")
	if told == nil {
		t.Fatalf("the container has been told %v", v.Claims)
	}
	if path := told.Attributes["vhost-user-path"].StringValue; path == nil || len(v.SocketDirs) != 1 || !strings.HasPrefix(*path, v.SocketDirs[0]+"/") {
		t.Errorf("socket directories %q, attributes %v", v.SocketDirs, told.Attributes)
	}
}
