package capture_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// noParts are no files below netlink/.
func noParts([]string) (map[string][]byte, []string, error) { return nil, nil, nil }

const secretMAC = "b8:ce:f6:3a:0b:1c"

// said contains every spelling of the secrets in the host that revealing returns. The list is written by hand, so
// that it does not depend on the scrubber.
var said = []string{
	// the hardware address, its EUI-64 in both forms, and an interface name with it
	"b8:ce:f6:3a:0b:1c", "b8-ce-f6-3a-0b-1c", "b8ce.f63a.0b1c", "b8cef63a0b1c",
	"b8cef6fffe3a0b1c", "bacef6fffe3a0b1c", "b8ce:f6ff:fe3a:0b1c", "bace:f6ff:fe3a:b1c", "ba:ce:f6:ff:fe:3a:0b:1c",
	// another GUID with the address, the switch ID, and the InfiniBand address
	"b8ce:f603:003a:0b1c", "b8cef603003a0b1c", "0002:c903:00de:ad01", "0002c90300dead01", "2:c903:de:ad01", "00:02:c9:03:00:de:ad:01",
	"10.244.3.17", "10.244.3.1", "192.168.7.0", "fe80::bace:f6ff:fe3a:b1c", "fd00:10:244::2a", "FD00:10:244::2A", "fd00:10:244:0:0:0:0:2a",
	"checkout-7d4b9c-x2x1z", "shop-prod", "checkout-claim-7", "0d3f9a52-5f0c-4f6c-9d7e-3a1c5b7e9f01",
	"SN-4711-0815", "rack7.example.net", "rack7",
	"3a:0b:1d", "fd00:10:244::5b", // a hardware address after a label that looks like a part of it, and an IP address that has only this form
	"0002c90300dead02", // the GUID in an InfiniBand address, in another form
}

