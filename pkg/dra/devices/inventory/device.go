// Package inventory decides which of a node's network devices are offered by Dynamic
// Resource Allocation, and as what: values in, values out.
//
//	host  := Live(sys)                       // or Captured(file)
//	list  := Read(host)                      // all devices, with their attributes
//	rules := ParseRules(configuration)       // what the administrator names
//	all   := Decide(list, rules, situation)  // each device: offered, or why not
//	pool  := Slices(all, held)               // what is published
//
// Nothing is offered that no rule names. A device that a claim holds stays published as
// it last was, so that a pod's start and end leave the ResourceSlices alone.
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

	// Verbs says that it has no interface, in no network namespace, but RDMA devices here.
	Verbs bool
	// Closed says that a pod's network namespace cannot open those.
	Closed bool
}

// ID is what CNI plugins know the device by: a PCI address, which for a vDPA device on a VF
// is the VF's; an auxiliary name; "" if there is neither.
func (d *Device) ID() string { return cmp.Or(d.Aux, d.PCI, d.text(PCIBusID)) }

func (d *Device) text(name resourceapi.QualifiedName) string {
	if v := d.Attributes[name].StringValue; v != nil {
		return *v
	}
	return ""
}

// moved reports that the device has neither an interface here nor a driver that needs none:
// its interface is in another network namespace, or the device is of no use as it is.
func (d *Device) moved() bool {
	switch {
	case d.Kind == hostdev.VDPA || d.IfName != "" || d.Verbs && !d.Closed:
		return false
	}
	return !strings.Contains(d.Driver, "vfio") && !slices.Contains([]string{"uio_pci_generic", "igb_uio"}, d.Driver)
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

const functionPrefix = "pci-"

// functionName names the device of a PCI function: "pci-0000-8a-00-2".
func functionName(address string) string {
	return functionPrefix + strings.NewReplacer(":", "-", ".", "-").Replace(address)
}

// spell makes a DNS label of a kernel's name, behind the prefix "net", "aux" or "vdpa".
// Different names have different labels. A name that is one by itself stays legible:
// "net-br-ex"; in any other, behind an "x", each byte that a label cannot hold is two
// hexadecimal digits behind a "-", and "-" is doubled: "netx-bond0-2e100" is bond0.100.
func spell(prefix, name string) string {
	if plain := prefix + "-" + name; len(validation.IsDNS1123Label(name)) == 0 && len(plain) <= validation.DNS1123LabelMaxLength {
		return plain
	}
	var b strings.Builder
	b.WriteString(prefix + "x-")
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteByte(c)
		case c == '-' && i < len(name)-1:
			b.WriteString("--")
		default:
			fmt.Fprintf(&b, "-%02x", c)
		}
	}
	return shorten(b.String(), name)
}

// shorten replaces the end of a label that is too long, which no interface's is, by 80
// bits of the name's hash.
func shorten(label, name string) string {
	const digits = 20
	if len(label) <= validation.DNS1123LabelMaxLength {
		return label
	}
	sum := sha256.Sum256([]byte(name))
	kept := strings.TrimRight(label[:validation.DNS1123LabelMaxLength-digits-1], "-")
	return fmt.Sprintf("%s-%x", kept, sum[:digits/2])
}

// Busy says why a device of the host cannot be taken from its driver now; "" = it can. That
// goes beyond [Decide]: a plugin that moves an interface leaves it what it is.
func Busy(h Host, name string) (string, error) {
	devices, _, err := Read(h)
	if err != nil {
		return "", err
	}
	var d *Device
	var on []string
	for n := range devices {
		if devices[n].Name == name {
			d = &devices[n]
		}
		if devices[n].On == name {
			on = append(on, devices[n].Name)
		}
	}
	switch {
	case d == nil:
		return "the node has lost it", nil
	case d.UsedByHost() != "":
		return d.UsedByHost(), nil
	case len(on) > 0:
		return fmt.Sprintf("it has %s on it: they would lose their parent", count(on)), nil
	case d.moved() && d.Driver != "":
		return "it has no interface here, as if it were in another network namespace", nil
	case d.IfName == "":
		return "", nil
	}
	for _, l := range h.Links {
		if l.Link == d.IfName {
			return fmt.Sprintf("%s is on %s", l.Name, d.IfName), nil
		}
	}
	if d.HostUse != "" {
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
