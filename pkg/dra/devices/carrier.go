package devices

import (
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
