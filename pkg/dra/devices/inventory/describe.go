package inventory

import (
	"errors"
	"strings"

	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/pkg/hostdev"
)

// describe gives a device of hardware the attributes of the function that it is on, and of its PF.
func (r *reader) describe(d *device) error {
	if isNIC(d.Kind) {
		d.NoCarrier = d.IfName != "" && r.withoutCarrier(d.IfName)
	}
	if d.found == nil {
		return nil
	}
	if d.found.Function != nil {
		if err := r.describeOn(d); err != nil {
			return err
		}
	}
	return r.rdma(d)
}

func (r *reader) describeOn(d *device) error {
	fn := d.found.Function
	vendor, product, err := r.host.Sys.IDs(fn.Address)
	if err != nil {
		return err
	}
	d.set(AttrVendor, strings.TrimPrefix(vendor, "0x"))
	d.set(AttrDevice, strings.TrimPrefix(product, "0x"))
	if d.PCI != "" || d.Kind == hostdev.VDPA && d.Aux == "" {
		d.standard(deviceattribute.GetPCIBusIDAttribute(fn.Address.String()))
	}
	node, ok, err := r.host.Sys.NUMANode(fn.Address)
	if err != nil {
		return err
	}
	if ok {
		d.standard(deviceattribute.GetNUMANodeAttribute(node, deviceattribute.ScalarAttribute))
	}
	pf, index := fn.Address, d.found.Number
	if fn.PF != nil {
		pf = *fn.PF
		if d.Kind == hostdev.VDPA && d.Aux == "" {
			n, ok, err := r.host.Sys.VFIndex(pf, fn.Address)
			if err != nil {
				return err
			}
			if ok {
				index = &n
			}
		}
	}
	if index != nil && d.Kind != hostdev.SF {
		d.setInt(AttrVFIndex, *index)
	}
	d.standard(r.root(pf.String()))
	for above := d.found; above != nil; above = above.Parent {
		if above.PCI == pf.String() {
			r.above(d, above)
		}
	}
	return nil
}

// standard takes an attribute from Kubernetes' own helpers. What they refuse, such as a PCI
// domain of five digits, is left out.
func (d *device) standard(a deviceattribute.DeviceAttribute, err error) {
	if err == nil {
		d.Attributes[a.Name] = a.Value
	}
}

// root asks once for all VFs of a PF: they are behind the same root complex.
func (r *reader) root(pf string) (a deviceattribute.DeviceAttribute, err error) {
	a, known := r.roots[pf]
	links, ok := r.host.links()
	if !known && ok {
		if a, err = deviceattribute.GetPCIeRootAttributeByPCIBusID(pf, deviceattribute.WithFS(links)); err == nil {
			r.roots[pf] = a
		}
	}
	if a.Name == "" {
		err = errors.New("there is no root complex")
	}
	return a, err
}

// rdma tells of the RDMA devices of a function or SF, and whether they are all that it has.
func (r *reader) rdma(d *device) error {
	if d.Kind == hostdev.VDPA {
		return nil
	}
	rdma := d.found.RDMA
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

// above gives what a device has of its PF, or of the NIC that it is on: the interface, the
// carrier, the mode of the eswitch, the representor.
func (r *reader) above(d *device, pf *hostdev.Device) {
	d.set(AttrEswitchMode, pf.Eswitch)
	if pf == d.found {
		return
	}
	d.PFName = pf.IfName
	d.set(AttrPFName, pf.IfName)
	d.set(AttrPFPCIBusID, pf.PCI)
	d.NoCarrier = pf.IfName != "" && r.withoutCarrier(pf.IfName)
	d.set(AttrRepresentor, d.found.Representor)
}