// revealing returns a host that contains each of the spellings. Fields that no command reads, and corrupt records,
// contain keys.
func revealing(t *testing.T) capture.Source {
	root := t.TempDir()
	node := config.DefaultNode()
	write := func(name, text string) { difftest.Write(t, filepath.Join(root, name), text, 0o600) }
	write(node.StateDir+"/attachments/net@c0ffee@net1", `{"network":"net","containerID":"c0ffee","ifName":"net1","netns":"/run/netns/a","bootID":"boot","time":"2026-11-21T04:39:00Z",`+
		`"file":"0d3f9a52-5f0c-4f6c-9d7e-3a1c5b7e9f01-net1.json","dir":"`+node.DeviceInfoDir+`","before":"aHVudGVyMg==","wrote":true,"inNetns":true,"interface":"0000:3b:00.2","device":{"type":"pci","id":"0000:3b:00.2"},`+
		`"args":"IgnoreUnknown=1;K8S_POD_NAME=checkout-7d4b9c-x2x1z;K8S_POD_NAMESPACE=shop-prod;K8S_POD_UID=0d3f9a52-5f0c-4f6c-9d7e-3a1c5b7e9f01;VAULT=swordfish",`+
		`"capabilityArgs":{"deviceID":"0000:3b:00.2","mac":"B8:CE:F6:3A:0B:1C","io.kubernetes.cri.pod-annotations":{"owner":"payments-team"}},`+
		`"delegates":[{"type":"sriov","name":"net","cniVersion":"1.0.0","ipam":{"token":"hunter2"}}],`+
		`"result":{"cniVersion":"1.0.0","dns":{"search":["corp.example"]}}}`+"\n")
	write(node.StateDir+"/attachments/net@odd@net1", `{"format":3,"schema":1,"network":5,"reason":"open sesame"}`)
	write(node.StateDir+"/attachments/net@torn@net1", `{"network":"net","containerID":"torn","delegates":[{"type":"sriov","key":"open sesame"`)
	write(node.StateDir+"/claims/u1", `{"format":3,"uid":"u1","namespace":"shop-prod","name":"checkout-claim-7","pods":["0d3f9a52-5f0c-4f6c-9d7e-3a1c5b7e9f01"],"leases":[{"id":"pci-0000:3b:00.2","mode":"exclusive"}]}`+"\n")
	write("/claims/offer", `{"devices":[{"name":"vf0","why":"pod shop/web has it"},{"name":"vf1","why":"claim shop/net has it"}]}`)
	write("/claims/torn.json", `{"uid":"u3","attachments":[{"list":{"key":"open sesame"`)
	write(node.StateDir+"/claims/u2", `{"uid":"u2","name":"open sesame`)
	write(node.DeviceInfoDir+"/0d3f9a52-5f0c-4f6c-9d7e-3a1c5b7e9f01-net1.json", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:00.2"}}`+"\n")
	write(node.DeviceInfoDir+"/odd.json", strings.Join(said[:15], " ")+"\n"+strings.ToUpper(strings.Join(said[:25], ";"))+" no newline at the end")
	write(node.DevicePluginDir+"/sn.json", `{"serial":"SN-4711-0815","host":"rack7.example.net","at":"tcp:10.244.3.17:8080","label":"a:b8:ce:f6:3a:0b:1d","dns":"dns:fd00:10:244::5b","guid":"0002c90300dead02","xbox1y":"xrack42y","mac":"`+secretMAC+`","address":"10.244.3.17/24","gateway":"10.244.3.1","net":"192.168.7.0/24","ll":"addr:fe80::bace:f6ff:fe3a:b1c%eth0"}`+"\n")
	return capture.Source{
		Name: "rack7", Title: "machine rack7.example.net, Linux 6.12.1", Root: root,
		State:   capture.State{BootID: "boot", Time: time.Unix(0, 0).UTC(), Settings: node, ClaimDir: "/claims"},
		Secrets: []string{"SN-4711-0815", "rack7.example.net", "rack7", "rack42", "box1"},
		Facts:   map[string]any{"live": json.RawMessage(`{"devices":[{"pod":"shop/web","device":"0000:3b:00.2"}]}`)},
		Sys: fstest.MapFS{
			"class/net/enxb8cef63a0b1c":                          link("../../devices/virtual/net/enxb8cef63a0b1c"),
			"devices/virtual/net/enxb8cef63a0b1c/subsystem":      link("../../../../class/net"),
			"devices/virtual/net/enxb8cef63a0b1c/address":        &fstest.MapFile{Data: []byte(secretMAC + "\n"), Mode: 0o444},
			"class/infiniband/mlx5_0":                            link("../../devices/pci0/infiniband/mlx5_0"),
			"devices/pci0/infiniband/mlx5_0/node_guid":           &fstest.MapFile{Data: []byte("0002:c903:00de:ad01\n"), Mode: 0o444},
			"devices/virtual/net/enxb8cef63a0b1c/phys_switch_id": &fstest.MapFile{Data: []byte("b8cef603003a0b1c\n"), Mode: 0o444},
		},
		Parts: func([]string) (map[string][]byte, []string, error) {
			return map[string][]byte{
				"ip-link.json": []byte(`[{"ifindex":2,"ifname":"enxb8cef63a0b1c","address":"` + secretMAC + `","permaddr":"b8:ce:f6:3a:0b:1d","phys_switch_id":"b8cef603003a0b1c"},` +
					`{"ifindex":3,"ifname":"ib0","address":"80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:de:ad:02"},{"ifindex":1,"ifname":"lo","address":"00:00:00:00:00:00"}]` + "\n"),
			}, nil, nil
		},
	}
}

func link(target string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(target), Mode: os.ModeSymlink | 0o777}
}

func taken(t *testing.T, h capture.Source, scrub bool) string {
	t.Helper()
	if h.Scrub = scrub; scrub {
		h.Name = "host"
	}
	text, _, err := capture.Take(h)
	difftest.Must(t, err)
	return string(text)
}

