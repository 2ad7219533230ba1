package devices_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
)

// unhealthy returns the messages of the unhealthy devices.
func unhealthy(t testing.TB, agent *dra.Agent, pool string) map[string]string {
	t.Helper()
	list, _ := agent.Node.Health(pool)
	if len(list) == 0 {
		t.Error("no device has a health status")
	}
	all := map[string]string{}
	for _, d := range list {
		if (d.Health == kubeletplugin.HealthStatusUnhealthy) != (d.Message != "") || d.PoolName != pool || d.LastUpdated.IsZero() {
			t.Errorf("got %+v", d)
		}
		if d.Message != "" {
			all[d.DeviceName] = d.Message
		}
	}
	return all
}

func TestHealthReportsProblemsOfDevices(t *testing.T) {
	t.Parallel()
	for says, test := range map[string]struct {
		device, driver string
		happens        func(b *dratest.Rig, n *dratest.Node)
	}{
		"":                       {dratest.VF0, "", func(*dratest.Rig, *dratest.Node) {}},
		"the node has lost it":   {dratest.VF0, "", func(_ *dratest.Rig, n *dratest.Node) { n.Remove("0000:03:00.2") }},
		"it has lost its driver": {dratest.VF0, "", func(_ *dratest.Rig, n *dratest.Node) { n.Remove("0000:03:00.2/driver ->") }},
		"no carrier for more than 1m0s": {dratest.VF0, "", func(b *dratest.Rig, n *dratest.Node) {
			n.Text = []byte(strings.Replace(string(n.Text), `"ifname":"p0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"]`, `"ifname":"p0","flags":["NO-CARRIER","UP"]`, 1))
			dratest.Survey(b.Agent)
			difftest.Same(b.T, "at once", unhealthy(b.T, b.Agent, "node1"), map[string]string{})
			time.Sleep(time.Minute)
		}},
		"IOMMU group 56 is no longer its own, because it also contains 0000:03:00.2": {dratest.VF2, "vfio-pci", func(b *dratest.Rig, _ *dratest.Node) {
			difftest.Must(b.T, os.Symlink("x", filepath.Join(b.Dir, "kernel/sys/kernel/iommu_groups/56/devices/0000:03:00.2")))
		}},
		"cannot tell whether its IOMMU group is its own: ": {dratest.VF2, "vfio-pci", func(b *dratest.Rig, _ *dratest.Node) {
			members := filepath.Join(b.Dir, "kernel/sys/kernel/iommu_groups/56/devices")
			difftest.Must(b.T, os.Rename(members, members+".away"), os.Symlink("devices", members))
		}},
	} {
		dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
			b.Stop()
			n := b.Offer("mlx5-switchdev", "")
			b.Options.Devices.Inventory.CarrierGrace = time.Minute
			b.Start()
			dratest.Survey(b.Agent)
			b.AttachDevice(test.device, test.driver)
			_, news := b.Agent.Node.Health("node1")
			test.happens(b, n)
			dratest.Survey(b.Agent)
			got := unhealthy(t, b.Agent, "node1")
			if text, is := got[test.device]; is != (says != "") || !strings.Contains(text, says) {
				t.Errorf("%q: got %q", says, got)
			}
			select {
			case <-news:
			default:
				if says != "" {
					t.Errorf("%q: the health stream has no update", says)
				}
			}
			time.Sleep(4 * time.Minute) // health expires if the node is not read
			if list, _ := b.Agent.Node.Health("node1"); len(list) != 1 || list[0].DeviceName != "cni" {
				t.Errorf("expired health is still reported: %v", list)
			}
		})
	}
}

