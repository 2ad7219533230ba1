package inventory_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestSlicesOfCapturedHostsMatchFiles(t *testing.T) {
	for _, name := range capturetest.Described(t) {
		h := host(t, capturetest.Text(t, name))
		decisions := inventory.Decide(read(t, h), rules(t, everything), input())
		made := inventory.Slices(inventory.Pool(decisions, nil))
		valid(t, made)
		got := text(made)
		for _, c := range decisions {
			if c.Why != "" {
				got += fmt.Sprintf("left out %s: %s\n", c.Device.Name, c.Why)
			}
		}
		goldentest.File(t, "testdata/"+name+".slices", got)
	}
}

// describe formats a device, one attribute a line.
func describe(d resourceapi.Device) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s", d.Name)
	if d.AllowMultipleAllocations != nil {
		fmt.Fprintf(&b, " shared %v", *d.AllowMultipleAllocations)
	}
	for _, t := range d.Taints {
		fmt.Fprintf(&b, " taint %s:%s", t.Key, t.Effect)
	}
	b.WriteString("\n")
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		c := d.Capacity[name]
		fmt.Fprintf(&b, "    capacity %s %s default %s\n", name, c.Value.String(), c.RequestPolicy.Default.String())
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		_, value := content(d.Attributes[name])
		fmt.Fprintf(&b, "    %s %s\n", name, value)
	}
	return b.String()
}

// content returns the type and the JSON of an attribute's value.
func content(a resourceapi.DeviceAttribute) (kind, value string) {
	raw, _ := json.Marshal(a) // {"string":"vf"}
	kind, value, _ = strings.Cut(strings.Trim(string(raw), "{}"), ":")
	return strings.Trim(kind, `"`), value
}

func TestDocumentationListsAttributesOfDevices(t *testing.T) {
	types := documented(t)
	names := inventory.AttributeNames()
	slices.Sort(names)
	difftest.Same(t, "attributes in docs/dra", slices.Sorted(maps.Keys(types)), names)
	types["devinfo-cni.io/physicalNetwork"] = "string"
	configuration := everything + "- select: \"true\"\n  sharing: shared\n"
	seen := map[resourceapi.QualifiedName]bool{}
	nodes := map[string]inventory.Host{"many VFs": many(t, 1)} // the only host with a speed
	for _, name := range capturetest.Names(t) {
		nodes[name] = host(t, capturetest.Text(t, name))
	}
	for name, h := range nodes {
		for _, s := range pool(t, h, configuration) {
			for _, d := range s.Devices {
				for attribute, a := range d.Attributes {
					if kind, _ := content(a); kind != types[attribute] {
						t.Errorf("%s: %s: %s is %q in the table, and a %s here", name, d.Name, attribute, types[attribute], kind)
					}
					seen[attribute] = true
				}
			}
		}
	}
	for attribute := range types {
		if !seen[attribute] {
			t.Errorf("no host has attribute %s", attribute)
		}
	}
}

func TestOrderOfDirectoriesDoesNotMatter(t *testing.T) {
	for _, name := range capturetest.Names(t) {
		want := pool(t, host(t, capturetest.Text(t, name)), everything)
		for seed := range uint64(5) {
			h := host(t, capturetest.Text(t, name))
			random := rand.New(rand.NewPCG(seed, 0))
			files := capturetest.Tree{FS: h.Sys.Files(), Listed: func(list []fs.DirEntry) []fs.DirEntry {
				list = slices.Clone(list)
				random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
				return list
			}}
			h.Sys, h.Eswitches.(*linkhost.Kernel).Eswitch.Sys = sysfs.New(files), files
			random.Shuffle(len(h.Links), func(i, j int) { h.Links[i], h.Links[j] = h.Links[j], h.Links[i] })
			difftest.Same(t, name, text(pool(t, h, everything)), text(want))
		}
	}
}