func TestScrubRemovesSecretsInEverySpelling(t *testing.T) {
	h := revealing(t)
	before, after := everything(t, taken(t, h, false)), everything(t, taken(t, h, true))
	for _, secret := range said {
		if secret = strings.ToLower(secret); strings.Contains(after, secret) {
			t.Errorf("%q survives in\n%s", secret, after)
		}
		difftest.Contains(t, before, secret)
	}
	difftest.Lacks(t, before, "hunter2", "corp.example", "payments-team", "swordfish", "open sesame", strings.ToLower("aHVudGVyMg=="))
}

// everything returns the text and its decoded base64 data in lower case.
func everything(t *testing.T, text string) string {
	t.Helper()
	all, dir := text, unpacked(t, text)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			data, readErr := os.ReadFile(path)
			all, err = all+path[len(dir):]+"\n"+string(data), readErr
		}
		return err
	})
	difftest.Must(t, err)
	return strings.ToLower(all)
}

// unpacked unpacks a capture and returns the directory.
func unpacked(t *testing.T, text string) (dir string) {
	t.Helper()
	h, err := capturefile.Parse([]byte(text))
	difftest.Must(t, err)
	dir = t.TempDir()
	difftest.Must(t, h.UnpackRoot(dir))
	return dir
}

func TestScrubRenamesConsistently(t *testing.T) {
	text := taken(t, revealing(t), true)
	h, err := capturefile.Parse([]byte(text))
	difftest.Must(t, err)
	mac := regexp.MustCompile(`"address":"(02:[0-9a-f:]+)"`).FindStringSubmatch(text)[1]
	hw, err := net.ParseMAC(mac)
	difftest.Must(t, err)
	name := fmt.Sprintf("enx%x", []byte(hw))
	for what, want := range map[string]string{
		"the interface named after its address": `"ifname":"` + name + `","address":"` + mac + `"`,
		"its attribute":                         "/net/" + name + "/address --\n" + mac + "\n",
		"the address in a file":                 `"mac":"` + mac + `"`,
		"the file of the entry":                 `"file":"uid-1-net1.json"`,
		"the file itself":                       "-- root/var/run/k8s.cni.cncf.io/devinfo/cni/uid-1-net1.json --",
		"the zero address":                      `"ifname":"lo","address":"00:00:00:00:00:00"`,
		"the device":                            `"id":"0000:3b:00.2"`,
		"the interface in the entry":            `"interface":"0000:3b:00.2"`,
		"the pod of a device":                   `"pod": "namespace-2/pod-2"`,
		"the pod that has it":                   `"why":"pod namespace-2/pod-2 has it"`,
		"the claim that has it":                 `"why":"claim namespace-2/claim-2 has it"`,
		"the corrupt record":                    "Missing: /claims/torn.json: the record is corrupt, its content is left out\n",
		"a short word and a long one in others": `"xbox1y":"xsecret-4y"`,
		"the first line":                        "host: machine secret-2, Linux 6.12.1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: no %q in\n%s", what, want, text)
		}
	}
	_, err = linkhost.New(h)
	difftest.Must(t, err)
	sorted := slices.IsSortedFunc(txtar.Parse([]byte(text)).Files, func(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) })
	difftest.Same(t, "the entries tell nothing of the order of former names", sorted, true)
	difftest.Same(t, "the same host again", taken(t, revealing(t), true), text)
	for _, a := range regexp.MustCompile(`"(?:address|gateway)":"([0-9.]+)[/"]`).FindAllStringSubmatch(text, -1) {
		if ip, err := netip.ParseAddr(a[1]); err != nil || !netip.MustParsePrefix("198.18.0.0/15").Contains(ip) {
			t.Errorf("%s, %v", a[1], err)
		}
	}
}

// addresses returns the hardware addresses and GUIDs in a text, except all-zero and all-one ones.
func addresses(text string) []string {
	found := regexp.MustCompile(`(?i)[0-9a-f]{2}(:[0-9a-f]{2}){5}|[0-9a-f]{2}(-[0-9a-f]{2}){5}|\b[0-9a-f]{4}(:[0-9a-f]{4}){3}\b`).FindAllString(strings.ToLower(text), -1)
	return slices.DeleteFunc(found, func(a string) bool { return strings.Trim(a, "0:-") == "" || strings.Trim(a, "f:-") == "" })
}

