// Package inventory decides which of a node's network devices are offered by Dynamic
// Resource Allocation, and how.
//
//	host  := Live(sys)                       // or Captured(file)
//	list  := Read(host)                      // all devices, with their attributes
//	rules := ParseRules(configuration)       // the devices that the administrator offers
//	all   := Decide(list, rules, situation)  // each device: offered, or why not
//	pool  := Slices(all, held, last)         // the content of the ResourceSlices
//
// A device that a claim holds stays published as it last was, so that pods that start and end do not
// change the ResourceSlices.
package inventory

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link"
)

// Pods can share a NIC or a master; the latter no pod can have to itself.
func isNIC(k hostdev.Kind) bool { return k == hostdev.PF || k == hostdev.NIC }
func isMaster(k hostdev.Kind) bool {
	return k == hostdev.Bond || k == hostdev.Bridge || k == hostdev.OVS
}

// Device is a network device of the host.
type Device struct {
	Name string // in the ResourceSlice: a DNS label, the same after a reboot
	hostdev.Ref
	On     string // the name of the device that it is on: a VF's PF, an SF's function, a vDPA device's VF; "" = none
	PFName string // the interface of its PF
	Driver string // of a function; "" = unbound

	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

	Port      string // the master that its interface is a port of; "" = none
	Uplink    string // why the host needs it; "" = it does not
	HostUse   string // what the host uses it for otherwise; "" = for nothing
	NoCarrier bool   // it, or its PF, is up and has no carrier
	Verbs     bool   // it has RDMA devices here, and no interface in any network namespace
	Closed    bool   // of Verbs: a pod's network namespace cannot open the RDMA devices
}

// ID is what CNI plugins know the device by: a PCI address, which for a vDPA device on a VF
// is the VF's; an auxiliary name; "" if there is neither.
func (d *Device) ID() string { return cmp.Or(d.Aux, d.PCI, d.text(PCIBusID)) }

func (d *Device) text(name resourceapi.QualifiedName) string {
	return Text(resourceapi.Device{Attributes: d.Attributes}, name)
}

// Text returns an attribute of a device; "" = it has none that is a text.
func Text(d resourceapi.Device, name resourceapi.QualifiedName) string {
	if v := d.Attributes[name].StringValue; v != nil {
		return *v
	}
	return ""
}

// moved reports whether the device has neither an interface here nor a driver that needs none. Its interface
// may be in another network namespace.
func (d *Device) moved() bool {
	withoutInterface := d.Kind == hostdev.VDPA || d.Verbs && !d.Closed ||
		strings.Contains(d.Driver, "vfio") || d.Driver == "uio_pci_generic" || d.Driver == "igb_uio"
	return d.IfName == "" && !withoutInterface
}

// UsedByHost says why it is not for pods, whoever has it; "" = it may be.
func (d *Device) UsedByHost() string {
	switch {
	case d.Port != "":
		return fmt.Sprintf("%s is a port of %s", d.IfName, d.Port)
	case d.Uplink != "":
		return "the host needs it: " + d.Uplink
	}
	return ""
}

// set gives the device an attribute. What an attribute cannot hold is left out: the API
// server would reject the whole slice for a longer text.
func (d *Device) set(name resourceapi.QualifiedName, value string) {
	if value != "" && len(value) <= resourceapi.DeviceAttributeMaxValueLength {
		d.Attributes[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

func (d *Device) setInt(name resourceapi.QualifiedName, value int) {
	d.Attributes[name] = resourceapi.DeviceAttribute{IntValue: new(int64(value))}
}

func (d *Device) setBool(name resourceapi.QualifiedName, value bool) {
	d.Attributes[name] = resourceapi.DeviceAttribute{BoolValue: &value}
}

// functionName names the device of a PCI function: "pci-0000-8a-00-2".
func functionName(address string) string {
	return "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(address)
}

// spell makes a DNS label of a kernel's name, behind the prefix "net", "aux" or "vdpa". Different names have
// different labels. A name that is a DNS label stays as it is: "net-br-ex". In any other, behind an "x", each
// byte that a label cannot hold is two hexadecimal digits behind a "-", and "-" is doubled: "netx-bond0-2e100"
// is bond0.100. The end of a label that is too long is replaced by a hash of the name.
func spell(prefix, name string) string {
	const most, digits = validation.DNS1123LabelMaxLength, 20
	if plain := prefix + "-" + name; len(validation.IsDNS1123Label(name)) == 0 && len(plain) <= most {
		return plain
	}
	label := prefix + "x-"
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			label += string(c)
		case c == '-' && i < len(name)-1:
			label += "--"
		default:
			label += fmt.Sprintf("-%02x", c)
		}
	}
	if len(label) <= most {
		return label
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s-%x", strings.TrimRight(label[:most-digits-1], "-"), sum[:digits/2])
}

// Busy returns why a device of the host cannot be unbound from its driver now; "" = it can. It is stricter
// than [Decide], because a plugin that moves an interface does not destroy it.
func Busy(h Host, name string) (string, error) {
	devices, _, err := Read(h)
	if err != nil {
		return "", err
	}
	var on []string
	for _, d := range devices {
		if d.On == name {
			on = append(on, d.Name)
		}
	}
	n := slices.IndexFunc(devices, func(d Device) bool { return d.Name == name })
	if n < 0 {
		return "the node has lost it", nil
	}
	d := devices[n]
	upper := slices.IndexFunc(h.Links, func(l link.InterfaceRecord) bool { return d.IfName != "" && l.Link == d.IfName })
	switch {
	case d.UsedByHost() != "":
		return d.UsedByHost(), nil
	case len(on) > 0:
		return fmt.Sprintf("it has %s on it: they would lose their parent", count(on)), nil
	case d.moved() && d.Driver != "":
		return noInterface, nil
	case upper >= 0:
		return fmt.Sprintf("%s is on %s", h.Links[upper].Name, d.IfName), nil
	case d.IfName != "" && d.HostUse != "":
		return "the host uses it: " + d.HostUse, nil
	}
	return "", nil
}

func count(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%d devices", len(names))
}
