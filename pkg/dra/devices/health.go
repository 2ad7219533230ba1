package devices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/state"
)

// healthLasts is for how long the result of a survey is reported: surveys are a minute apart.
const healthLasts = 3 * time.Minute

// health is what the last survey found. The node's mutex guards it.
type health struct {
	of       map[string]string // by device, what is wrong with it, for the author of its pod; "" = nothing
	when     time.Time
	downFrom map[string]time.Time // of devices without carrier
	changed  chan struct{}        // closed, and replaced, when of changes
}

// examine finds out what is wrong with the published devices.
func (n *Node) examine(s survey, now time.Time) {
	n.mu.Lock()
	before := n.health.downFrom
	n.mu.Unlock()
	attached := map[string]*state.Attachment{}
	for _, h := range n.claims.Holders() {
		if h.Attachment.Node != nil && h.Attachment.Phase == state.Added {
			attached[h.Attachment.Device] = h.Attachment
		}
	}
	of, downFrom := map[string]string{}, map[string]time.Time{}
	for name := range s.published {
		c, here := s.decisions[name]
		since := cmp.Or(before[name], now)
		if c.Device.NoCarrier {
			downFrom[name] = since
		}
		switch at := attached[name]; {
		case !here:
			of[name] = "the node has lost it"
		case n.State(at) == Replaced:
			of[name] = "it was made anew while the pod had it, as by a reset of its PF or sriov_numvfs: delete the pod"
		case at != nil && at.Node.PCI != "" && c.Device.Driver == "":
			of[name] = "it has lost its driver"
		case s.withheld[name]:
			of[name] = "it is not yet what it was before a pod had it, or its last DEL has failed"
		case c.Device.NoCarrier && now.Sub(since) >= n.Inventory.CarrierGrace:
			of[name] = fmt.Sprintf("it, or its PF, has had no carrier for more than %v", n.Inventory.CarrierGrace)
		default:
			of[name] = ""
			note, ok := n.noteOf(at)
			if !ok || at.Driver == "" {
				continue
			}
			if group, others, err := n.Custody.Beside(note, at.Driver); err == nil && others != nil {
				of[name] = fmt.Sprintf("IOMMU group %s is not its own any more: it holds %s, too", group, strings.Join(others, ", "))
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &n.health
	h.when, h.downFrom = now, downFrom
	if !maps.Equal(h.of, of) {
		h.of = of
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// Health returns the health of the pool's devices, sorted by name; none if the last survey is too long
// ago. changed is closed when the health changes.
func (n *Node) Health(pool string) (list []kubeletplugin.DeviceHealth, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &n.health
	if time.Since(h.when) > healthLasts {
		return nil, h.changed
	}
	for _, name := range slices.Sorted(maps.Keys(h.of)) {
		d := kubeletplugin.DeviceHealth{PoolName: pool, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: h.when, Message: h.of[name]}
		if d.Message != "" {
			d.Health = kubeletplugin.HealthStatusUnhealthy
		}
		list = append(list, d)
	}
	return list, h.changed
}
