package inventory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestSlicesOfCapturedHostsMatchFiles(t *testing.T) {
	for _, name := range capturetest.Names(t) {
		h := host(t, capturetest.Text(t, name))
		decisions := inventory.Decide(read(t, h), rules(t, everything), input())
		made := inventory.Slices(decisions, nil)
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

func TestRenamedInterfaceChangesOneSliceAndNoDeviceName(t *testing.T) {
	before := capturetest.Text(t, "igb-sriov") // two PFs with VFs
	after := bytes.ReplaceAll(before, []byte("eth0"), []byte("ens5"))
	old, now := pool(t, host(t, before), everything), pool(t, host(t, after), everything)
	difftest.Equal(t, deviceNames(now), deviceNames(old))
	difftest.Equal(t, rewritten(old, now), 1)
}

// rewritten returns the number of slices that differ.
func rewritten(old, now []inventory.Slice) (count int) {
	for n := range old {
		if !inventory.Same(old[n:n+1], now[n:n+1]) {
			count++
		}
	}
	return count
}

func deviceNames(list []inventory.Slice) (names [][]string) {
	for _, s := range list {
		var in []string
		for _, d := range s.Devices {
			in = append(in, d.Name)
		}
		names = append(names, in)
	}
	return names
}

func TestHeldDeviceIsTaintedWhenNodeLosesIt(t *testing.T) {
	before := pool(t, host(t, capturetest.Text(t, "mlx5-legacy")), everything)
	const vf = "pci-0000-3b-00-2"
	after := inventory.Slices(nil, inventory.Published{vf: inventory.PublishedIn(before)[vf]})
	if len(after) != 1 || len(after[0].Devices) != 1 {
		t.Fatalf("got %v", deviceNames(after))
	}
	difftest.Equal(t, after[0].Devices[0].Taints, []resourceapi.DeviceTaint{{Key: "devinfo-cni.io/gone", Effect: "NoSchedule"}})
	if len(inventory.PublishedIn(before)[vf].Taints) != 0 {
		t.Error("what was published has changed, too")
	}
}

func TestWatchCollectsEventsAndPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		events := make(chan struct{})
		start := time.Now()
		var at []time.Duration
		go inventory.Watch(ctx, events, inventory.DefaultTimes(), func(context.Context) { at = append(at, time.Since(start)) })
		for _, pause := range []time.Duration{10 * time.Second, 300 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second} {
			time.Sleep(pause)
			events <- struct{}{}
		}
		close(events) // 15.6 s after the start
		time.Sleep(2 * time.Minute)
		stop()
		synctest.Wait()
		difftest.Equal(t, at, []time.Duration{0, 11 * time.Second, 16600 * time.Millisecond, 76600 * time.Millisecond})
	})
}
