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
		if d.Kind == NIC && d.PCI == nil {
			continue
		}
		fn, ok, err := r.function(d)
		if err == nil && ok {
			err = r.describeOn(d, fn)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		if err := r.rdma(d); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
	}
	return r.switches()
}

// function gives the PCI function that a device is, or is on.
func (r *reader) function(d *Device) (fn sysfs.Function, ok bool, err error) {
	var at *pci.Address
	switch {
	case d.PCI != nil:
		at = d.PCI
	case d.Kind == SF:
		aux, _, err := r.host.Sys.Auxiliary(d.Aux)
		if err != nil {
			return fn, false, err
		}
		at = aux.PCI
	case d.Kind == VDPA:
		v, _, err := r.host.Sys.VDPA(d.VDPA)
		if err != nil {
			return fn, false, err
		}
		at = v.PCI
	}
	if at == nil {
		return fn, false, nil
	}
	if fn, ok = r.functions[*at]; ok {
		return fn, true, nil
	}
	return r.host.Sys.PCI(*at) // of another class
}

func (r *reader) describeOn(d *Device, fn sysfs.Function) error {
	vendor, device, err := r.host.Sys.IDs(fn.Address)
	if err != nil {
		return err
	}
	d.set(AttrVendor, strings.TrimPrefix(vendor, "0x"))
	d.set(AttrDevice, strings.TrimPrefix(device, "0x"))
	if d.PCI != nil || d.Kind == VDPA && d.Aux == "" {
		r.standard(d)(deviceattribute.GetPCIBusIDAttribute(fn.Address.String()))
	}
	r.standard(d)(r.root(fn))
	node, ok, err := r.host.Sys.NUMANode(fn.Address)
	if err != nil {
		return err
	}
	if ok {
		r.standard(d)(deviceattribute.GetNUMANodeAttribute(node, deviceattribute.ScalarAttribute))
	}
	if d.Kind == VDPA && fn.PF != nil && d.Aux == "" {
		return r.number(d, fn)
	}
	return nil
}

// standard takes an attribute from Kubernetes' own helpers. What they refuse, such as a PCI
// domain of five digits, is left out.
func (r *reader) standard(d *Device) func(deviceattribute.DeviceAttribute, error) {
	return func(a deviceattribute.DeviceAttribute, err error) {
		if err == nil {
			d.Attributes[a.Name] = a.Value
		}
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
func (r *reader) rdma(d *Device) error {
	bus, name := "auxiliary", d.Aux
	switch {
	case d.Kind == VDPA:
		return nil
	case d.PCI != nil:
		bus, name = "pci", d.PCI.String()
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
func (r *reader) switches() error {
	for _, d := range r.devices {
		if d.Kind.isNIC() {
			d.NoCarrier = d.IfName != "" && r.withoutCarrier(d.IfName)
		}
		fn, ok, err := r.function(d)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		pf := fn.Address
		if fn.PF != nil {
			pf = *fn.PF
		}
		above := r.at["pci/"+pf.String()]
		if above == nil || above.Kind != PF && above == d {
			continue
		}
		mode := r.mode(pf)
		d.set(AttrEswitchMode, mode)
		if above == d {
			continue
		}
		d.PFName = above.IfName
		d.set(AttrPFName, above.IfName)
		d.set(AttrPFPCIBusID, pf.String())
		d.NoCarrier = above.IfName != "" && r.withoutCarrier(above.IfName)
		if mode == "switchdev" && (d.Kind == VF || d.On == above.Name) { // not an SF that is a VF's
			r.represent(d, pf)
		}
	}
	return nil
}

// mode gives the mode of a PF's eswitch, "" for a function that has none.
func (r *reader) mode(pf pci.Address) string {
	if r.at["pci/"+pf.String()].Kind != PF {
		return ""
	}
	switch on, err := r.eswitch.Switchdev(pf.String()); {
	case err != nil:
		r.warnings = append(r.warnings, err.Error())
		return ""
	case on:
		return "switchdev"
	}
	return "legacy"
}

func (r *reader) represent(d *Device, pf pci.Address) {
	flavour, number := link.VF, -1
	if n := d.Attributes[AttrVFIndex].IntValue; d.Kind == VF && n != nil {
		number = int(*n)
	}
	if d.Kind == SF {
		if aux, ok, err := r.host.Sys.Auxiliary(d.Aux); err == nil && ok {
			flavour, number = link.SF, *aux.SFNumber
		}
	}
	if number < 0 {
		return
	}
	name, _, err := r.eswitch.Representor(pf.String(), flavour, number)
	if err != nil {
		r.warnings = append(r.warnings, fmt.Sprintf("%s: %v", d.Name, err))
	}
	d.set(AttrRepresentor, name)
}
