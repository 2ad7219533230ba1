package cleanup_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

// ADD leases whatever host-device and sriov-cni read from a configuration that it accepts. host-device itself says what it
// reads; sriov-cni documents deviceID, a PCI address.
func TestLeasesCoverDevicesThatDelegatesRead(t *testing.T) {
	dir := t.TempDir()
	program := hostDevice(t, dir)
	captured, err := capturefile.Load("../../../testdata/hosts/mlx5-switchdev.txtar")
	difftest.Must(t, err, undertest.Unpack(captured, dir+"/sys"))
	links, err := linkhost.New(captured)
	difftest.Must(t, err)
	n := host{links: links, root: dir + "/sys"}
	n.sys, err = sysfs.Open(n.root)
	difftest.Must(t, err)
	settings := config.DefaultNode()
	settings.StateDir = dir + "/state"
	n.cleaner = cleanup.New(settings, discovery.Finder{Sys: n.sys, Interfaces: links}, "", slog.New(slog.DiscardHandler))

	var asked []asking
	for mutate, tries := (mutator{rand.New(rand.NewPCG(46, 1)), n}), 10_000; tries > 0; tries-- {
		text := mutate.configuration()
		if a, ok := n.ask(t, text); ok {
			asked = append(asked, a)
		}
	}
	var stdin bytes.Buffer
	for _, a := range asked {
		stdin.Write(append(a.stdin, '\n'))
	}
	cmd := exec.Command(program)
	cmd.Stdin, cmd.Env = &stdin, append(os.Environ(), "SYS="+n.root)
	out, err := cmd.Output()
	difftest.Must(t, err)
	taken := 0
	for lines, at := bufio.NewScanner(bytes.NewReader(out)), 0; lines.Scan(); at++ {
		var read map[string]string
		difftest.Must(t, json.Unmarshal(lines.Bytes(), &read))
		for _, device := range n.devices(t, read, asked[at].stdin) {
			taken++
			if !slices.ContainsFunc(asked[at].leases, func(l journal.DeviceLease) bool { return l.ID == device }) {
				t.Errorf("%s\nhost-device reads %v\n%s is not leased: %v", asked[at].text, read, device, asked[at].leases)
			}
		}
	}
	if len(asked) < 2000 || taken < 2000 {
		t.Errorf("the mutations say little: %d are accepted, which name %d devices", len(asked), taken)
	}
}

// hostDevice builds host-device together with testdata/decode.go.txt.
func hostDevice(t *testing.T, dir string) (program string) {
	t.Helper()
	source, err := exec.Command("go", "list", "-f", "{{.Dir}}/host-device.go", "github.com/containernetworking/plugins/plugins/main/host-device").Output()
	difftest.Must(t, err)
	difftest.Write(t, dir+"/host-device.go", difftest.Read(t, strings.TrimSpace(string(source))), 0o600)
	difftest.Write(t, dir+"/decode.go", difftest.Read(t, "testdata/decode.go.txt"), 0o600)
	undertest.Programs(t, dir+"/host-device", "", dir+"/host-device.go", dir+"/decode.go")
	return dir + "/host-device"
}

// A host is a captured host, with its /sys below root.
type host struct {
	cleaner *cleanup.Cleaner
	sys     *sysfs.FS
	links   *linkhost.Kernel
	root    string
}

// An asking is what the plugin does with a configuration that it accepts.
type asking struct {
	text   string
	stdin  []byte // the delegate's
	leases []journal.DeviceLease
}

func (n host) ask(t *testing.T, text string) (a asking, ok bool) {
	t.Helper()
	cfg, err := config.Parse([]byte(text))
	difftest.Must(t, err)
	if len(cfg.Problems) > 0 || cfg.DelegateProblem(0) != nil {
		return a, false
	}
	e := &journal.Entry{Key: journal.Key{Network: "n", ContainerID: "c", IfName: "net1"}, CNIVersion: "1.0.0", Delegates: cfg.DelegateConfigs(), CapabilityArgs: cfg.Runtime, Requested: journal.Requested{DeviceIDs: cfg.DeviceIDs}}
	if a.leases, err = n.cleaner.AskedLeases(e); err != nil {
		difftest.As[*config.Problem](t, err)
		return a, false
	}
	network, err := n.cleaner.Network(e, e.Delegates, "/run/netns/pod")
	difftest.Must(t, err)
	recorder := &recorder{}
	network.Exec = recorder
	_, err = network.Add(nil)
	difftest.Must(t, err)
	return asking{text, recorder.stdin, a.leases}, true
}

// A recorder runs nothing and keeps what a plugin would read from libcni.
type recorder struct {
	version.PluginDecoder
	stdin []byte
}

func (r *recorder) FindInPath(name string, _ []string) (string, error) { return name, nil }
func (r *recorder) ExecPlugin(_ context.Context, _ string, stdin []byte, _ []string) ([]byte, error) {
	r.stdin = stdin
	return []byte(`{"cniVersion": "1.0.0"}`), nil
}

