package devices

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/state"
)

// healthLasts is how long the result of a survey is valid. Surveys are a minute apart.
const healthLasts = 3 * time.Minute

// examine finds the problems of the devices in a survey.
func (n *Node) examine(s survey, now time.Time) {
	attached := n.having(func(at *state.Attachment) bool { return at.Phase == state.Added })
	of := map[string]string{}
	for name := range s.published {
		c, here := s.decisions[name]
		carrier := s.carriers[name]
		switch at := attached[name]; {
		case !here:
			of[name] = "the node has lost it"
		case n.State(at) == Replaced:
			of[name] = "it was created again while the pod had it, for example by a reset of its PF or by a change of sriov_numvfs: delete the pod"
		case at != nil && at.NodeDevice.PCI != "" && c.Device.Driver == "":
			of[name] = "it has lost its driver"
		case s.withheld[name]:
			of[name] = "it is not restored yet after its last pod, or its last DEL failed"
		case carrier.down && now.Sub(carrier.since) >= n.Inventory.CarrierGrace:
			of[name] = fmt.Sprintf("it or its PF has had no carrier for more than %v", n.Inventory.CarrierGrace)
		default:
			of[name] = ""
			note, ok := n.noteOf(at)
			if !ok || at.Driver == "" {
				continue
			}
			if group, others, err := n.Custody.Beside(note, at.Driver); err == nil && others != nil {
				of[name] = fmt.Sprintf("IOMMU group %s is no longer its own, because it also contains %s", group, strings.Join(others, ", "))
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.examined = now
	if !maps.Equal(n.problems, of) {
		n.problems = of
		close(n.healthChanged)
		n.healthChanged = make(chan struct{})
	}
}

// Health returns the health of the pool's devices. The first is [SoftwareDevice], which is always healthy. The devices
// of the node follow, sorted by name; if the last survey is too old, they are missing. changed is closed when the
// health changes.
func (n *Node) Health(pool string) (list []kubeletplugin.DeviceHealth, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Sharing() {
		list = append(list, kubeletplugin.DeviceHealth{PoolName: pool, DeviceName: SoftwareDevice, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: time.Now()})
	}
	if time.Since(n.examined) > healthLasts {
		return list, n.healthChanged
	}
	for _, name := range slices.Sorted(maps.Keys(n.problems)) {
		d := kubeletplugin.DeviceHealth{PoolName: pool, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: n.examined, Message: n.problems[name]}
		if d.Message != "" {
			d.Health = kubeletplugin.HealthStatusUnhealthy
		}
		list = append(list, d)
	}
	return list, n.healthChanged
}
