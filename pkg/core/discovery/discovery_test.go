package discovery_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/test/difftest"
)

const pod = "/run/netns/pod"

// load reads a host of this package's testdata, or else a captured host.
func load(t testing.TB, name string) *capturefile.Host {
	t.Helper()
	return parse(t, hostText(t, name))
}

func parse(t testing.TB, text []byte) *capturefile.Host {
	t.Helper()
	h, err := capturefile.Parse(text)
	difftest.Must(t, err)
	return h
}

func hostText(t testing.TB, name string) []byte {
	t.Helper()
	if driver, ports, ok := strings.Cut(name, "*"); ok {
		n, err := strconv.Atoi(ports)
		difftest.Must(t, err)
		return capturetest.Ports(driver, n)
	}
	if text, err := os.ReadFile("testdata/" + name + ".txtar"); err == nil {
		return text
	}
	return capturetest.Text(t, name)
}

// parents matches the attributes of an interface that kernels before 5.14 do not have. Only ethtool's bus-info
// remains.
var parents = regexp.MustCompile(`,"parent(bus|dev)":"[^"]*"`)

var on = checktest.Finder

// hostNetwork puts the host's own interfaces into the pod.
type hostNetwork struct{ discovery.Interfaces }

func (n hostNetwork) Interface(_, name string) (link.Interface, error) {
	return n.Interfaces.Interface("", name)
}

// interfaces has the same interfaces in every namespace.
type interfaces map[string]link.Interface

func (m interfaces) Interface(_, name string) (link.Interface, error) {
	i, ok := m[name]
	if !ok {
		return i, link.ErrNoInterface
	}
	return i, nil
}

func (interfaces) VDPAMAC(string) (net.HardwareAddr, bool, error) { return nil, false, nil }
func (interfaces) WithMAC(net.HardwareAddr) ([]string, error)     { return nil, nil }

func info(t testing.TB, text string) *devinfo.Info {
	t.Helper()
	i, err := devinfo.Parse([]byte(text))
	difftest.Must(t, err)
	return i
}

// show formats a Device or an error, one fact a line as "key value < source". It also checks that Info and
// Facts agree.
func show(t testing.TB, d *discovery.Device, err error) string {
	t.Helper()
	difftest.Same(t, fmt.Sprint("a device with the error ", err), err != nil && d != nil, false)
	difftest.Same(t, "the interface's own device is reached from elsewhere", d != nil && d.IsInterface && !d.ReachedFromInterface, false)
	var conflict *discovery.ConflictError
	switch {
	case errors.As(err, &conflict):
		return "conflict: " + conflict.Error()
	case err != nil:
		return "error: " + err.Error()
	}
	var lines []string
	sourced := map[string]string{}
	for _, f := range d.Facts {
		lines = append(lines, fmt.Sprintf("%s %s < %s", f.Key, f.Value, f.Source))
		sourced[f.Key] = f.Value
	}
	if held := flat(t, d.Info); len(sourced) != len(d.Facts) || !reflect.DeepEqual(held, sourced) {
		t.Errorf("Info has  %v,\nFacts have %v", held, sourced)
	}
	for _, flag := range []struct {
		set  bool
		name string
	}{{d.InNetns, "in netns"}, {d.Shared, "shared"}, {d.MaybeShared, "may be shared"}, {d.IsInterface, "own"}} {
		if flag.set {
			lines = append(lines, flag.name)
		}
	}
	if d.SF != "" {
		lines = append(lines, "on "+d.SF)
	}
	if d.Virtual && d.Info == nil && d.Problem == nil {
		lines = append(lines, strings.TrimSpace("virtual "+d.Below))
	}
	for _, w := range d.Warnings {
		lines = append(lines, "warning: "+w)
	}
	switch p := d.Problem.(type) {
	case nil:
	case *discovery.MissingError:
		lines = append(lines, "missing: "+p.Error())
	case *discovery.UndescribableError:
		lines = append(lines, "undescribable: "+p.Error())
	default:
		t.Errorf("Problem is a %T: %v", p, p)
	}
	return strings.Join(lines, "\n")
}

// flat returns the values of a description by keys such as "pci.pci-address". It fails if the description has
// the map of another type.
func flat(t testing.TB, i *devinfo.Info) map[string]string {
	t.Helper()
	all := map[string]string{}
	if i == nil {
		return all
	}
	var maps map[string]json.RawMessage
	difftest.Must(t, json.Unmarshal(i.Encode(), &maps))
	delete(maps, "type")
	for name, raw := range maps {
		if name != string(i.Type) {
			t.Errorf("a %s has a %q", i.Type, name)
			continue
		}
		var values map[string]string
		difftest.Must(t, json.Unmarshal(raw, &values))
		for key, value := range values {
			all[name+"."+key] = value
		}
	}
	return all
}

// find compares the output of show with want, whose lines may be indented.
func find(t *testing.T, f *discovery.Finder, target discovery.Target, want string) {
	t.Helper()
	device, err := f.Find(target)
	got := show(t, device, err)
	var lines []string
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	difftest.Equal(t, got, strings.Join(lines, "\n"))
}

func byID(id string) discovery.Target {
	return discovery.Target{DeviceIDs: ids("deviceID", id)}
}

func ids(key, id string) []config.NamedID { return []config.NamedID{{Key: key, ID: id}} }

func inPod(ifName string) discovery.Target {
	return discovery.Target{Netns: pod, IfName: ifName, FollowLower: true}
}
