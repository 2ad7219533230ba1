package inventory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
)

// full returns a configuration that reaches every limit.
func full() string {
	var given []string
	for n := range 8 {
		given = append(given, fmt.Sprintf("a%d: %s", n, strings.Repeat("x", 64)))
	}
	return `devices:
- select: device.attributes["devinfo-cni.io"].kind == "vf"
  sharing: exclusive
  resourceName: example.com/` + strings.Repeat("y", 52) + `
  attributes: {` + strings.Join(given, ", ") + `}
- select: "true"
  sharing: shared
  bandwidth: 100G
  attributes: {` + strings.Join(given, ", ") + "}\n"
}

// valid checks slices against the limits of the API server (k8s.io/api/resource/v1, types.go).
func valid(t *testing.T, list []inventory.Slice) (devices int) {
	t.Helper()
	seen := map[string]bool{}
	for n, s := range list {
		if len(s.Devices) == 0 || len(s.Devices) > resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures {
			t.Errorf("slice %d has %d devices", n, len(s.Devices))
		}
		for _, d := range s.Devices {
			if why := validation.IsDNS1123Label(d.Name); len(why) > 0 || seen[d.Name] {
				t.Errorf("name %q: %v, there before: %v", d.Name, why, seen[d.Name])
			}
			seen[d.Name] = true
			if have := len(d.Attributes) + len(d.Capacity); have > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
				t.Errorf("%s has %d attributes and capacities", d.Name, have)
			}
			for name, a := range d.Attributes {
				if a.StringValue != nil && len(*a.StringValue) > resourceapi.DeviceAttributeMaxValueLength {
					t.Errorf("%s: %s: %q", d.Name, name, *a.StringValue)
				}
			}
		}
	}
	return len(seen)
}

func many(t testing.TB, vfs int) inventory.Host {
	t.Helper()
	h, err := inventory.Captured(capturetest.ManyVFs(vfs))
	must(t, err)
	return h
}

func TestThousandVFsStayWithinAPILimits(t *testing.T) {
	difftest.Equal(t, valid(t, pool(t, many(t, 1000), full())), 1001)
}

func TestRemovedVFRewritesOneSlice(t *testing.T) {
	h := many(t, 1000)
	devices := read(t, h)
	before := inventory.Slices(inventory.Decide(devices, rules(t, everything), input()), nil)
	for _, index := range []int{0, 31, 32, 500, 999} {
		s := input()
		s.Others = map[string]string{capturetest.VF(index): "a pod has it"}
		after := inventory.Slices(inventory.Decide(devices, rules(t, everything), s), nil)
		if len(after) != len(before) {
			t.Fatalf("VF %d: %d slices, %d before", index, len(after), len(before))
		}
		difftest.Same(t, fmt.Sprint("slices changed by VF ", index), rewritten(before, after), 1)
	}
}

func TestTooLongAttributesAreLeftOut(t *testing.T) {
	rdma := ""
	for n := range 20 {
		rdma += fmt.Sprintf("-- sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_%d/ --\n", n)
	}
	h := host(t, []byte("made: a host\n"+`-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/class --
0x020000
-- sys/devices/pci0000:00/0000:01:00.0/driver -> ../../../bus/pci/drivers/vfio-`+strings.Repeat("d", 70)+" --\n"+rdma))
	list := pool(t, h, giveAll)
	difftest.Equal(t, valid(t, list), 1)
	d := list[0].Devices[0]
	for _, name := range []resourceapi.QualifiedName{inventory.AttrRDMADevice, inventory.AttrDriver} {
		if a, there := d.Attributes[name]; there {
			t.Errorf("%s is %q", name, *a.StringValue)
		}
	}
	if !*d.Attributes[inventory.AttrRDMACapable].BoolValue {
		t.Error("it is not rdmaCapable")
	}
}

func TestManyDevicesWithoutVFIndexStayWithinAPILimits(t *testing.T) {
	var text strings.Builder
	text.WriteString("made: a host\n-- netlink/ip-link.json --\n[\n")
	for n := range 200 {
		fmt.Fprintf(&text, `{"ifname":"br%d","mtu":1500,"linkinfo":{"info_kind":"bridge"}},`+"\n", n)
	}
	text.WriteString("{\"ifname\":\"lo\"}]\n")
	list := pool(t, host(t, []byte(text.String())), shareAll)
	if got := valid(t, list); got != 200 || len(list) != 4 {
		t.Errorf("%d devices in %d slices", got, len(list))
	}
}

// BenchmarkSlices is gated by processor time, because other load on the machine does not increase it.
func BenchmarkSlices(b *testing.B) {
	const gate = 50 * time.Millisecond
	devices, all := read(b, many(b, 1024)), rules(b, everything)
	b.ReportAllocs()
	began := difftest.ProcessorTime(b)
	for b.Loop() {
		if list := inventory.Slices(inventory.Decide(devices, all, input()), nil); len(list) < 16 {
			b.Fatal(len(list))
		}
	}
	each := (difftest.ProcessorTime(b) - began) / time.Duration(b.N)
	b.ReportMetric(float64(each)/1e6, "cpu-ms/op")
	if b.N >= 20 && each > gate {
		b.Errorf("the slices of 1,024 VFs take %v of processor time, more than %v", each, gate)
	}
}

// A cluster of 2,000 nodes with 256 VFs each has half a million devices in its API server.
func TestRuleSelectsPublishedAttributes(t *testing.T) {
	const rule = `devices: [{select: 'device.attributes["devinfo-cni.io"].driver == "mlx5_core"', sharing: exclusive, attributes: {rack: 7}, publish: %s}]`
	size := func(publish string) (bytes int) {
		for _, s := range pool(t, many(t, 256), fmt.Sprintf(rule, publish)) {
			text, err := json.Marshal(s.Devices)
			must(t, err)
			bytes += len(text)
		}
		return bytes
	}
	for publish, want := range map[string]string{
		"[]":       "ifName kind pciBusID pfPCIBusID rack vfIndex",
		"[pfName]": "ifName kind pciBusID pfName pfPCIBusID rack vfIndex",
		"[devinfo-cni.io/mtu, resource.kubernetes.io/numaNode]": "ifName kind mtu numaNode pciBusID pfPCIBusID rack vfIndex",
	} {
		list := pool(t, many(t, 1), fmt.Sprintf(rule, publish))
		vf := list[0].Devices[len(list[0].Devices)-1]
		var names []string
		for name := range vf.Attributes {
			names = append(names, string(name[strings.Index(string(name), "/")+1:]))
		}
		slices.Sort(names)
		difftest.Same(t, publish, strings.Join(names, " "), want)
	}
	if all, few := size("null"), size("[pfName]"); few > all*6/10 {
		t.Errorf("%d bytes with pfName, %d with all", few, all)
	}
}
