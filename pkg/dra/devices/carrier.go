package devices

import (
	"maps"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/devices/inventory"
)

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

// next returns the state after a reading. wait is the time after which the same reading would change the state; 0 =
// never.
func (c carrier) next(down bool, now time.Time) (_ carrier, wait time.Duration) {
	if c.since.IsZero() { // the first reading is not a flap
		return carrier{down: down, since: now, tainted: down, hold: minHold}, 0
	}
	if down != c.down {
		c.down, c.since = down, now
	}
	if down == c.tainted {
		return c, 0
	}
	delay := taintAfter
	if !down {
		delay = c.hold
	}
	if wait = c.since.Add(delay).Sub(now); wait > 0 {
		return c, wait
	}
	c.tainted = down
	switch {
	case !down:
		c.cleared = now
	case !c.cleared.IsZero() && now.Sub(c.cleared) < quiet:
		c.hold = min(2*c.hold, maxHold)
	default:
		c.hold = minHold
	}
	return c, 0
}

// damp replaces carrier and speed of the devices by the values to publish. It schedules a publication for the time when
// the first delay ends. read is the time at which the devices were read; damp ignores the carriers of a reading that is
// older than the last one.
func (n *Node) damp(devices []inventory.Device, read time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := read.Before(n.carriersRead)
	all, first := map[string]carrier{}, time.Duration(0)
	for i := range devices {
		d := &devices[i]
		c, wait := n.carriers[d.Name], time.Duration(0)
		if !old {
			c, wait = c.next(d.NoCarrier, read)
		}
		if speed, known := d.Attributes[inventory.AttrSpeed]; known {
			c.speed = &speed
		} else if c.speed != nil && d.IfName != "" {
			d.Attributes = maps.Clone(d.Attributes)
			d.Attributes[inventory.AttrSpeed] = *c.speed
		}
		if wait > 0 && (first == 0 || wait < first) {
			first = wait
		}
		if c.since.IsZero() { // the device is new, and the old reading does not count
			continue
		}
		d.NoCarrier, all[d.Name] = c.tainted, c
	}
	if old {
		return
	}
	n.carriers, n.carriersRead = all, read
	if n.damped != nil {
		n.damped.Stop()
	}
	if first > 0 {
		n.damped = time.AfterFunc(first, n.Publish)
	}
}
