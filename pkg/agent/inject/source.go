package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync/atomic"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
)

// listing is the names of journal entries and device-info files.
type listing struct {
	journal *journal.Journal
	keys    []journal.Key
	infos   *store.Dir
	names   []string
	after   int64 // stagings before it began
}

// list lists the files whose names contain the ID of a sandbox, or those of all sandboxes. It sets found as soon as it has
// found one.
func (p *Plugin) list(node config.Node, found *atomic.Bool, id ...string) (l listing, err error) {
	l = listing{journal: journal.Open(node.StateDir, p.BootID), infos: store.Open(node.DeviceInfoDir), after: p.stagings.Load()}
	if l.keys, err = l.journal.All(id...); err == nil {
		found.CompareAndSwap(false, len(l.keys) > 0)
		l.names, err = l.infos.Names(id...)
		found.CompareAndSwap(false, len(l.names) > 0)
	}
	return l, err
}

// attachments returns the attachments of a sandbox whose ADD has finished, sorted by interface, net2 before net10,
// from the journal and from the device-info files that other programs, such as Multus, have written.
func (p *Plugin) attachments(l listing, id, netns string) ([]nic, error) {
	found := map[string]nic{}
	if err := p.journaled(l, id, found); err != nil {
		return nil, err
	}
	if err := l.named(id, found); err != nil {
		return nil, err
	}
	var list []nic
	for _, name := range slices.SortedFunc(maps.Keys(found), sysfs.ByNumber) {
		n := found[name]
		if n.adding {
			continue
		}
		if !n.byClaim {
			i, err := p.Finder.Interfaces.Interface(netns, n.Interface)
			switch {
			case errors.Is(err, link.ErrNoInterface), errors.Is(err, link.ErrNoNetns): // a socket, or a device on vfio-pci
			case err != nil:
				return nil, err
			default:
				n.MAC, n.MTU = i.MAC.String(), i.MTU
			}
		}
		list = append(list, n)
	}
	return list, nil
}

// journaled adds the container's attachments in the journal to found. If an interface has several entries, it
// prefers a complete one with a device-info file.
func (p *Plugin) journaled(l listing, id string, found map[string]nic) error {
	for _, k := range l.keys {
		if k.ContainerID != id {
			continue
		}
		n, ok, err := p.entry(l.journal, k)
		if err != nil {
			return err
		}
		if before, there := found[k.IfName]; ok && (!there || before.adding || !n.adding && before.DeviceInfo == nil && before.gone == nil) {
			found[k.IfName] = n
		}
	}
	return nil
}

// entry reads one journal entry and its device-info file. ok is false if the entry is missing or of another boot.
func (p *Plugin) entry(j *journal.Journal, k journal.Key) (n nic, ok bool, err error) {
	n.Network, n.Interface, n.entry = k.Network, k.IfName, new(journal.Entry)
	e, err := j.Get(k)
	if errors.As(err, new(*journal.FormatError)) || errors.As(err, new(*store.CorruptError)) {
		n.gone = fmt.Errorf("cannot use the journal entry: %w", err)
		return n, true, nil
	}
	if err != nil || e == nil || !e.OfBoot(p.BootID) {
		return n, false, err
	}
	n.byClaim = e.ByClaim()
	n.adding = !n.byClaim && !e.Complete
	if n.byClaim || n.adding {
		return n, true, nil
	}
	n.entry = e
	n.MAC, n.MTU = fromResult(e)
	if e.File != "" {
		n.read(store.Open(e.Dir), e.File, e.Wrote)
	}
	return n, true, nil
}

// fromResult returns the MAC address and MTU in the result of the last delegate, or zero values. The result may
// contain them even if the device has no kernel interface.
func fromResult(e *journal.Entry) (mac string, mtu int) {
	var result struct{ Interfaces []types100.Interface }
	_ = json.Unmarshal(e.Result, &result) // a missing result leaves it empty
	for _, i := range result.Interfaces {
		if i.Name == e.IfName && i.Sandbox != "" {
			return i.Mac, i.Mtu
		}
	}
	return "", 0
}

