package devices

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
)

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
		case errors.Is(n.Exists(at), restore.ErrGone):
			of[name] = "it was created again while the pod had it, for example by a reset of its PF or by a change of sriov_numvfs: delete the pod"
		case at != nil && at.NodeDevice.PCI != "" && c.Device.Driver == "":
			of[name] = "it has lost its driver"
		case s.withheld[name] != nil:
			of[name] = "it is not restored yet after its last pod, or its last DEL failed"
		case carrier.down && now.Sub(carrier.since) >= n.Inventory.CarrierGrace:
			of[name] = fmt.Sprintf("it or its PF has had no carrier for more than %v", n.Inventory.CarrierGrace)
		default:
			of[name] = ""
			if note, ok := n.noteOf(at); ok && at.Driver != "" {
				group, others, err := n.Custody.Beside(note, at.Driver)
				if err != nil {
					of[name] = fmt.Sprintf("cannot tell whether its IOMMU group is its own: %v", err)
				} else if others != nil {
					of[name] = fmt.Sprintf("IOMMU group %s is no longer its own, because it also contains %s", group, strings.Join(others, ", "))
				}
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
	if time.Since(n.examined) > 3*time.Minute { // surveys are a minute apart
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

// A changed taint may rewrite all slices of the pool. Therefore a device gets the taint only after taintAfter without
// carrier, and loses it only after its carrier was stable for a hold time. The hold time starts at minHold. It doubles,
// up to maxHold, each time the device gets the taint again within quiet after its removal.
const (
	taintAfter = 2 * time.Second
	minHold    = 2 * time.Second
	maxHold    = 4 * time.Minute
	quiet      = 10 * time.Minute
)

// carrier is the state of a device's carrier, as read and as published.
type carrier struct {
	down    bool      // whether the last reading had no carrier
	since   time.Time // time of the last change of the reading
	tainted bool
	hold    time.Duration
	cleared time.Time // time of the last removal of the taint
	speed   *resourceapi.DeviceAttribute
}

// next returns the state after a reading. wait is the time after which the same reading would change the state.
func (c carrier) next(down bool, now time.Time) (_ carrier, wait time.Duration) {
	if c.since.IsZero() { // the first reading is not a flap
		return carrier{down: down, since: now, tainted: down, hold: minHold}, never
	}
	if down != c.down {
		c.down, c.since = down, now
	}
	delay := taintAfter
	if c.tainted {
		delay = c.hold
	}
	wait = delay - now.Sub(c.since)
	switch {
	case down == c.tainted:
		return c, never
	case wait > 0:
		return c, wait
	case c.tainted:
		c.cleared = now
	case now.Sub(c.cleared) < quiet:
		c.hold = min(2*c.hold, maxHold)
	default:
		c.hold = minHold
	}
	c.tainted = down
	return c, never
}

// damp replaces carrier and speed of the devices by the values to publish. It returns the carriers after this reading.
// wait is the time until the first delay ends.
func damp(devices []inventory.Device, carriers map[string]carrier) (_ map[string]carrier, wait time.Duration) {
	wait = never
	all, now := map[string]carrier{}, time.Now()
	for i := range devices {
		d := &devices[i]
		c, left := carriers[d.Name].next(d.NoCarrier, now)
		if speed, known := d.Attributes[inventory.AttrSpeed]; known {
			c.speed = &speed
		} else if c.speed != nil && d.IfName != "" {
			d.Attributes[inventory.AttrSpeed] = *c.speed
		}
		d.NoCarrier, all[d.Name] = c.tainted, c
		wait = min(wait, left)
	}
	return all, wait
}
