package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/ctl/crosscheck"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
)

// Inspection is the device information that ADD would write for a device, with sources.
type Inspection struct {
	Device     string           `json:"device"`
	As         string           `json:"as"` // "pci", "auxiliary", "vdpa" or "interface"
	Netns      string           `json:"netns,omitempty"`
	DeviceInfo json.RawMessage  `json:"deviceInfo,omitempty"` // the file that ADD would write
	Facts      []discovery.Fact `json:"facts"`
	Shared     bool             `json:"shared,omitempty"` // other interfaces use the device too
	Problem    string           `json:"problem,omitempty"`
	Warnings   []string         `json:"warnings,omitempty"`
}

// Subject is a device to inspect.
type Subject struct {
	Name  string // a PCI address may lack the domain, 0000
	As    string // one of Kinds; "" = any kind
	Netns string // path of the interface's network namespace; "" = that of this process

	FollowLower, SubfunctionParent bool
}

// Inspect finds a device as ADD does, and its representor also with sriovnet.
func (n *Node) Inspect(s Subject) (*Inspection, error) {
	var err error
	s.Name = fullAddress(s.Name)
	if s, err = n.settle(s); err != nil {
		return nil, err
	}
	reference := &crosscheck.Reference{Eswitches: n.Finder.Eswitches, Ask: n.Sriovnet}
	finder, target := *n.Finder, discovery.Target{FollowLower: s.FollowLower, SubfunctionParent: s.SubfunctionParent}
	finder.Eswitches = reference
	switch {
	case s.As != AsInterface:
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
	var missing *discovery.MissingError
	if errors.As(device.Problem, &missing) || s.As == AsInterface && !device.InNetns {
		return nil, n.unknown(s)
	}
	in := &Inspection{Device: s.Name, As: s.As, Netns: s.Netns, Shared: device.Shared, Warnings: device.Warnings, Facts: append([]discovery.Fact{}, device.Facts...)}
	in.Warnings = append(in.Warnings, secondOpinion(reference, func(representor string) *string {
		for i, f := range in.Facts {
			if f.Value == representor && isRepresentor(f.Key) {
				return &in.Facts[i].Source
			}
		}
		return nil
	})...)
	if info := devinfo.Merge(nil, device.Info, nil); info != nil {
		if err := info.Validate().Err(); err != nil {
			in.Problem = err.Error()
		} else {
			in.DeviceInfo = info.Encode()
		}
	}
	switch {
	case device.Problem != nil:
		in.Problem = device.Problem.Error()
		if errors.As(device.Problem, new(*discovery.UndescribableError)) && s.As == AsAuxiliary {
			in.Problem = strings.ReplaceAll(in.Problem, `"subfunctionParent": true`, "--subfunction-parent")
		}
	case device.Info == nil:
		in.Problem = deviceless(n.Finder.Interfaces, s)
	}
	return in, nil
}

func deviceless(interfaces discovery.Interfaces, s Subject) string {
	i, err := interfaces.Interface(s.Netns, s.Name)
	text, lower := "interface "+s.Name, "; leave --follow-lower=false out to see the device below it"
	switch {
	case err == nil && link.Represents(i.PortName):
		return text + " is a representor, port " + i.PortName + " of " + cmp.Or(i.Parent, i.BusInfo) + ": it has no device of its own" + lower
	case err == nil && i.Stacked():
		return text + " is a " + i.Kind + ", and has no device of its own" + lower
	case err == nil && i.Kind != "":
		return text + " is a " + i.Kind + ", and has no device"
	}
	return text + " is a software interface without a device"
}

// fullAddress adds the usual domain to a PCI address without one, as lspci prints it.
func fullAddress(name string) string {
	for _, full := range []string{name, "0000:" + name} {
		if address, err := pci.Parse(full); err == nil {
			return address.String()
		}
	}
	return name
}

// ownNetns returns interfaces of our own network namespace, whatever the namespace argument is.
type ownNetns struct{ discovery.Interfaces }

func (o ownNetns) Interface(_, name string) (link.Interface, error) {
	return o.Interfaces.Interface("", name)
}

// The kinds of devices that can have a name.
const (
	AsPCI       = "pci"
	AsAuxiliary = "auxiliary"
	AsVDPA      = "vdpa"
	AsInterface = "interface"
)

var Kinds = []string{AsPCI, AsAuxiliary, AsVDPA, AsInterface}

var kindWords = map[string]string{AsPCI: "PCI function", AsAuxiliary: "auxiliary device", AsVDPA: "vDPA device", AsInterface: "interface"}

// settle determines the kind of the named device: the requested kind, or the only kind with that name. For an
// RDMA device it returns the parent device. With a network namespace the name is an interface.
func (n *Node) settle(s Subject) (Subject, error) {
	if s.Netns != "" {
		s.As = AsInterface
		return s, nil
	}
	is, err := n.meanings(s.Name)
	switch {
	case err != nil:
		return s, err
	case len(is) == 0 && s.As == "":
		return n.below(s)
	case len(is) == 0:
		return s, n.unknown(s)
	case s.As == "" && len(is) > 1:
		return s, clierr.Misuse("choose one: --as "+strings.Join(is, ", or --as "), "%s is the name of several devices", s.Name)
	case s.As == "" || slices.Contains(is, s.As):
		s.As = cmp.Or(s.As, is[0])
		return s, nil
	}
	return s, clierr.Misuse("remove --as, or use --as "+is[0], "%s: no %s has that name", s.Name, kindWords[s.As])
}

// below returns the device, or else the interface, that is the parent of an RDMA device.
func (n *Node) below(s Subject) (Subject, error) {
	list, err := n.Sys.RDMADevices()
	for _, d := range list {
		switch {
		case d.Name != s.Name:
		case d.Bus == AsPCI || d.Bus == AsAuxiliary:
			s.Name, s.As = d.Device, d.Bus
			return s, nil
		case d.Netdev != "":
			s.Name, s.As = d.Netdev, AsInterface
			return s, nil
		}
	}
	return s, cmp.Or(err, n.unknown(s))
}

// meanings lists the kinds of devices that have the name.
func (n *Node) meanings(name string) (is []string, err error) {
	for _, bus := range []string{AsPCI, AsAuxiliary, AsVDPA} {
		there, err := n.Sys.HasDevice(bus, name)
		if err != nil {
			return nil, err
		}
		if there {
			is = append(is, bus)
		}
	}
	_, err = n.Finder.Interfaces.Interface("", name)
	switch {
	case errors.Is(err, link.ErrNoInterface):
		return is, nil
	case err != nil:
		return nil, err
	}
	return append(is, AsInterface), nil
}

func (n *Node) unknown(s Subject) error {
	if s.Netns != "" {
		return clierr.For(fmt.Errorf("%s: no interface of that name in %s", s.Name, s.Netns), "ip -n NAME link shows the interfaces of a network namespace")
	}
	see := "devinfoctl topology shows the node's devices; an interface in a pod needs --netns"
	if names := nearest(s.Name, n.DeviceNames()); len(names) > 0 {
		see = "the nearest names are " + strings.Join(names, ", ") + "; " + see
	}
	return clierr.For(fmt.Errorf("%s: no %s of that name", s.Name, cmp.Or(kindWords[s.As], "device")), see)
}

// DeviceNames lists the names that Inspect takes, for completion and hints. It leaves out devices that cannot
// be read.
func (n *Node) DeviceNames() (names []string) {
	devices, _ := hostdev.List(n.Sys)
	for _, d := range devices {
		names = append(names, d.At.Name)
	}
	rdma, _ := n.Sys.RDMADevices()
	for _, d := range rdma {
		names = append(names, d.Name)
	}
	interfaces, _ := n.Sys.Netdevs()
	for _, d := range interfaces {
		names = append(names, d.Name)
	}
	return names
}

// nearest returns at most three words that resemble name and begin like it.
func nearest(name string, words []string) (near []string) {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, name[:min(2, len(name))]) })
	for len(near) < 3 && len(words) > 0 {
		w := config.Nearest(name, words)
		near = append(near, w)
		words = slices.DeleteFunc(words, func(other string) bool { return other == w })
	}
	return near
}
