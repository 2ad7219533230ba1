package dra

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/devices/custody"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/state"
)

// What the kubelet is told of devices (KEP-4680), which puts it into the status of their pods.

const (
	// healthEvery is below the 30 s after which a kubelet takes what it was told for unknown.
	healthEvery = 10 * time.Second
	// healthLasts is for how long what was found out of the node is repeated: it is looked at
	// each minute.
	healthLasts = 3 * time.Minute
)

// health is what was found out last. The mutex of the agent's node devices guards it.
type health struct {
	of       map[string]string // of each device what is wrong with it, for its pod's author; "" = nothing
	when     time.Time
	downFrom map[string]time.Time // of devices without carrier
	changed  chan struct{}        // closed, and made anew, when something is wrong or right again
}

// examine finds out what is wrong with the node's own devices. The mutex of the node devices
// must be held, not the agent's.
func (a *Agent) examine(decisions map[string]inventory.Decision, withheld map[string]bool, now time.Time) {
	h := &a.node.health
	attached := a.attachedDevices()
	of, downFrom := map[string]string{}, map[string]time.Time{}
	for name := range a.node.last {
		c, here := decisions[name]
		if c.Device.NoCarrier {
			downFrom[name] = now
			if since, before := h.downFrom[name]; before {
				downFrom[name] = since
			}
		}
		down := now.Sub(cmp.Or(downFrom[name], now))
		switch at := attached[name]; {
		case !here:
			of[name] = "the node has lost it"
		case a.stateOf(at) == custody.Replaced:
			of[name] = "it was made anew while the pod had it, as by a reset of its PF or sriov_numvfs: delete the pod"
		case at != nil && at.Node.PCI != "" && c.Device.Driver == "":
			of[name] = "it has lost its driver"
		case withheld[name]:
			of[name] = "it is not yet what it was before a pod had it, or its last DEL has failed"
		case c.Device.NoCarrier && down >= a.Inventory.CarrierGrace:
			of[name] = fmt.Sprintf("it, or its PF, has had no carrier for more than %v", a.Inventory.CarrierGrace)
		default:
			of[name] = a.sharedGroup(at)
		}
	}
	h.when, h.downFrom = now, downFrom
	if !maps.Equal(h.of, of) {
		h.of = of
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// attachedDevices are the node's own devices that pods have, by name.
func (a *Agent) attachedDevices() map[string]*state.Attachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]*state.Attachment{}
	for _, c := range a.claims {
		for n := range c.record.Attachments {
			if at := &c.record.Attachments[n]; at.Node != nil && at.Phase == state.Added {
				all[at.Device] = at
			}
		}
	}
	return all
}

// sharedGroup says with whom a pod shares the IOMMU group of its device; "" = with nobody.
func (a *Agent) sharedGroup(at *state.Attachment) string {
	if at == nil || a.Custody == nil || at.Driver == "" || at.Former == nil {
		return ""
	}
	group, others, err := a.Custody.Beside(*at.Former, at.Driver)
	if err != nil || others == nil {
		return ""
	}
	return fmt.Sprintf("IOMMU group %s is not its own any more: it holds %s, too", group, strings.Join(others, ", "))
}

// Health is what is known of the health of a pool's devices, sorted by name; nothing if that is
// too long ago. changed is closed when there is news.
func (a *Agent) Health(pool string) (list []kubeletplugin.DeviceHealth, changed <-chan struct{}) {
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	h := &a.node.health
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

// WatchHealthStatus implements [kubeletplugin.DRAPlugin]. It reports what has changed at once,
// and all of it again and again. A report without devices keeps the kubelet from beginning anew
// every 5 s, with an error in its log.
func (k *Kubelet) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	every := time.NewTicker(healthEvery)
	defer every.Stop()
	for {
		list, changed := k.agent.Health(k.options.Node)
		select {
		case <-ctx.Done():
			return nil
		case reports <- kubeletplugin.DeviceHealthReport{Devices: list}:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		case <-changed:
		}
	}
}
