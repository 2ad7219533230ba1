package node

import (
	"errors"
	"fmt"
	"strings"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/link"
)

// ruled is what cni-dra-driver has left of its rules, with the reasons why some name no
// device; nil = it has left nothing.
func (n *Node) ruled() (*doctor.Offer, error) {
	o, err := n.Offer()
	if o == nil || err != nil {
		return nil, err
	}
	f := &doctor.Offer{Rules: o.Rules, Problem: o.Problem}
	for _, d := range o.Devices {
		if d.Why == "" {
			f.Offered++
		}
	}
	for _, idle := range o.Idle {
		f.Idle = append(f.Idle, n.idle(o, idle))
	}
	return f, nil
}

// idle says what a rule names, and what it may have meant: the first of its keys that names
// something which is not there, or is no device.
func (n *Node) idle(o *state.Offer, r state.Idle) doctor.Idle {
	var keys, why []string
	for _, key := range []struct {
		name   string
		values []string
		about  func(value string) string
	}{
		{"pciAddresses", r.PCIAddresses, n.aboutAddress},
		{"ifNames", r.IfNames, n.aboutInterface},
		{"pfNames", r.PFNames, n.aboutInterface},
		{"drivers", r.Drivers, n.aboutDriver},
	} {
		if len(key.values) > 0 {
			keys = append(keys, key.name+": "+strings.Join(key.values, ", "))
		}
		for _, value := range key.values {
			if text := key.about(value); text != "" {
				why = append(why, text)
			}
		}
	}
	if r.Select {
		keys = append(keys, "select")
	}
	if len(why) == 0 {
		why = []string{"none meets all of its keys, or another rule is before it"}
	}
	return doctor.Idle{Rule: fmt.Sprintf("devices[%d] (%s)", r.Rule, strings.Join(keys, "; ")), Why: strings.Join(why, "; ")}
}

func (n *Node) aboutAddress(text string) string {
	a, err := pci.Parse(text)
	if err != nil {
		return ""
	}
	if _, there, err := n.Sys.PCI(a); there || err != nil {
		return ""
	}
	var all []string
	functions, _ := n.Sys.Functions() // for a hint
	for _, fn := range functions {
		all = append(all, fn.Address.String())
	}
	return text + " is not on this node" + nearestOf(text, all)
}

func (n *Node) aboutInterface(name string) string {
	i, err := n.Finder.Interfaces.Interface("", name)
	switch {
	case errors.Is(err, link.ErrNoInterface):
		return "there is no interface " + name + nearestOf(name, n.cardInterfaces())
	case err == nil && link.Represents(i.PortName):
		return name + " is a representor" + nearestOf(name, n.cardInterfaces())
	case err == nil && i.Kind != "" && i.Kind != "bond" && i.Kind != "bridge" && i.Kind != "openvswitch":
		return name + " is a " + i.Kind + nearestOf(name, n.cardInterfaces())
	}
	return ""
}

// cardInterfaces are those of devices.
func (n *Node) cardInterfaces() (names []string) {
	list, _ := n.Sys.Netdevs() // for a hint
	for _, d := range list {
		i, err := n.Finder.Interfaces.Interface("", d.Name)
		if d.Device != "" && err == nil && !link.Represents(i.PortName) {
			names = append(names, d.Name)
		}
	}
	return names
}

func (n *Node) aboutDriver(name string) string {
	var all []string
	functions, _ := n.Sys.Functions() // for a hint
	for _, fn := range functions {
		if fn.Driver == name {
			return ""
		}
		if fn.Driver != "" {
			all = append(all, fn.Driver)
		}
	}
	return "no device has the driver " + name + nearestOf(name, all)
}

func nearestOf(name string, all []string) string {
	if len(all) == 0 {
		return ""
	}
	return "; the nearest is " + config.Nearest(name, all)
}