// The captured hosts in testdata contain real hardware addresses.
func TestScrubReplacesEveryHardwareAddress(t *testing.T) {
	for _, name := range capturetest.Names(t) {
		h := capturetest.Load(t, name)
		parts := func([]string) (map[string][]byte, []string, error) { return h.Netlink(), nil, nil }
		source := capture.Source{Name: "x", Title: "y", Sys: h.Sys(), Root: t.TempDir(), Parts: parts, State: capture.State{Settings: config.DefaultNode()}}
		before, after := addresses(taken(t, source, false)), taken(t, source, true)
		for _, a := range before {
			if strings.Contains(after, a) || strings.Contains(after, strings.ReplaceAll(a, ":", "")) {
				t.Errorf("%s: %s survives", name, a)
			}
		}
		if len(before) == 0 {
			t.Errorf("%s has no address", name)
		}
	}
}

// FuzzFile checks that a capture preserves every file exactly. A scrubbed capture must be readable, and must not
// contain a hardware address of the file.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"", "\n-- a --\n", "-- a --", "\r\n", "a\n-- ", "\xff\x00", `{"mac": "02-00-5e-00-53-01", "ip": "fe80::5eff:fe00:5301", "args": "K8S_POD_NAME=0;K8S_POD_UID=02:00"}`,
		"enx02005e005301 0200.5e00.5301 10.0.0.1/8 ::ffff:10.0.0.1", `"phys_switch_id": "02005e005301"`,
	} {
		f.Add([]byte(text), "02")
	}
	f.Add([]byte(strings.Repeat("\xff", 20)+"{\"mac\": \"02:00:5e:00:53:01\"}\xe2"), "box")
	f.Fuzz(func(t *testing.T, data []byte, secret string) {
		secret = regexp.MustCompile(`[^a-zA-Z0-9]+`).ReplaceAllString(secret, "")
		node, root := config.DefaultNode(), t.TempDir()
		name := node.DeviceInfoDir + "/net1.json"
		difftest.Write(t, root+name, string(data), 0o600)
		h := capture.Source{Name: "x", Title: "y", Sys: fstest.MapFS{}, Root: root, Parts: noParts, State: capture.State{Settings: node}, Secrets: []string{secret}}
		if back, err := os.ReadFile(unpacked(t, taken(t, h, false)) + name); err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%q is read back as %q, %v", data, back, err)
		}
		scrubbed := everything(t, taken(t, h, true))
		difftest.Lacks(t, scrubbed, addresses(string(data))...)
	})
}

// A network may have {podName} in the path of its socket, and the pod's name may be a common word.
func TestScrubRenamesPodsInSocketPaths(t *testing.T) {
	root, node := t.TempDir(), config.DefaultNode()
	j := journal.Open(filepath.Join(root, node.StateDir), "boot")
	e := journal.Entry{
		Key: journal.Key{Network: "net", ContainerID: "c0ffee", IfName: "net1"}, Args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=mem",
		Device: journal.Identity{Type: "memif", ID: "/run/vpp-shop/mem-net1-memif.sock"}, SocketDir: "/run/vpp-shop",
		Info: json.RawMessage(`{"type": "memif", "version": "1.1.0", "memif": {"role": "master", "path": "/run/vpp-shop/mem-net1-memif.sock", "mode": "ip"}}`),
	}
	difftest.Must(t, j.Put(&e, nil))
	e.Unlock()
	got := taken(t, capture.Source{Name: "x", Title: "y", Sys: fstest.MapFS{}, Root: root, Parts: noParts, State: capture.State{BootID: "boot", Settings: node}}, true)
	if strings.Contains(got, "shop") || strings.Contains(got, "/mem-") || strings.Count(got, "/run/vpp-namespace-1/pod-1-net1-memif.sock") != 2 || !strings.Contains(got, `"type":"memif"`) {
		t.Error(got)
	}
}