// A failed read takes only its device out of the offer, unless it hides which device has what: then nothing changes. The
// claim of the device keeps it. Speed and medium may be missing.
func TestFailedReadTakesOneDeviceOutOfTheOffer(t *testing.T) {
	hides := regexp.MustCompile(`^bus/|^class/(net|infiniband|infiniband_verbs)(/|$)|/(driver|physfn|net|sfnum|vdpa[^/]*)$`)
	medium := regexp.MustCompile(`/(type|speed)$`)
	all, unread := rules(t, giveAll), 0
	for _, name := range []string{"igb-sriov", "mlx5-legacy", "mlx5-vdpa", "erdma", "pds-vdpa"} {
		h := host(t, capturetest.Text(t, name))
		var want []inventory.Device
		capturetest.EachFailure(h.Sys.Files(), func(sys fs.FS, failed *string) {
			h.Sys = sysfs.New(sys)
			got, warnings, err := inventory.Read(h)
			if want == nil {
				difftest.Must(t, err)
				want = got
			}
			if err != nil {
				if !hides.MatchString(*failed) {
					t.Errorf("%s: all devices are lost: %v", name, err)
				}
				return
			}
			s := input()
			s.Ours = inventory.Published{}
			for n := range want {
				s.Ours[want[n].Name] = resourceapi.Device{Name: want[n].Name}
			}
			decisions := inventory.Decide(got, all, s)
			now := inventory.Pool(decisions, s.Ours)
			for n, d := range want {
				switch c := decision(decisions, d.Name); {
				case c.Device.Unread != nil:
					unread++
					if taints := now[d.Name].Taints; !strings.Contains(c.Why, "cannot be read") || len(taints) != 1 || taints[0].Key != inventory.TaintNotOffered || warnings == nil {
						t.Errorf("%s: %s fails: %q, taints %v, warnings %q", name, *failed, c.Why, taints, warnings)
					}
				case medium.MatchString(*failed) && warnings != nil:
				case !reflect.DeepEqual(got[n], d):
					t.Errorf("%s: %s fails, and nothing says so of %s", name, *failed, d.Name)
				}
			}
		})
	}
	if unread < 500 {
		t.Errorf("%d devices could not be read", unread)
	}
}

func text(list []inventory.Slice) string {
	var b strings.Builder
	for n, s := range list {
		fmt.Fprintf(&b, "slice %d\n", n)
		for _, d := range s.Devices {
			b.WriteString(describe(d))
		}
	}
	return b.String()
}

// rewritten returns the number of slices that differ.
func rewritten(old, now []inventory.Slice) (count int) {
	for n := range old {
		if !equality.Semantic.DeepEqual(old[n], now[n]) {
			count++
		}
	}
	return count
}

// full returns a configuration that reaches every limit.
func full() string {
	var given []string
	for n := range 8 {
		given = append(given, fmt.Sprintf("%s/%s%d: %s", strings.Repeat("d", 63), strings.Repeat("a", 31), n, strings.Repeat("x", 64)))
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
	difftest.Must(t, err)
	return h
}

func TestThousandVFsStayWithinAPILimits(t *testing.T) {
	difftest.Equal(t, valid(t, pool(t, many(t, 1000), full())), 1001)
}

func TestRemovedVFRewritesOneSlice(t *testing.T) {
	h := many(t, 1000)
	devices := read(t, h)
	before := pool(t, h, everything)
	for _, index := range []int{0, 31, 32, 500, 999} {
		s := input()
		s.Others = map[string]string{capturetest.VF(index): "a pod has it"}
		after := inventory.Slices(inventory.Pool(inventory.Decide(devices, rules(t, everything), s), nil))
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

// A cluster of 2,000 nodes with 256 VFs each has half a million devices in its API server.
func TestRuleSelectsPublishedAttributes(t *testing.T) {
	const rule = `devices: [{select: 'device.attributes["devinfo-cni.io"].driver == "mlx5_core"', sharing: exclusive, attributes: {rack: 7}, publish: %s}]`
	size := func(publish string) (bytes int) {
		for _, s := range pool(t, many(t, 256), fmt.Sprintf(rule, publish)) {
			text, err := json.Marshal(s.Devices)
			difftest.Must(t, err)
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