func TestLostDeviceEvictsItsPodOnlyIfConfigured(t *testing.T) {
	for _, evict := range []bool{false, true} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			n := r.Offer("mlx5-switchdev", "")
			r.Options.Devices.Inventory.EvictLost = evict
			agent := r.Start()
			dratest.Survey(agent)
			r.Prepare(dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)))
			n.Remove("0000:03:00.2")
			taints := dratest.Survey(agent)[dratest.VF0].Taints
			want := map[bool]string{false: "NoSchedule", true: "NoExecute"}[evict]
			difftest.Equal(t, taints, []resourceapi.DeviceTaint{{Key: inventory.TaintGone, Effect: resourceapi.DeviceTaintEffect(want)}})
		})
	}
}

// If a second port is in a pod, the node shows only its PCI function.
func TestDeviceInsidePodIsNotLost(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		n := dratest.NewNode(t, "i40e")
		n.Text = capturetest.Ports("mlx4_core", 2)
		n.Rules = "devices: [{ifNames: [p2], sharing: exclusive}]"
		kernel, err := restoretest.Make(r.Dir, n.Text)
		difftest.Must(t, err)
		r.Options.Devices.Custody, r.Options.Devices.Inventory = kernel.Host(), n.Inventory()
		r.Options.Devices.Inventory.EvictLost = true
		agent := r.Start()
		before := dratest.Survey(agent)
		port := slices.Collect(maps.Keys(before))
		if len(port) != 1 {
			t.Fatalf("got %q", port)
		}
		r.AttachPod(dratest.DeviceClaim("u1", port[0], `"device":[],`+dratest.Network(`{"type":"x"}`)))
		n.Remove("p2")
		difftest.Equal(t, dratest.Survey(agent), before)
		difftest.Equal(t, unhealthy(t, agent, "node1"), map[string]string{})
		difftest.Must(t, os.Remove(filepath.Join(r.Dir, "kernel/sys/bus/pci/devices/0000:3b:00.0")))
		lost := dratest.Survey(agent)[port[0]].Taints
		difftest.Equal(t, lost, []resourceapi.DeviceTaint{{Key: inventory.TaintGone, Effect: "NoExecute"}})
		difftest.Equal(t, unhealthy(t, agent, "node1"), map[string]string{port[0]: "the node has lost it"})
	})
}

// cable simulates the carrier of the PF p0 and records the slices that the agent publishes.
type cable struct {
	*dratest.Node
	agent     *dra.Agent
	published inventory.Published
	writes    int
}

func plug(t *testing.T, r *dratest.Rig) *cable {
	c := &cable{Node: dratest.NewNode(t, "mlx5-switchdev")}
	c.Text = append(c.Text, "-- sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/net/p0/speed --\n25000\n"...)
	r.Options.Devices.Inventory = c.Inventory()
	c.start(r)
	return c
}

// start starts the next process of the driver.
func (c *cable) start(r *dratest.Rig) {
	c.agent = r.Start()
	c.publish()
}

func (c *cable) publish() {
	if list := dratest.Survey(c.agent); !equality.Semantic.DeepEqual(list, c.published) {
		c.published = list
		c.writes++
	}
}

// set changes carrier and speed as the kernel shows them.
func (c *cable) set(up bool) {
	c.Lock()
	defer c.Unlock()
	const with, without = `"ifname":"p0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"]`, `"ifname":"p0","flags":["NO-CARRIER","UP"]`
	const fast, unknown = "/net/p0/speed --\n25000\n", "/net/p0/speed --\n-1\n"
	from := []string{with, without, fast, unknown}
	if up {
		from = []string{without, with, unknown, fast}
	}
	c.Text = []byte(strings.NewReplacer(from...).Replace(string(c.Text)))
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
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
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
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		c := plug(t, r)
		expect := func(when string, want bool) {
			t.Helper()
			all := c.published
			_, speed := all[dratest.PF].Attributes[inventory.AttrSpeed]
			difftest.Same(t, when+": a taint, and a speed", []bool{len(all[dratest.VF0].Taints) > 0, speed}, []bool{want, true})
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
		difftest.Same(t, "taints after a start without a carrier", len(c.published[dratest.VF0].Taints), 1)
	})
}
