package network

import (
	"maps"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/sysfs"
)

// RDMAVariable returns the variable DEVINFO_RDMA_DEVICES of a pod with these attachments: the RDMA devices, sorted by
// interface name (net2 before net10), then those without a network.
func RDMAVariable(all []state.Attachment) string {
	attached, bare := map[string]*devinfo.Info{}, []*devinfo.Info(nil)
	for _, at := range all {
		info, err := devinfo.Parse(at.Info)
		switch {
		case err != nil: // the device information is missing, or has another major version
		case at.Bare():
			bare = append(bare, info)
		case at.Phase == state.Added:
			attached[at.IfName] = info
		}
	}
	var infos []*devinfo.Info
	for _, name := range slices.SortedFunc(maps.Keys(attached), sysfs.ByNumber) {
		infos = append(infos, attached[name])
	}
	return cdispec.RDMADevices(append(infos, bare...))
}

// SetRDMA sets DEVINFO_RDMA_DEVICES in a spec of one device to rdma; "" removes it.
func SetRDMA(spec *specs.Spec, rdma string) {
	edits := &spec.Devices[0].ContainerEdits
	edits.Env = slices.DeleteFunc(edits.Env, func(env string) bool { return strings.HasPrefix(env, cdispec.RDMAVariable+"=") })
	if rdma != "" {
		edits.Env = append(edits.Env, rdma)
	}
}