func TestCaptureIncludesFilesOfAttachmentsInAnyDirectory(t *testing.T) {
	root := t.TempDir()
	node := config.DefaultNode()
	node.DevicePluginDir = "" // there is none
	j := journal.Open(filepath.Join(root, node.StateDir), "boot")
	e := journal.Entry{
		Key: journal.Key{Network: "net", ContainerID: "c0ffee", IfName: "net1"}, Netns: "/run/netns/a", Dir: "/elsewhere", File: "f.json",
		Leases: []journal.DeviceLease{{ID: "pci-0000:03:00.5", Mode: journal.Exclusive}},
		CDI:    journal.CDI{Dir: "/run/cdi2", File: "vendor.example-nic_x.json", Device: "vendor.example/nic=x"},
	}
	difftest.Must(t, j.Put(&e, nil))
	e.Unlock()
	difftest.Write(t, root+node.StateDir+"/attachments/net@adding@net1", `{"network": "net", "containerID": "adding", "ifName": "net1"}`, 0o600) // without a namespace
	files := map[string]bool{
		"/elsewhere/f.json": true, "/run/cdi2/vendor.example-nic_x.json": true, "/var/run/cdi/devinfo-cni.io-attachment_a.json": true,
		"/var/run/cdi/other.json": false, "/elsewhere/other.json": false, "/other.json": false,
	}
	for name := range files {
		difftest.Write(t, root+name, "-- odd -- \xff", 0o600)
	}
	asked := func(netns []string) (map[string][]byte, []string, error) {
		difftest.Same(t, "network namespaces", netns, []string{"/run/netns/a"})
		return noParts(netns)
	}
	dir := unpacked(t, taken(t, capture.Source{Name: "x", Title: "y", Sys: fstest.MapFS{}, Root: root, Parts: asked, State: capture.State{BootID: "boot", Settings: node}}, false))
	for name, want := range files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if (err == nil) != want || want && string(data) != "-- odd -- \xff" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	j = journal.Open(filepath.Join(dir, node.StateDir), "boot")
	got, err := j.Get(e.Key)
	if err != nil || got == nil || got.Netns != e.Netns || !slices.Equal(j.Devices(got), e.Leases) {
		t.Errorf("the journal has %+v, %v", got, err)
	}
}

func TestCaptureOfCapturedHostIsIdentical(t *testing.T) {
	for _, name := range capturetest.Names(t) {
		ar, err := txtar.ParseFile("../../../testdata/hosts/" + name + ".txtar")
		difftest.Must(t, err)
		got, denied, err := capture.Sys(capturetest.Load(t, name).Sys())
		if err != nil || denied != 0 {
			t.Errorf("%s: %d denied, %v", name, denied, err)
		}
		want := sysOf(ar.Files)
		maps.DeleteFunc(want, func(entry, _ string) bool { return storage.MatchString(entry) })
		difftest.Same(t, "the capture of "+name, sysOf(got), want)
	}
}

// A capture either says that a read failed, or has what it has without the failure.
func TestCaptureDoesNotOmitWhatItCannotRead(t *testing.T) {
	for _, name := range []string{"igb-sriov", "mlx5-vdpa", "virtio-vm", "erdma", "pds-vdpa"} {
		var want map[string]string
		capturetest.EachFailure(capturetest.Load(t, name).Sys(), func(sys fs.FS, failed *string) {
			entries, _, err := capture.Sys(sys)
			got := sysOf(entries)
			if want == nil {
				difftest.Must(t, err)
				want = got
			}
			if _, told := got["sys/"+*failed+" !EIO"]; err == nil && !told && !maps.Equal(got, want) {
				t.Errorf("%s: %s fails, and nothing says so", name, *failed)
			}
		})
	}
}

