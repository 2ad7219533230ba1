package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/ctl/crosscheck"
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