// named adds the device-info files that are named after the container to found, except files that the
// journal assigns to other containers.
func (l listing) named(id string, found map[string]nic) error {
	for _, name := range l.names {
		network, ifName, ok := attachment.ParseFileName(name, id)
		if !ok {
			continue
		}
		n, there := found[ifName]
		if n.byClaim || n.adding || n.DeviceInfo != nil || n.gone != nil {
			continue
		}
		if owner, err := l.journal.Owner(journal.OfFile, name); err != nil {
			return err
		} else if owner != nil && owner.ContainerID != id {
			continue
		}
		if !there {
			n.Network, n.Interface, n.entry = network, ifName, new(journal.Entry)
		}
		n.read(l.infos, name, false)
		if there || n.DeviceInfo != nil || n.gone != nil { // the file may have been removed after it was listed
			found[ifName] = n
		}
	}
	return nil
}

// read sets DeviceInfo, info and gone from the device-info file, which may be missing unless must is true.
func (n *nic) read(d *store.Dir, name string, must bool) {
	text, err := d.Read(name)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return
	}
	if err == nil {
		n.info, err = d.Parse(name, text)
	}
	if errors.As(err, new(*devinfo.VersionError)) { // a program in the pod may support the version
		n.DeviceInfo = text
	} else if err != nil {
		n.info, n.gone = nil, fmt.Errorf("cannot use the device-info file: %w", err)
	} else {
		n.DeviceInfo = n.info.Encode() // so that every reader gets the same values as the plugin
	}
}

// nic is one attachment of a pod. A socket and a device on vfio-pci have no kernel interface.
type nic struct {
	networkInfo
	byClaim bool // CDI injects the attachment into the containers that list its claim; the other facts are empty
	adding  bool // ADD has not finished; the other facts are empty

	info  *devinfo.Info  // parsed DeviceInfo; also nil if the file has an unknown major version
	entry *journal.Entry // empty if the journal does not contain the attachment, or an unusable entry
	gone  error          // why the journal entry or the device-info file is missing or unusable; nil = it is not
}

// networkInfo is one element of the file network-info.json. It has the format that KubeVirt writes for its
// network binding plugins (pkg/network/downwardapi in KubeVirt), and an additional key "interface", which
// distinguishes two attachments of a pod to one network.
type networkInfo struct {
	Network    string          `json:"network"`
	DeviceInfo json.RawMessage `json:"deviceInfo,omitempty"` // the device-info file; nil if it does not exist
	MAC        string          `json:"mac,omitempty"`
	MTU        int             `json:"mtu,omitempty"` // bytes
	Interface  string          `json:"interface"`     // not in KubeVirt's format
}

// networkInfoFile is the name of the file with the information of all networks. It takes precedence over
// the file of an interface that is named network-info.
const networkInfoFile = "network-info.json"

// injectable reports whether the plugin injects one of the attachments. CDI injects those of claims.
func injectable(nics []nic) bool {
	return slices.ContainsFunc(nics, func(n nic) bool { return !n.byClaim })
}

// files returns the files of a sandbox's directory by name. It omits an attachment whose device-info file is missing,
// because it would appear to have no device although ADD may be about to write the file.
func files(nics []nic) map[string][]byte {
	var all struct {
		Interfaces []networkInfo `json:"interfaces,omitempty"`
	}
	list := map[string][]byte{}
	for _, n := range nics {
		if n.byClaim || n.gone != nil && n.DeviceInfo == nil {
			continue
		}
		all.Interfaces = append(all.Interfaces, n.networkInfo)
		if n.DeviceInfo != nil {
			list[path.Base(cdispec.InfoFile(n.Interface))] = n.DeviceInfo
		}
	}
	text, _ := json.MarshalIndent(all, "", "  ") // cannot fail, because deviceInfo was parsed from JSON
	list[networkInfoFile] = append(text, '\n')
	return list
}