// Files of other programs may be of any size and type. Opening a named pipe blocks until a writer opens it.
func TestCaptureNotesWhatItLeavesOut(t *testing.T) {
	root, node := t.TempDir(), config.DefaultNode()
	difftest.Write(t, root+node.DevicePluginDir, "", 0o600)
	difftest.Write(t, root+node.StateDir+"/leases", "", 0o600)
	difftest.Write(t, root+node.DeviceInfoDir+"/most", "", 0o600)
	difftest.Write(t, root+node.DeviceInfoDir+"/more", "", 0o600)
	difftest.Must(t, syscall.Mkfifo(root+node.DeviceInfoDir+"/pipe", 0o600), os.Truncate(root+node.DeviceInfoDir+"/most", 4<<20), os.Truncate(root+node.DeviceInfoDir+"/more", 4<<20+1))
	difftest.Must(t, os.Symlink("/etc/passwd", root+node.DeviceInfoDir+"/strange"))
	difftest.Write(t, root+node.StateDir+"/claims/u9", `{"format": 99, "uid": 9}`, 0o600) // of a newer devinfo, so it is not corrupt
	difftest.Write(t, root+node.StateDir+"/attachments/net@a@net1", `{"dir":"`+node.DevicePluginDir+`","file":"x"}`, 0o600)
	h, err := capturefile.Parse([]byte("x: y\n-- sys/class/net/e0 -> ../../devices/e0 --\n-- sys/devices/e0/address !EACCES --\n-- sys/devices/e0/type !EACCES --\n-- sys/devices/e0/dev_port !EINVAL --\n-- sys/devices/e0/power/ --\n" +
		"-- sys/bus/pci/devices/f -> ../../../devices/f --\n-- sys/devices/f/class --\n0x020000\n-- sys/devices/f/iommu_group -> ../../kernel/iommu_groups/7 --\n-- sys/kernel/iommu_groups/7/name --\nvfio-noiommu\n"))
	difftest.Must(t, err)
	text, notes, err := capture.Take(capture.Source{Name: "x", Title: "y", Root: root, Parts: noParts, Sys: h.Sys(), State: capture.State{Settings: node}})
	difftest.Must(t, err)
	difftest.Lacks(t, string(text), "power")
	difftest.Contains(t, string(text), "-- sys/kernel/iommu_groups/7/name --\nvfio-noiommu\n")
	difftest.Equal(t, notes, []string{node.DevicePluginDir + "/x: not a directory", node.StateDir + "/leases: not a directory", node.DeviceInfoDir + "/more is left out, because it has 4194305 bytes", node.DeviceInfoDir + `/strange: the link leads out of root/: "/etc/passwd"`, node.DevicePluginDir + ": not a directory", "2 attributes in /sys may be read by root only"})
	difftest.Holds(t, unpacked(t, string(text))+node.DeviceInfoDir, "most")
	// It does not wait at a regular file either: another program may have replaced it by a pipe since it was seen, or hold it.
	held, err := os.OpenFile(root+node.DeviceInfoDir+"/most", os.O_RDWR, 0)
	difftest.Must(t, err)
	defer held.Close()
	_, err = unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	difftest.Must(t, err)
	_, notes, err = capture.Take(capture.Source{Name: "x", Title: "y", Root: root, Parts: noParts, Sys: fstest.MapFS{}, State: capture.State{Settings: node}})
	difftest.Must(t, err)
	difftest.Contains(t, strings.Join(notes, "\n"), node.DeviceInfoDir+"/most: resource temporarily unavailable\n")
	difftest.Lacks(t, strings.Join(notes, "\n"), "may be read by root only")
}

// unreadable is a /sys whose directories cannot be read.
type unreadable struct{}

func (unreadable) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EIO}
}