// devices returns the IDs of the devices that the delegate would take.
func (n host) devices(t *testing.T, read map[string]string, stdin []byte) (ids []string) {
	t.Helper()
	var sriov struct {
		DeviceID string `json:"deviceID"`
	}
	if json.Unmarshal(stdin, &sriov) == nil && sriov.DeviceID != "" {
		read["sriov"], _ = filepath.EvalSymlinks(filepath.Join(n.root, "bus/pci/devices", sriov.DeviceID))
	}
	add := func(name string) {
		line, err := n.sys.Lineage(name)
		difftest.Must(t, err)
		ids = append(ids, line[0].ID)
	}
	for _, key := range []string{"pci", "aux", "kernelpath", "sriov"} {
		name := "" // of the innermost device that contains the path
		for _, bus := range []string{"pci", "auxiliary"} {
			entries, err := os.ReadDir(filepath.Join(n.root, "bus", bus, "devices"))
			difftest.Must(t, err)
			for _, e := range entries {
				if at, _ := filepath.EvalSymlinks(filepath.Join(n.root, "bus", bus, "devices", e.Name())); strings.HasPrefix(read[key]+"/", at+"/") {
					name = e.Name()
				}
			}
		}
		if name != "" {
			add(name)
		}
	}
	mac, _ := net.ParseMAC(read["hwaddr"])
	for _, l := range n.links.Links {
		if own, _ := net.ParseMAC(l.Address); l.Parent != "" && (l.Name == read["device"] || len(mac) > 0 && bytes.Equal(own, mac)) {
			add(l.Parent)
		}
	}
	return ids
}

// A mutator makes configurations with one delegate, from keys and values that are right or nearly so.
type mutator struct {
	*rand.Rand
	host
}

func pick[T any](m mutator, list ...T) T { return list[m.IntN(len(list))] }

func (m mutator) configuration() string {
	delegate := m.members(1+m.IntN(4), "deviceID", "pciBusID", "device", "hwaddr", "kernelpath", "runtimeConfig", "capabilities", "args", "DPDKMode", "delegate")
	top := ""
	if m.IntN(3) == 0 {
		top = "," + m.members(1, "deviceID", "pciBusID", "runtimeConfig", "args")
	}
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "n", "type": "devinfo", "delegates": [{"type": "host-device", %s}]%s}`, delegate, top)
}

func (m mutator) members(count int, keys ...string) string {
	var list []string
	for range count {
		key := pick(m, keys...)
		value := m.value(key)
		for range 1 + m.IntN(5)/4 { // sometimes twice
			list = append(list, fmt.Sprintf(`"%s": %s`, m.spelled(key), value))
			value = pick(m, "null", `""`, "5", m.value(key), m.value(key))
		}
	}
	return strings.Join(list, ", ")
}

func (m mutator) spelled(key string) string {
	switch m.IntN(8) {
	case 0:
		return pick(m, strings.ToLower, strings.ToUpper)(key)
	case 1:
		return pick(m, strings.NewReplacer("s", `\u017f`, "k", `\u212a`), strings.NewReplacer("D", "d"), strings.NewReplacer("e", "E")).Replace(key)
	}
	return key
}

func (m mutator) value(key string) string {
	link := pick(m, m.links.Links...)
	device := pick(m, "0000:03:00.2", "0000:03:00.3", "0000:03:00.4", "0000:03:00.0", "mlx5_core.sf.4", "mlx5_core.sf.7", "mlx5_core.eth.0", "0000:03:00.9", "none")
	switch key {
	case "runtimeConfig", "delegate":
		return "{" + m.members(1+m.IntN(2), "deviceID", "deviceID", "device", "mac") + "}"
	case "capabilities":
		return `{"` + m.spelled("deviceID") + `": true}`
	case "args":
		return `{"cni": {"` + m.spelled("pciBusID") + `": "x", "pciBusID": "y"}}`
	case "DPDKMode":
		return "true"
	case "device":
		device = pick(m, link.Name, link.Name, device)
	case "hwaddr", "mac":
		device = pick(m, link.Address, strings.ToUpper(link.Address), strings.ReplaceAll(link.Address, ":", "-"), device)
	case "kernelpath":
		device = pick(m, "/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.2", "/sys/devices/../bus/pci/devices/"+device, "/sys/devices/../bus/auxiliary/devices/"+device,
			"/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/virtfn1", "/sys/devices/../class", "/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/"+device, "/sys/devices/../../sys/class/net/"+link.Name+"/device")
	}
	if m.IntN(4) == 0 {
		device = fmt.Sprintf(pick(m, "./%s", "%s/", "%s/.", "../devices/%s", " %s", "%s ", "%s\x00", "%s\n", "//%s", "x/../%s"), device)
	}
	quoted, _ := json.Marshal(device)
	return string(quoted)
}
