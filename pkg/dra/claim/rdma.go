package claim

import (
	"maps"
	"slices"
	"sort"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/sysfs"
)

// rdmaVariable returns the variable DEVINFO_RDMA_DEVICES of a pod, with the RDMA devices of all its claims. The
// devices are sorted by interface name, with numbers compared by value (net2 before net10). Devices without a
// network come last. The mutex must be held.
func (t *table) rdmaVariable(pod state.Pod) string {
	var all []state.Attachment
	for _, c := range t.claimsOf(pod) {
		all = append(all, c.record.Attachments...)
	}
	return rdmaVariable(all)
}

func rdmaVariable(all []state.Attachment) string {
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
	names := sysfs.ByNumber(slices.Collect(maps.Keys(attached)))
	sort.Sort(names)
	var infos []*devinfo.Info
	for _, name := range names {
		infos = append(infos, attached[name])
	}
	return cdispec.RDMADevices(append(infos, bare...))
}

// wakePod queues the claims of a pod. The mutex must be held.
func (t *table) wakePod(pod state.Pod) {
	for _, c := range t.claimsOf(pod) {
		t.wake(c)
	}
}
