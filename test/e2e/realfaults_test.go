//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// remakes plugs the second card in again, and creates its VFs with their interface names.
func (r *realNode) remakes(t *testing.T) {
	t.Helper()
	feedOnNode(t, `set -eu
pf=/sys/bus/pci/devices/`+redPF+`
named() {
  net=
  while [ -z "$net" ]; do
    for path in /sys/bus/pci/devices/$1/net/*; do [ ! -e "$path" ] || net=${path##*/}; done
    sleep 0.1
  done
  [ "$net" = "$2" ] || ip link set "$net" name "$2"
}
[ -e $pf ] || echo 1 >/sys/bus/pci/rescan
named `+redPF+` enp65s0
ip link set enp65s0 up
[ "$(cat $pf/sriov_numvfs)" = 2 ] || echo 2 >$pf/sriov_numvfs
named 0000:41:10.0 enp65s0v0
named 0000:41:10.2 enp65s0v1
`, "sh")
}

// vfGoes unplugs the card while a pod has one of its VFs.
func vfGoes(t *testing.T, r *realNode) {
	t.Cleanup(func() { r.remakes(t) }) // runs after the pod's deletion, because a pod of a failed test has a VF
	s := begin(t)
	s.pod("a", s.template(requests(request("vf", s.classWhere(exactly(redVF), opaque("net1", s.on("10.12.20.0/24", map[string]any{"type": "sriov"})))))))
	s.attached("a", "net0", "vf", "net1", "10.12.20.")
	s.health("a", corev1.ResourceHealthStatusHealthy)
	onNode(t, "sh", "-c", "echo 1 >/sys/bus/pci/devices/"+redPF+"/remove")
	s.health("a", corev1.ResourceHealthStatusUnhealthy)
	devices(t, func(have map[string]resourceapi.Device) error {
		if d := have["pci-0000-41-10-0"]; len(d.Taints) != 1 || d.Taints[0].Key != "devinfo-cni.io/gone" {
			return fmt.Errorf("a VF that is gone has the taints %+v", d.Taints)
		}
		return nil
	})
	s.delete("a")
	isOffered(t, false, "pci-0000-41-10-0")
	r.remakes(t)
	r.asAtBoot(t, true)
	offersReal(t, r)
	r.healthy(t)
}

