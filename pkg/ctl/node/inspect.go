package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/k8snetworkplumbingwg/sriovnet"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
)

// Inspection is the device information that ADD would write for a device, with sources.
type Inspection struct {
	Subject
	DeviceInfo json.RawMessage  `json:"deviceInfo,omitempty"` // the file that ADD would write
	Facts      []discovery.Fact `json:"facts"`
	Shared     bool             `json:"shared,omitempty"` // other interfaces use the device too
	Problem    string           `json:"problem,omitempty"`
	Warnings   []string         `json:"warnings,omitempty"`
	Unusable   []string         `json:"unusable,omitempty"` // why the next pod could not use it, if no pod has it
}

// A Subject is what to inspect. Inspect completes it.
type Subject struct {
	Name  string `json:"device"`          // a PCI address may lack the domain, 0000
	As    string `json:"as"`              // "pci", "auxiliary", "vdpa" or "interface"
	Netns string `json:"netns,omitempty"` // path of the interface's network namespace; "" = that of this process

	SubfunctionParent bool `json:"-"`
}

// Inspect finds a device as ADD does, and its representor also with sriovnet.
func (n *Node) Inspect(s Subject) (*Inspection, error) {
	var err error
	s.Name = view.FullAddress(s.Name)
	if s, err = n.settle(s); err != nil {
		return nil, err
	}
	asked := &reference{Eswitches: n.Finder.Eswitches, sriovnet: n.Sriovnet}
	finder, target := *n.Finder, discovery.Target{FollowLower: true, SubfunctionParent: s.SubfunctionParent}
	finder.Eswitches = asked
	switch {
	case s.As != asInterface:
		target.DeviceIDs = []config.NamedID{{Key: "/sys/bus/" + s.As + "/devices/" + s.Name, ID: s.Name}}
	case s.Netns == "":
		target.Netns, target.IfName = "our own", s.Name // the finder takes "" as no namespace
		finder.Interfaces = ownNetns{finder.Interfaces}
	default:
		target.Netns, target.IfName = s.Netns, s.Name
	}
	device, err := finder.Find(target)
	if err != nil {
		return nil, err
	}
	if errors.As(device.Problem, new(*discovery.MissingError)) || s.As == asInterface && !device.InNetns {
		return nil, n.unknown(s)
	}
	in := &Inspection{Subject: s, Shared: device.Shared, Warnings: append(device.Warnings, asked.warnings...), Facts: append([]discovery.Fact{}, device.Facts...)}
	if info := devinfo.Merge(nil, device.Info, nil); info != nil {
		if err := info.Validate().Err(); err != nil {
			in.Problem = err.Error()
		} else {
			in.DeviceInfo = info.Encode()
		}
	}
	switch {
	case device.Problem != nil:
		in.Problem = strings.ReplaceAll(device.Problem.Error(), `set "subfunctionParent": true`, "give --subfunction-parent")
	case device.Info == nil:
		in.Problem = "interface " + s.Name + " is virtual and has no device"
	}
	return in, nil
}

// Sriovnet returns the representor that sriovnet finds for a VF or SF below /sys, in the network namespace of the
// process. OVN-Kubernetes, ovs-cni and the SR-IOV operators use sriovnet: where it differs, they and the device-info file name
// different interfaces.
func Sriovnet(pf string, flavour link.Flavour, number int) (string, error) {
	if flavour == link.SF {
		return sriovnet.GetSfRepresentor(pf, number)
	}
	return sriovnet.GetVfRepresentor(pf, number)
}

// A reference answers like its Eswitches, and asks sriovnet the same question, unless the Eswitches could not be read. The
// source of a representor then says what sriovnet finds.
type reference struct {
	hostdev.Eswitches
	sriovnet func(pf string, flavour link.Flavour, number int) (string, error) // see [Options]
	warnings []string                                                          // representors that only sriovnet finds
}

func (r *reference) Representor(pf string, flavour link.Flavour, number int) (name, source string, err error) {
	name, source, err = r.Eswitches.Representor(pf, flavour, number)
	if err != nil || r.sriovnet == nil {
		return name, source, err
	}
	theirs, failed := r.sriovnet(pf, flavour, number)
	switch {
	case name == "" && theirs != "":
		r.warnings = append(r.warnings, fmt.Sprintf("%s %d of %s: sriovnet finds %s, and so do OVN-Kubernetes, ovs-cni and the SR-IOV operators; devinfo finds nothing",
			map[link.Flavour]string{link.VF: "VF", link.SF: "SF"}[flavour], number, pf, theirs))
	case failed != nil:
		source += "; sriovnet finds nothing: " + failed.Error()
	case theirs == name:
		source += "; sriovnet agrees"
	default:
		source += "; sriovnet finds " + theirs
	}
	return name, source, nil
}

// ownNetns returns interfaces of our own network namespace, whatever the namespace argument is.
type ownNetns struct{ discovery.Interfaces }

func (o ownNetns) Interface(_, name string) (link.Interface, error) {
	return o.Interfaces.Interface("", name)
}

// asInterface is the kind of a device that has its name on no bus.
const asInterface = "interface"

// settle determines the kind of the named device. For an RDMA device it returns the parent device. With a network namespace
// the name is an interface.
func (n *Node) settle(s Subject) (Subject, error) {
	if s.Netns != "" {
		s.As = asInterface
		return s, nil
	}
	for _, s.As = range []string{"pci", "auxiliary", "vdpa"} {
		if _, there, err := n.Finder.Sys.Inode(s.As, s.Name); there || err != nil {
			return s, err
		}
	}
	s.As = asInterface
	i, err := n.Finder.Interfaces.Interface("", s.Name)
	if errors.Is(err, link.ErrNoInterface) {
		return n.below(s)
	}
	if err == nil {
		s.Name = i.Name // s.Name may be an altname
	}
	return s, err
}

// below returns the device, or else the interface, that is the parent of an RDMA device.
func (n *Node) below(s Subject) (Subject, error) {
	list, err := n.Finder.Sys.RDMADevices()
	for _, d := range list {
		switch {
		case d.Name != s.Name:
		case d.Bus == "pci" || d.Bus == "auxiliary":
			s.Name, s.As = d.Device, d.Bus
			return s, nil
		case d.Netdev != "":
			s.Name, s.As = d.Netdev, asInterface
			return s, nil
		}
	}
	return s, cmp.Or(err, n.unknown(s))
}

func (n *Node) unknown(s Subject) error {
	if s.Netns != "" {
		return clierr.For(fmt.Errorf("%s: no interface of that name in %s", s.Name, s.Netns), "ip -n NAME link shows the interfaces of a network namespace")
	}
	return clierr.For(fmt.Errorf("%s: %s", s.Name, view.NoDevice), cmp.Or(view.Misspelt(s.Name), "devinfoctl topology shows the node's devices; an interface in a pod needs --netns"))
}
