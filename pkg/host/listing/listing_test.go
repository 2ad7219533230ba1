package listing_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/test/difftest"
)

func TestRecordedHostEqualsKernel(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod := linktest.NewNetns(t)
		linktest.AddVeth(t, "veth0", "eth0", pod)
		const here = "/proc/self/ns/net"
		linktest.AddVeth(t, "veth1", "veth2", here)
		linktest.AddMacvlan(t, "veth1", "net1", pod)
		linktest.AddMacvlan(t, "veth1", "mac0", here)
		difftest.Must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
		host := recorded(t, pod)
		for _, i := range []struct{ netns, name string }{
			{"", "lo"}, {"", "veth0"}, {"", "veth1"}, {"", "mac0"}, {"", "br0"}, {pod, "lo"}, {pod, "eth0"}, {pod, "net1"},
		} {
			want, err := link.NewKernel(os.DirFS("/sys")).Interface(i.netns, i.name)
			difftest.Must(t, err)
			got, err := host.Interface(i.netns, i.name)
			difftest.Must(t, err)
			difftest.Equal(t, got, want)
		}
		if host.HasNetns("/run/netns/other") {
			t.Error("a namespace that was not requested exists")
		}
	})
}

// recorded returns this host, recorded in a capture.
func recorded(t *testing.T, pod string) *linkhost.Kernel {
	t.Helper()
	all := map[string]any{}
	record := func(part string, v any, err error) {
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		all[part] = v
	}
	own, err := listing.Interfaces("")
	record("ip-link", own, err)
	pods, err := listing.Interfaces(pod)
	record("netns", map[string]any{pod: pods}, err)
	ports, err := listing.Ports()
	record("devlink-port", map[string]any{"port": ports}, err)
	eswitches, err := listing.Eswitches()
	record("devlink-eswitch", map[string]any{"dev": eswitches}, err)
	vdpas, err := listing.VDPAs()
	record("vdpa-config", map[string]any{"config": vdpas}, err)
	text := "this host\n"
	for part, v := range all {
		data, err := json.Marshal(v)
		difftest.Must(t, err)
		text += fmt.Sprintf("-- netlink/%s.json --\n%s\n", part, data)
	}
	file, err := capturefile.Parse([]byte(text))
	difftest.Must(t, err)
	host, err := linkhost.New(file)
	difftest.Must(t, err)
	return host
}
