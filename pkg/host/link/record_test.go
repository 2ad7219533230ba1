package link_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/link/linktest"
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
		host := recorded(t, pod)
		for _, i := range []struct{ netns, name string }{
			{"", "lo"}, {"", "veth0"}, {"", "veth1"}, {"", "mac0"}, {pod, "lo"}, {pod, "eth0"}, {pod, "net1"},
		} {
			want, err := kernel().Interface(i.netns, i.name)
			must(t, err)
			got, err := host.Interface(i.netns, i.name)
			must(t, err)
			equal(t, got, want)
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
	own, err := link.Recorder{}.Interfaces("")
	record("ip-link", own, err)
	pods, err := link.Recorder{}.Interfaces(pod)
	record("netns", map[string]any{pod: pods}, err)
	ports, err := link.Recorder{}.Ports()
	record("devlink-port", map[string]any{"port": ports}, err)
	eswitches, err := link.Recorder{}.Eswitches()
	record("devlink-eswitch", map[string]any{"dev": eswitches}, err)
	text := "this host\n"
	for part, v := range all {
		data, err := json.Marshal(v)
		must(t, err)
		text += fmt.Sprintf("-- netlink/%s.json --\n%s\n", part, data)
	}
	file, err := capturefile.Parse([]byte(text))
	must(t, err)
	host, err := linkhost.New(file)
	must(t, err)
	return host
}

func TestRecordOfMissingNamespaceIsAnError(t *testing.T) {
	_, err := link.Recorder{}.Interfaces("/nowhere")
	difftest.Is(t, err, link.ErrNoNetns)
}