// health waits for the health of the device in the pod's status.
func (s *space) health(pod string, want corev1.ResourceHealthStatus) {
	s.Helper()
	eventually(s.T, limit, func() error {
		p, err := cluster.client.CoreV1().Pods(s.name).Get(s.ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.ContainerStatuses {
			for _, status := range c.AllocatedResourcesStatus {
				for _, d := range status.Resources {
					if d.Health == want {
						return nil
					}
				}
			}
		}
		return fmt.Errorf("the status of pod %s has no device that is %s: %+v", pod, want, p.Status.ContainerStatuses)
	})
}

// everythingKilled runs twenty pods with five VFs. A running pod is deleted, so that the next one gets its VF.
// Meanwhile kubelet, runtime and agents are killed.
func everythingKilled(t *testing.T, r *realNode) {
	const pods = 20
	s := begin(t)
	var templates []string
	for _, network := range []string{"blue", "red"} {
		templates = append(templates, s.template(requests(request("vf", s.classWhere(vfOn(network), opaque("net1", s.on("10.12.21.0/24", map[string]any{"type": "sriov", "vlan": 7})))))))
	}
	for n := range pods {
		s.pod(fmt.Sprint("pod-", n), templates[n*2/pods])
	}
	cluster.killed = true
	victims := []string{"kubelet", "containerd", "devinfo-agent", "cni-dra-driver"}
	ran := map[string]bool{}
	var killed []string
	last := time.Now()
	s.until(s.ctx, 10*time.Minute, func(left []corev1.Pod) error {
		for _, p := range left {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && !ran[p.Name] {
				ran[p.Name] = true
				if err := cluster.client.CoreV1().Pods(s.name).Delete(s.ctx, p.Name, metav1.DeleteOptions{}); err != nil {
					return err
				}
			}
		}
		if ready := len(ran)*len(victims)/pods >= len(killed)/2; len(left) > 0 && ready && time.Since(last) > time.Second {
			victim := victims[rand.IntN(len(victims))]
			if len(killed) < len(victims) {
				victim = victims[len(killed)] // each one is killed at least once
			}
			// An error means that it is not running again yet.
			if _, err := tryOnNode("", "sh", "-c", "kill -KILL $(pidof "+victim+")"); err == nil {
				killed = append(killed, victim)
			}
			last = time.Now()
		}
		if len(left) > 0 {
			return fmt.Errorf("%d of %d pods have run, %d are not gone", len(ran), pods, len(left))
		}
		return nil
	})
	t.Logf("%d pods have run; killed: %v", len(ran), killed)
	if len(ran) != pods {
		t.Errorf("%d pods of %d have run", len(ran), pods)
	}
	if len(killed) < len(victims) {
		t.Errorf("only %v were killed", killed)
	}
	ready(t, agentNamespace, system)
	ready(t, agentNamespace, agentName)
	r.asAtBoot(t, false)
	r.healthy(t)
}

// machineReset resets the node while it has a pod of a claim and a pod of Multus.
func machineReset(t *testing.T, r *realNode) {
	s := begin(t)
	s.sriovThenDevinfo("net", netVF, "10.12.22.0/24")
	s.create(withNetworks("multus", []string{netVF}, "net"))
	s.pod("claim", s.template(requests(request("vf", s.classWhere(exactly(blueVF), opaque("net1", s.on("10.12.23.0/24", map[string]any{"type": "sriov", "vlan": 7})))))))
	s.running("multus")
	s.attached("claim", "net0", "vf", "net1", "10.12.23.")
	boot := onlyNode(t).Status.NodeInfo.BootID
	cluster.killed = true
	onNode(t, "sync") // otherwise the files of Multus and its plugins may be empty after the reset
	shell(t, "$E2E_CLUSTER reset")
	eventually(t, 3*time.Minute, func() error {
		node, err := cluster.client.CoreV1().Nodes().Get(t.Context(), "vm", metav1.GetOptions{})
		if err == nil && node.Status.NodeInfo.BootID == boot {
			err = errors.New("the node has not booted again")
		}
		return err
	})
	ready(t, agentNamespace, system)
	ready(t, agentNamespace, agentName)
	s.restarted("claim")
	s.attached("claim", "net0", "vf", "net1", "10.12.23.")
	s.delete("claim")
	s.delete("multus")
	r.asAtBoot(t, true)
	r.healthy(t)
}

// The resources of the device plugin: VFs of the first PF.
const (
	netVF     = "example.com/vf"      // 0000:01:10.2, on igbvf
	dpdkVF    = "example.com/dpdk"    // 0000:01:10.6, on vfio-pci
	claimedVF = "example.com/claimed" // 0000:01:10.0, which the driver also offers
)

const secondVF, vfioVF = "0000:01:10.2", "0000:01:10.6"

// multusWithVFs runs Multus and the device plugin on the node until the end of the test.
func multusWithVFs(t *testing.T) {
	t.Helper()
	withMultus(t)
	file := func(vf string) string { return string(pciText(vf, bluePF)) }
	devicePlugin(t, pool{netVF, []string{secondVF}, file(secondVF)}, pool{dpdkVF, []string{vfioVF}, file(vfioVF)}, pool{claimedVF, []string{blueVF}, file(blueVF)})
}

// sriovThenDevinfo creates a network with a VF that Multus passes.
func (s *space) sriovThenDevinfo(name, resource, subnet string) {
	s.Helper()
	plugins := []map[string]any{{"type": "sriov"}, {"type": "devinfo", "capabilities": capability}}
	network := s.network(name, plugins...)
	if subnet != "" {
		network = s.on(subnet, plugins...)
	}
	s.nad(name, resource, network)
}

// devicePluginsVFs creates a pod with one VF as an interface and one VF on vfio-pci.
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

// contendedVF requests the same VF for a claim and for a pod of Multus, in both orders.
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
	s.event("asks", "device "+blueVF+": is held by claim "+s.name+"/"+s.claims("claims")["net0"].Name, "the kubelet retries until the claim is released")
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

// healthy checks that doctor reports no problem.
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