func TestFailedReadEndsTheCapture(t *testing.T) {
	failing := func([]string) (map[string][]byte, []string, error) { return nil, nil, syscall.EIO }
	invalid := func([]string) (map[string][]byte, []string, error) {
		return map[string][]byte{"ip-link.json": []byte("no JSON\n")}, nil, nil
	}
	for name, h := range map[string]capture.Source{
		"netlink": {Sys: fstest.MapFS{}, Parts: failing}, "its text": {Sys: fstest.MapFS{}, Parts: invalid}, "/sys": {Sys: unreadable{}, Parts: noParts}, "facts": {Sys: fstest.MapFS{}, Parts: noParts, Facts: map[string]any{"live": failing}},
	} {
		h.Name, h.Title, h.Root = "x", "y", t.TempDir()
		if text, _, err := capture.Take(h); err == nil || text != nil {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
}

// storage matches the entries of the storage controller in testdata/hosts that has network controllers below it.
var storage = regexp.MustCompile(`/0000:00:0e\.0/[a-z_]+( |$)|devices/0000:00:0e\.0 ->|/drivers/vmd/`)

// sysOf returns the entries below sys/ by name.
func sysOf(files []txtar.File) map[string]string {
	sys := map[string]string{}
	for _, f := range files {
		if strings.HasPrefix(f.Name, "sys/") {
			sys[f.Name] = string(f.Data)
		}
	}
	return sys
}

func TestSecretsAreNamesAndSerialNumbersOfMachine(t *testing.T) {
	sysfs := t.TempDir()
	host, err := os.Hostname()
	difftest.Must(t, err)
	want := []string{host}
	for _, file := range []string{"product_serial", "product_uuid", "board_serial", "chassis_serial"} {
		want = append(want, "SN "+file)
		difftest.Write(t, filepath.Join(sysfs, "class/dmi/id", file), "SN "+file+"\n", 0o600)
	}
	got := capture.Secrets(sysfs)
	for _, secret := range want {
		if !slices.Contains(got, secret) {
			t.Errorf("%q is not among %q", secret, got)
		}
	}
}

// The offer excludes the interfaces of default routes, also on a captured host.
func TestCaptureContainsUplinks(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		up, peer := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "peer"}, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "peer"}}
		difftest.Must(t, netlink.LinkAdd(up), netlink.LinkSetUp(up), netlink.LinkSetUp(peer))
		difftest.Must(t, netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, LinkIndex: up.Index}))
		sys, err := sysfs.Open("/sys")
		difftest.Must(t, err)
		text, _, err := capture.Take(capture.Source{Title: "a host", Name: "box", Sys: sys.Files(), Parts: capture.KernelParts, Root: t.TempDir(), Scrub: true})
		difftest.Must(t, err)
		file, err := capturefile.Parse(text)
		difftest.Must(t, err)
		captured, err := inventory.Captured(file)
		difftest.Must(t, err)
		difftest.Equal(t, captured.Uplinks, []string{"up0"})
		difftest.Must(t, os.Symlink("/run/loop", "/run/loop"))
		parts, notes, err := capture.KernelParts([]string{"/proc/self/ns/net", "/run/none", "/run/loop"})
		difftest.Must(t, err)
		difftest.Contains(t, string(parts["netns.json"]), `"ifname":"up0"`, `"/run/loop":null`)
		difftest.Lacks(t, string(parts["netns.json"]), "/run/none")
		difftest.Contains(t, strings.Join(notes, "\n"), "the interfaces in /run/loop: ")
	})
}

