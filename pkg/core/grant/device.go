package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/sysfs"
)

func (o *offer) function(p *devinfo.PCI) error {
	address, err := pci.Parse(p.Address)
	if err != nil {
		return nil // a declared address that this node cannot have
	}
	fn, ok, err := o.Sys.PCI(address)
	if err != nil || !ok {
		return err
	}
	vfio, onVFIO, err := o.Sys.VFIO(fn)
	if err != nil {
		return err
	}
	rdma, err := o.rdma(fn)
	if err != nil {
		return err
	}
	if !onVFIO && len(rdma) == 0 && p.VhostNet == "" {
		return nil
	}
	device := "the PCI function " + address.String()
	name, id := address.String(), sysfs.ID("pci", address.String())
	if o.found.SF != "" {
		name, id = o.found.SF, sysfs.ID("auxiliary", o.found.SF)
	}
	verbsOnly := !onVFIO && p.VhostNet == ""
	allowed, named, err := o.allowsFunction(device, fn, verbsOnly && name == o.Claimed)
	if err != nil || !allowed {
		return err
	}
	if !named {
		rdma = slices.DeleteFunc(rdma, func(node string) bool { // device nodes of subnet managers, which control the whole fabric
			return strings.HasPrefix(node, "umad") || strings.HasPrefix(node, "issm")
		})
	}
	if !o.leased(device, id) {
		return nil
	}
	if onVFIO && o.found.SF == "" {
		o.addVFIO(device, vfio)
	}
	if len(rdma) > 0 {
		o.addAll(device, append(rdma, "rdma_cm"), "/dev/infiniband/")
	}
	switch p.VhostNet {
	case "":
	case cdispec.VhostNet:
		o.addAll(device, []string{"vhost-net", "net/tun"}, "/dev/")
	default: // the network's author could name any device node
		o.refuse(device, "its vhost-net is "+p.VhostNet,
			"only "+cdispec.VhostNet+" is allowed: correct vhost-net in deviceInfo")
	}
	return nil
}

func (o *offer) rdma(fn sysfs.Function) ([]string, error) {
	switch {
	case o.found.RDMA != nil:
		return o.found.RDMA.Nodes, nil
	case o.found.SF == "":
		return o.Sys.RDMANodes(fn)
	}
	aux, ok, err := o.Sys.Auxiliary(o.found.SF)
	if err != nil || !ok {
		return nil, err
	}
	return o.Sys.RDMANodes(aux)
}

// allowsFunction reports whether the device belongs to the pod or is in allowedDevices, and refuses it
// otherwise. The address of a PF in allowedDevices covers its VFs. Neither it nor a claim covers the PF itself while it
// has VFs, because the holder of the PF controls them.
func (o *offer) allowsFunction(device string, fn sysfs.Function, claimed bool) (allowed, named bool, err error) {
	vfs, _, _, err := o.Sys.VFs(fn)
	if err != nil {
		return false, false, err
	}
	names := []string{fn.Address.String()}
	if fn.PF != nil {
		names = append(names, fn.PF.String())
	}
	if vfs > 0 && o.found.SF == "" {
		device, names, claimed = device+", a PF with VFs", nil, false
	}
	if alone, err := o.alone(device, fn); err != nil || !alone {
		return false, false, err
	}
	return o.allows(device, claimed, names...), o.named(names...), nil
}

// alone refuses a function that has another port, or may have one, because its device nodes reach all its ports. The
// Finder has counted the ports of the pod's interface.
func (o *offer) alone(device string, fn sysfs.Function) (bool, error) {
	ports, err := hostdev.AtMostOnePort, error(nil)
	switch {
	case o.found.MaybeShared:
		ports = hostdev.PortsUnknown
	case !o.found.IsInterface && !o.found.Shared && o.found.SF == "":
		ports, err = hostdev.CountPorts(o.Sys, fn, nil)
	}
	if err != nil {
		return false, err
	}
	switch ports {
	case hostdev.SeveralPorts:
		o.refuse(device, "other interfaces use it too", withoutOthers)
	case hostdev.PortsUnknown:
		o.refuse(device, "it may have another port, in another network namespace: neither its driver "+fn.Driver+" nor an RDMA device in sight shows that it has one only",
			withoutOthers+"; ib_core.netns_mode=1, set at boot, brings the RDMA device into sight")
	}
	return ports == hostdev.AtMostOnePort, nil
}

