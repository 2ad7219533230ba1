package inventory

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// describe gives the devices of hardware the attributes of the function that they are
// on, and of its PF.
func (r *reader) describe() error {
	for _, d := range r.devices {
		if d.Kind.isNIC() {
			d.NoCarrier = d.IfName != "" && r.withoutCarrier(d.IfName)
		}
		err := r.describeOn(d)
		if err == nil {
			err = r.rdma(d)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
	}
	return nil
}

func (r *reader) describeOn(d *device) error {
	if d.on == nil {
		return nil
	}
	fn, ok := r.functions[*d.on]
	if !ok {
		var err error
		if fn, ok, err = r.host.Sys.PCI(*d.on); !ok { // else it is of another class
			return err
		}
	}
	vendor, product, err := r.host.Sys.IDs(fn.Address)
	if err != nil {
		return err
	}
	d.set(AttrVendor, strings.TrimPrefix(vendor, "0x"))
	d.set(AttrDevice, strings.TrimPrefix(product, "0x"))
	if d.PCI != nil || d.Kind == VDPA && d.Aux == "" {
		d.standard(deviceattribute.GetPCIBusIDAttribute(fn.Address.String()))
	}
	d.standard(r.root(fn))
	node, ok, err := r.host.Sys.NUMANode(fn.Address)
	if err != nil {
		return err
	}
	if ok {
		d.standard(deviceattribute.GetNUMANodeAttribute(node, deviceattribute.ScalarAttribute))
	}
	if d.Kind == VF || d.Kind == VDPA && fn.PF != nil && d.Aux == "" {
		if err := r.index(d, fn); err != nil {
			return err
		}
	}
	r.switches(d, fn)
	return nil
}

func (r *reader) index(d *device, fn sysfs.Function) error {
	n, ok, err := r.host.Sys.VFIndex(*fn.PF, fn.Address)
	if ok {
		d.setInt(AttrVFIndex, n)
		d.number = &n
	}
	return err
}

// standard takes an attribute from Kubernetes' own helpers. What they refuse, such as a PCI
// domain of five digits, is left out.
func (d *device) standard(a deviceattribute.DeviceAttribute, err error) {
	if err == nil {
		d.Attributes[a.Name] = a.Value
	}
}

// root asks once for all VFs of a PF: they are behind the same root complex.
func (r *reader) root(fn sysfs.Function) (a deviceattribute.DeviceAttribute, err error) {
	at := fn.Address
	if fn.PF != nil {
		at = *fn.PF
	}
	a, known := r.roots[at]
	links, ok := r.host.links()
	if !known && ok {
		if a, err = deviceattribute.GetPCIeRootAttributeByPCIBusID(at.String(), deviceattribute.WithFS(links)); err == nil {
			r.roots[at] = a
		}
	}
	if a.Name == "" {
		err = errors.New("there is no root complex")
	}
	return a, err
}

// rdma tells of the RDMA devices of a function or SF, and whether they are all that it has.
func (r *reader) rdma(d *device) error {
	bus, name := "auxiliary", d.Aux
	switch {
	case d.PCI != nil:
		bus, name = "pci", d.PCI.String()
	case d.Kind != SF:
		return nil
	}
	rdma, err := r.host.Sys.RDMABelow(bus, name)
	if err != nil {
		return err
	}
	d.set(AttrRDMADevice, strings.Join(rdma.Devices, ","))
	d.setBool(AttrRDMACapable, len(rdma.Devices)+len(rdma.Nodes) > 0)
	if rdma.Netdev || len(rdma.Devices) == 0 {
		return nil
	}
	shared, err := r.host.Sys.IsRDMAShared()
	d.Verbs, d.Closed = true, !shared
	d.set(AttrLinkType, map[string]string{"Ethernet": "ether", "InfiniBand": "infiniband"}[rdma.LinkLayer])
	return err
}

// switches gives what a device has of its PF: the interface, the carrier, the mode of the
// eswitch, the representor.
func (r *reader) switches(d *device, fn sysfs.Function) {
	pf := fn.Address
	if fn.PF != nil {
		pf = *fn.PF
	}
	above := r.named[functionName(pf)]
	if above == nil || above.Kind != PF && above == d {
		return
	}
	mode := ""
	if above.Kind == PF {
		mode = r.mode(pf)
	}
	d.set(AttrEswitchMode, mode)
	if above == d {
		return
	}
	d.PFName = above.IfName
	d.set(AttrPFName, above.IfName)
	d.set(AttrPFPCIBusID, pf.String())
	d.NoCarrier = above.IfName != "" && r.withoutCarrier(above.IfName)
	if mode == "switchdev" && (d.Kind == VF || d.On == above.Name) { // not an SF that is a VF's
		r.represent(d, pf)
	}
}

// mode gives the mode of a PF's eswitch; "" = it is not known.
func (r *reader) mode(pf pci.Address) string {
	switch on, err := r.eswitch.Switchdev(pf.String()); {
	case err != nil:
		r.warnings = append(r.warnings, err.Error())
		return ""
	case on:
		return "switchdev"
	}
	return "legacy"
}

func (r *reader) represent(d *device, pf pci.Address) {
	flavour, known := map[Kind]link.Flavour{VF: link.VF, SF: link.SF}[d.Kind]
	if !known || d.number == nil {
		return
	}
	name, _, err := r.eswitch.Representor(pf.String(), flavour, *d.number)
	if err != nil {
		r.warnings = append(r.warnings, fmt.Sprintf("%s: %v", d.Name, err))
	}
	d.set(AttrRepresentor, name)
}