// The test fails for a new field of a record until one of the two lists contains it.
func TestCaptureContainsOnlyFieldsThatCommandsRead(t *testing.T) {
	node := config.DefaultNode()
	for file, c := range map[string]struct {
		record any
		shown  string
	}{
		node.StateDir + "/attachments/net@c0ffee@net1": {new(journal.Entry),
			`Key.Network Key.ContainerID Key.IfName Netns BootID Pod Requested.DeviceIDs[].Key Requested.DeviceIDs[].ID Requested.Declared Requested.PCIID
			Requested.SocketPath File Dir Info Interface Device.Type Device.ID CDI.Dir CDI.File CDI.Device SocketDir Reason Refused Leases[].ID Leases[].Mode`},
		node.StateDir + "/claims/u1": {new(journal.Claim), `UID Part Namespace Name BootID Pods[] Netns Leases[].ID Leases[].Mode`},
		"/claims/u1.json": {new(state.Claim),
			`Namespace Name UID Pod.Namespace Pod.Name Pod.UID Attachments[].Request Attachments[].Pool
			Attachments[].Device Attachments[].ShareID Attachments[].NodeDevice.Ref.Kind Attachments[].NodeDevice.Ref.PCI Attachments[].NodeDevice.Ref.PortOf Attachments[].NodeDevice.Reset Attachments[].NodeDevice.Ref.Aux Attachments[].NodeDevice.Ref.VDPA
			Attachments[].NodeDevice.Ref.IfName Attachments[].Driver Attachments[].Network Attachments[].CNIVersion Attachments[].IfName Attachments[].Phase
			Attachments[].Error Attachments[].Ready.Status Attachments[].Execution.Sandbox Attachments[].Execution.Netns
			Attachments[].Execution.BootID Attachments[].Execution.InfoFile Attachments[].Execution.Info Attachments[].Execution.DelError
			Undeleted[].Request Undeleted[].Pool Undeleted[].Device Undeleted[].ShareID Undeleted[].NodeDevice.Ref.Kind Undeleted[].NodeDevice.Ref.PCI Undeleted[].NodeDevice.Ref.PortOf Undeleted[].NodeDevice.Reset
			Undeleted[].NodeDevice.Ref.Aux Undeleted[].NodeDevice.Ref.VDPA Undeleted[].NodeDevice.Ref.IfName Undeleted[].Driver Undeleted[].Network
			Undeleted[].CNIVersion Undeleted[].IfName Undeleted[].Phase Undeleted[].Error Undeleted[].Ready.Status
			Undeleted[].Execution.Sandbox Undeleted[].Execution.Netns Undeleted[].Execution.BootID Undeleted[].Execution.InfoFile
			Undeleted[].Execution.Info Undeleted[].Execution.DelError`},
		"/claims/offer": {new(state.Offer),
			`Rules Problem Devices[].Name Devices[].Ref.Kind Devices[].Ref.PCI Devices[].Ref.PortOf Devices[].Ref.Aux Devices[].Ref.VDPA Devices[].Ref.IfName Devices[].Sharing
			Devices[].ResourceName Devices[].Why Unmatched[].Rule Unmatched[].Why Unmatched[].Nearest`},
	} {
		root, planted := t.TempDir(), map[string]bool{}
		plant(reflect.ValueOf(c.record).Elem(), "", planted)
		text, err := json.Marshal(c.record)
		difftest.Must(t, err)
		text = []byte(`{"unknown":"{unknown}",` + string(text[1:]))
		difftest.Write(t, filepath.Join(root, file), string(text), 0o600)
		difftest.Contains(t, string(text), slices.Collect(maps.Keys(planted))...)
		got := taken(t, capture.Source{Name: "x", Title: "y", Sys: fstest.MapFS{}, Root: root, Parts: noParts, State: capture.State{Settings: node, ClaimDir: "/claims"}}, false)
		var shown []string
		for _, m := range secrets.FindAllStringSubmatch(got, -1) {
			shown = append(shown, m[1])
		}
		want := strings.Fields(c.shown)
		slices.Sort(want)
		slices.Sort(shown)
		difftest.Same(t, file, slices.Compact(shown), want)
	}
}

var secrets = regexp.MustCompile(`\{([A-Za-z.\[\]]+)\}`)

// plant writes a secret with the field's path into each field that can contain text, and adds it to planted.
func plant(v reflect.Value, path string, planted map[string]bool) {
	_, encodesItself := v.Addr().Interface().(json.Marshaler)
	secret := "{" + strings.TrimPrefix(path, ".") + "}"
	switch {
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes(fmt.Appendf(nil, `{"type":"x","key":%q}`, secret))
		planted[secret] = true
	case encodesItself: // times and quantities
	case v.Kind() == reflect.String:
		v.SetString(secret)
		planted[secret] = true
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		plant(v.Elem(), path, planted)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), path+"[]", planted)
	case v.Kind() == reflect.Array:
		for n := range v.Len() {
			plant(v.Index(n), path+"[]", planted)
		}
	case v.Kind() == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		plant(key, path+".key", planted)
		plant(value, path+".value", planted)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Struct:
		for n := range v.NumField() {
			if f := v.Type().Field(n); f.IsExported() {
				plant(v.Field(n), path+"."+f.Name, planted)
			}
		}
	}
}