const withoutOthers = "attach a device that only this pod uses; no setting allows a shared device"

func (o *offer) named(names ...string) bool {
	return slices.ContainsFunc(o.Settings.AllowedDevices, func(d string) bool { return slices.Contains(names, strings.ToLower(d)) })
}

// allows refuses the device unless it is the pod's interface, claimed, or allowedDevices contains one of its names or "*".
func (o *offer) allows(device string, claimed bool, names ...string) bool {
	if o.found.Shared {
		o.refuse(device, "other interfaces use it too", withoutOthers)
		return false
	}
	names = append(names, "*")
	if o.found.IsInterface || claimed || o.named(names...) {
		return true
	}
	o.refuse(device, "it has no interface in the pod's network namespace, and the node setting allowedDevices does not contain it",
		fmt.Sprintf(`add "%s" to allowedDevices in the node settings`, strings.Join(names, `" or "`)))
	return false
}

// leased refuses a device that the pod has no lease of, because allowedDevices alone would allow it to every pod.
func (o *offer) leased(device, id string) bool {
	if o.Leased == nil || o.Leased(id) {
		return true
	}
	o.refuse(device, "the pod has no lease of it", "add the plugin devinfo to the pod's network; ADD then takes the lease or reports which pod holds the device")
	return false
}

// addVFIO adds /dev/vfio/vfio with the device node of the IOMMU group, and /dev/iommu with the device node of the
// VFIO device. The host may have only one of the two pairs. The device node of a group gives access to all devices
// in the group.
func (o *offer) addVFIO(device string, v sysfs.VFIO) {
	node, err := "its IOMMU group", fs.ErrNotExist
	if v.Group != "" {
		if !o.leased("the IOMMU group "+v.Group, sysfs.ID("iommu", v.Group)) {
			return
		}
		if node, err = o.add("/dev/vfio/vfio", "/dev/vfio/"+v.Group); err == nil {
			o.IOMMUGroup = v.Group
		}
	}
	if v.Device != "" {
		if _, noDevice := o.add("/dev/iommu", "/dev/vfio/devices/"+v.Device); noDevice == nil {
			return
		}
	}
	if err != nil {
		o.refuse(device, absent(node, err), "load the modules vfio and vfio_iommu_type1, and make sure that /dev is a devtmpfs")
	}
}

// vdpa adds the device node of a vDPA device on the driver vhost_vdpa. A device on virtio_vdpa has none.
func (o *offer) vdpa(d *devinfo.VDPA) error {
	v, ok, err := o.Sys.VDPA(d.ParentDevice)
	if err != nil || !ok || v.Vhost == "" {
		return err
	}
	names := []string{v.Name}
	if management := v.Management(); management != "" {
		names = append(names, management)
	}
	if v.PCI != nil {
		names = append(names, v.PCI.String())
		fn, ok, err := o.Sys.PCI(*v.PCI)
		if err != nil {
			return err
		}
		if ok && fn.PF != nil {
			names = append(names, fn.PF.String())
		}
	}
	if device := "the vDPA device " + v.Name; o.allows(device, false, names...) && o.leased(device, sysfs.ID("vdpa", v.Name)) {
		o.addAll(device, []string{v.Vhost}, "/dev/")
	}
	return nil
}

func (o *offer) addAll(device string, names []string, dir string) {
	for _, name := range names {
		if node, err := o.add(dir + name); err != nil {
			o.refuse(device, absent(node, err), "load the module "+module(name))
		}
	}
}

// module returns the kernel module that makes a device node of this name.
func module(node string) string {
	return map[string]string{
		"uverbs": "ib_uverbs", "umad": "ib_umad", "issm": "ib_umad", "rdma_cm": "rdma_ucm", "vhost-net": "vhost_net", "net/tun": "tun", "vhost-vdpa": "vhost_vdpa",
	}[strings.TrimRight(node, "-0123456789")]
}

func absent(node string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return node + " does not exist"
	}
	return fmt.Sprintf("%s: %v", node, err)
}
