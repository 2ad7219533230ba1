//go:build vm

package vm_test

import (
	"context"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// All the VFs of the machine, on four drivers.
var vfs = []struct{ pod, deviceID, host, pf string }{
	{"pod0", "0000:01:10.0", "enp1s0v0", "0000:01:00.0"},
	{"pod1", "0000:01:10.2", "enp1s0v1", "0000:01:00.0"},
	{"pod2", "0000:01:10.4", "enp1s0v2", "0000:01:00.0"},
	{"pod3", "0000:01:10.6", "", "0000:01:00.0"}, // vfio-pci
	{"pod4", "0000:41:10.0", "enp65s0v0", "0000:41:00.0"},
	{"pod5", "0000:41:10.2", "enp65s0v1", "0000:41:00.0"},
	{"pod6", "0000:02:00.2", "enp2s0v1", "0000:02:00.0"}, // virtio
}

// crowd attaches all VFs at the same time, each by processes of its own.
func crowd(t *testing.T, n *network) []*attachment {
	t.Helper()
	var all []*attachment
	var want []string
	for _, vf := range vfs {
		all = append(all, n.attachment(vf.pod, "net1", vf.deviceID))
		if vf.host == "" {
			want = append(want, standalone("/run/netns/"+vf.pod, vf.deviceID))
		} else {
			want = append(want, moved(t, vf.host, "net1", "/run/netns/"+vf.pod, vf.deviceID))
		}
	}
	atOnce(all, func(i int, a *attachment) {
		if result, err := a.tryAdd(); err != nil {
			t.Errorf("%s: ADD: %s", vfs[i].deviceID, errorText(err))
		} else {
			same(t, vfs[i].deviceID, result, sorted(t, want[i]))
		}
	})
	for i, a := range all {
		a.file(pciInfo(vfs[i].deviceID, vfs[i].pf))
	}
	return all
}

func atOnce(all []*attachment, f func(int, *attachment)) {
	var done sync.WaitGroup
	for i, a := range all {
		done.Go(func() { f(i, a) })
	}
	done.Wait()
}

func (n *network) gc(t *testing.T, valid []*attachment) {
	t.Helper()
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, a := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: a.rt.ContainerID, IfName: a.rt.IfName})
	}
	if err := n.cni.GCNetworkList(context.Background(), n.list, args); err != nil {
		t.Errorf("GC: %s\n%s", errorText(err), n.warnings())
	}
}

// halved compares what a GC left of the attachments, of which those with an odd
// number were valid.
func halved(t *testing.T, all []*attachment) (valid []*attachment) {
	t.Helper()
	for i, a := range all {
		vf := vfs[i]
		keep := i%2 == 1
		if keep {
			valid = append(valid, a)
			a.file(pciInfo(vf.deviceID, vf.pf))
		} else {
			a.noFile()
		}
		if vf.host != "" && (onHost(vf.host) == keep || inPod(vf.pod, "net1") != keep) {
			t.Errorf("%s: valid %v, on the host %v, in the pod %v", vf.deviceID, keep, onHost(vf.host), inPod(vf.pod, "net1"))
		}
	}
	return valid
}

func odd(all []*attachment) (list []*attachment) {
	for i, a := range all {
		if i%2 == 1 {
			list = append(list, a)
		}
	}
	return list
}

// The runtime knows its attachments: it deletes the invalid ones itself, before
// the plugins' GC.
func TestAllVFsAtTheSameTime(t *testing.T) {
	needs(t, "igb", "vpvdpa")
	n := newNetwork(t, "crowd", `[{"type": "host-device", "capabilities": {"deviceID": true}}, `+devinfoLast+`]`)
	all := crowd(t, n)
	n.gc(t, odd(all))
	valid := halved(t, all)
	atOnce(valid, func(_ int, a *attachment) {
		if err := a.tryCheck(); err != nil {
			t.Errorf("CHECK: %s", errorText(err))
		}
		if err := a.tryDel(); err != nil {
			t.Errorf("DEL: %s", errorText(err))
		}
	})
	n.silent()
}

// The runtime has lost its cache: devinfo's journal is all there is, and brings the
// VFs of the invalid ones back.
func TestAllVFsAsDelegatesThenGCByTheJournal(t *testing.T) {
	needs(t, "igb", "vpvdpa")
	n := newNetwork(t, "crowd", `[{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}, "delegates": [{"type": "host-device"}]}]`)
	all := crowd(t, n)
	n.forget()
	n.gc(t, odd(all))
	valid := halved(t, all)
	n.gc(t, nil)
	for _, a := range valid {
		a.noFile()
	}
	for _, vf := range vfs {
		if vf.host != "" && !onHost(vf.host) {
			t.Errorf("%s is not back", vf.host)
		}
	}
	n.silent()
}
