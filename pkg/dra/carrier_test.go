package dra_test

import (
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/test/difftest"
)

// cable simulates the carrier of the PF p0 and records the slices that the agent publishes.
type cable struct {
	*node
	agent     *dra.Agent
	published []inventory.Slice
	writes    int
}

func plug(t *testing.T, r *rig) *cable {
	c := &cable{node: newNode(t, "mlx5-switchdev")}
	c.text = append(c.text, "-- sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/net/p0/speed --\n25000\n"...)
	r.options.Devices.Inventory = c.inventory()
	c.start(r)
	return c
}

// start starts the next process of the driver.
func (c *cable) start(r *rig) {
	c.agent = r.start()
	c.publish()
}

func (c *cable) publish() {
	if list := dra.Survey(c.agent); !inventory.Same(list, c.published) {
		c.published = list
		c.writes++
	}
}

// set changes carrier and speed as the kernel shows them.
func (c *cable) set(up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const with, without = `"ifname":"p0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"]`, `"ifname":"p0","flags":["NO-CARRIER","UP"]`
	const fast, unknown = "/net/p0/speed --\n25000\n", "/net/p0/speed --\n-1\n"
	from := []string{with, without, fast, unknown}
	if up {
		from = []string{without, with, unknown, fast}
	}
	c.text = []byte(strings.NewReplacer(from...).Replace(string(c.text)))
}

// lasts sets the carrier and lets the driver publish for the duration d.
func (c *cable) lasts(up bool, d time.Duration) {
	c.set(up)
	c.agent.Node.Publish()
	for end := time.After(d); ; {
		select {
		case <-c.agent.Node.Changed():
			c.publish()
		case <-end:
			return
		}
	}
}

func TestFlappingCarrierWritesPoolFewTimes(t *testing.T) {
	for name, test := range map[string]struct {
		down, up time.Duration
		flaps    int
		most     int
	}{
		"short":                     {time.Second, time.Second, 200, 0},
		"longer than the delay":     {3 * time.Second, 5 * time.Second, 200, 7},
		"with long pauses":          {3 * time.Second, 100 * time.Second, 200, 15},
		"seldom, as by maintenance": {time.Minute, time.Hour, 3, 6},
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, _ *plugins) {
			c := plug(t, r)
			before := c.published
			for range test.flaps {
				c.lasts(false, test.down)
				c.lasts(true, test.up)
			}
			if got := c.writes - 1; got > test.most {
				t.Errorf("%d flaps wrote the pool %d times, want at most %d", test.flaps, got, test.most)
			}
			c.lasts(true, time.Hour)
			difftest.Same(t, "pool, after the carrier was stable for long", c.published, before)
		}))
	}
}

// After the carrier has changed, only the driver's timers cause further publications.
func TestTaintFollowsStableCarrier(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		c := plug(t, r)
		expect := func(when string, want bool) {
			t.Helper()
			all := inventory.PublishedIn(c.published)
			_, speed := all[pf].Attributes[inventory.AttrSpeed]
			difftest.Same(t, when+": a taint, and a speed", []bool{len(all[vf0].Taints) > 0, speed}, []bool{want, true})
		}
		c.lasts(false, time.Second)
		expect("down for a second", false)
		c.lasts(false, 2*time.Second)
		expect("down for three seconds", true)
		c.lasts(true, time.Second)
		expect("up for a second", true)
		c.lasts(true, 2*time.Second)
		expect("up for three seconds", false)
		c.lasts(false, 3*time.Second)
		c.lasts(true, 3*time.Second)
		expect("up for three seconds again", true)
		c.lasts(true, 2*time.Second)
		expect("up for five seconds", false)
		c.lasts(true, time.Hour)
		c.lasts(false, 3*time.Second)
		c.lasts(true, 3*time.Second)
		expect("up again after a quiet hour", false)
		c.set(false)
		c.start(r)
		difftest.Same(t, "taints after a start without a carrier", len(inventory.PublishedIn(c.published)[vf0].Taints), 1)
	})
}
