package node_test

import (
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// Links in a captured host must not lead to files of this machine.
func TestPathsStayInTheCapturedHost(t *testing.T) {
	n := node.Node{Options: node.Options{Root: "/tmp/x"}}
	for name, want := range map[string]string{"/etc/a": "/tmp/x/etc/a", "/../../etc/a": "/tmp/x/etc/a", "a/../..": "/tmp/x"} {
		difftest.Same(t, name, n.Path(name), want)
	}
}

func attachment(pod, network, container, ifName string) node.Attachment {
	namespace, pod, _ := strings.Cut(pod, "/")
	return node.Attachment{Identity: node.Identity{Namespace: namespace, Pod: pod, Network: network, ContainerID: container, Interface: ifName}}
}

func TestNameMatchesPodThenNetworkThenContainer(t *testing.T) {
	list := []node.Attachment{
		attachment("shop/web", "blue", "c0ffee", "net1"), attachment("shop/web", "red", "c0ffee", "net2"),
		attachment("test/web", "blue", "c0de", "net1"), attachment("shop/blue", "red", "beef", "net1"),
		attachment("", "red", "web", "net1"), {Identity: node.Identity{Namespace: "shop", Claim: "vf"}},
		attachment("lab/ovs", "sriov", "fade", "net1"),
	}
	list[len(list)-1].Facts = node.Facts{Representor: "tap5", DeviceInfo: []byte(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.5", "representor-device": "pf0vf5"}}`)}
	n := node.Node{Options: node.Options{Finder: &discovery.Finder{Interfaces: &counting{}}}}
	goldentest.Lines(t, "testdata/names.txt", func(name string) (found []string) {
		name = strings.Trim(name, `"`)
		chosen, err := n.Choose(list, name)
		for _, a := range chosen {
			found = append(found, a.String())
		}
		if err == nil {
			return found
		}
		difftest.Same(t, name, err.Error(), name+": no attachment of a pod, network, container or device with this name")
		return []string{"none"}
	})
}

// What inspect shows of a device, whatever names it, is all that there is, or it says what it could not read.
func TestInspectDoesNotOmitWhatItCannotRead(t *testing.T) {
	file := capturetest.Load(t, "mlx5-switchdev")
	for _, name := range []string{"0000:03:00.2", "mlx5_core.sf.4", "mlx5_4", "mlx5_7", "p0", "eth4", "none"} {
		var want *node.Inspection
		capturetest.EachFailure(file.Sys(), func(files fs.FS, failed *string) {
			host, err := linkhost.New(file)
			difftest.Must(t, err)
			n := node.Open(node.Options{Finder: &discovery.Finder{Sys: sysfs.New(files), Interfaces: host, Eswitches: host}})
			got, err := n.Inspect(node.Subject{Name: name})
			if want == nil && *failed == "" {
				want = got
			}
			said := err != nil && !strings.Contains(err.Error(), view.NoDevice) || got != nil && (got.Problem != "" || len(got.Warnings) > 0)
			if *failed != "" && !said && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s fails, and inspect says %+v, %v", name, *failed, got, err)
			}
		})
	}
	for _, sriovnet := range []func(string, link.Flavour, int) (string, error){nil, func(string, link.Flavour, int) (string, error) { return "eth4", nil }} {
		host, err := linkhost.New(file)
		difftest.Must(t, err)
		finder := &discovery.Finder{Sys: sysfs.New(file.Sys()), Interfaces: host, Eswitches: blind{host}}
		got, err := node.Open(node.Options{Finder: finder, Sriovnet: sriovnet}).Inspect(node.Subject{Name: "0000:03:00.2"})
		difftest.Must(t, err)
		difftest.Equal(t, got.Warnings, []string{"the PCI function 0000:03:00.2: representor: input/output error"}) // and no comparison
	}
	for _, name := range []string{"p0", "lo"} {
		for calls := range 5 {
			host, err := linkhost.New(file)
			difftest.Must(t, err)
			netlink := &failing{host, calls}
			got, err := node.Open(node.Options{Finder: &discovery.Finder{Sys: sysfs.New(file.Sys()), Interfaces: netlink, Eswitches: host}}).Inspect(node.Subject{Name: name})
			if failed := netlink.left < 0; failed != errors.Is(err, syscall.EIO) {
				t.Errorf("%s: call %d fails: %t, and inspect says %+v, %v", name, calls, failed, got, err)
			}
		}
	}
}

// failing is netlink of which one call fails.
type failing struct {
	discovery.Interfaces
	left int // calls before it
}

func (f *failing) Interface(netns, name string) (link.Interface, error) {
	if f.left--; f.left == -1 {
		return link.Interface{}, syscall.EIO
	}
	return f.Interfaces.Interface(netns, name)
}

// blind are switches whose representors cannot be read.
type blind struct{ hostdev.Eswitches }

func (blind) Representor(string, link.Flavour, int) (name, source string, err error) {
	return "", "", syscall.EIO
}

// counting counts requests and finds no devices.
type counting struct {
	discovery.Interfaces
	modes atomic.Int64
}

func (c *counting) Interface(string, string) (link.Interface, error) {
	return link.Interface{}, link.ErrNoInterface
}

// Nodes have thousands of attachments. A PF must be queried once for all of its VFs.
func TestEachPFIsQueriedOnce(t *testing.T) {
	const vfs, attachments = 20, 60
	dir, asked := t.TempDir(), &counting{}
	settings := config.Node{StateDir: dir + "/state", DeviceInfoDir: dir + "/infos"}
	checktest.Crowd(t, settings, "boot", "/netns", vfs, attachments)
	switches := &link.Kernel{Eswitch: link.Eswitch{
		Sys:  fstest.MapFS{}, // the PF has no interface, so devlink knows the mode
		Mode: func(string) (string, error) { asked.modes.Add(1); return "legacy", nil },
	}}
	n := node.Open(node.Options{
		Settings: settings, BootID: "boot", ClaimDir: dir + "/claims",
		Finder:    &discovery.Finder{Sys: sysfs.New(capturetest.ManyVFs(vfs).Sys()), Interfaces: asked, Eswitches: switches},
		NetnsGone: func(string) (bool, error) { return false, nil },
	})
	list, err := n.Recorded()
	difftest.Must(t, err)
	n.Judge(list, true)
	for _, a := range list {
		if c := a.Verdict; c.Problem != "" || len(c.Facts) < 3 {
			t.Errorf("%+v", c)
		}
	}
	difftest.Same(t, "queries of the PF", asked.modes.Load(), int64(1))
}

// The processes of this machine say nothing about an attachment of a captured one.
func TestAttachmentInCaptureIsNotStaleBecauseOfAProcessHere(t *testing.T) {
	e := &journal.Entry{Key: journal.Key{Network: "blue", ContainerID: "c0ffee", IfName: "net1"}, Netns: "/proc/1/ns/net", Inode: 1, Complete: true}
	for root, want := range map[string]bool{"": link.OnNode(), t.TempDir(): false} {
		settings := config.Node{StateDir: t.TempDir()}
		difftest.Must(t, journal.Open(root+settings.StateDir, "boot").Put(e, nil))
		e.Unlock()
		n := node.Open(node.Options{
			Settings: settings, BootID: "boot", Root: root, Finder: &discovery.Finder{Sys: sysfs.New(fstest.MapFS{})},
			NetnsGone: func(string) (bool, error) { return false, nil },
		})
		list, err := n.Recorded()
		difftest.Must(t, err)
		difftest.Same(t, "stale below "+root, list[0].Left(), want)
	}
}
