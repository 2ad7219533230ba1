package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/sysfs"
)

// A subsystem is a kind of devices.
type subsystem struct {
	name string
	list string // directory with the kernel's links to the devices
	kept string // patterns of what is captured below a device, also in directories that are not devices themselves
}

var subsystems = []subsystem{
	{"pci", "bus/pci/devices", "driver subsystem physfn virtfn* iommu_group vendor device class numa_node " +
		"sriov_totalvfs sriov_numvfs sriov_offset sriov_stride sriov_vf_device"},
	{"virtio", "bus/virtio/devices", "driver subsystem"},
	{"vdpa", "bus/vdpa/devices", "driver subsystem vhost-vdpa-*/dev"},
	{"auxiliary", "bus/auxiliary/devices", "driver subsystem sfnum"},
	{"netdevsim", "bus/netdevsim/devices", "driver subsystem sriov_numvfs"},
	{"net", "class/net", "subsystem device address ifindex phys_port_name phys_switch_id dev_port type"},
	{"infiniband", "class/infiniband", "subsystem device parent node_type node_guid node_desc ports/*/gid_attrs/ndevs/0 ports/*/link_layer"},
	{"infiniband_verbs", "class/infiniband_verbs", "subsystem device dev ibdev"},
	{"infiniband_mad", "class/infiniband_mad", "subsystem device dev ibdev port"},
	{"vfio-dev", "class/vfio-dev", "subsystem device dev"},
}

// tree is the captured part of /sys. It maps paths to a file, a link or an empty directory.
type tree struct {
	sys    fs.FS
	kept   map[string]kept
	denied int   // files that only root may read
	err    error // first read error
}

type kept struct {
	what string // "" = a file, " -> target" a link, " !EOPNOTSUPP" a read error, "/" an empty directory
	data []byte
}

func linkTo(target string) kept { return kept{what: toTarget + target} }

func (k kept) target() (target string, ok bool) { return strings.CutPrefix(k.what, toTarget) }

const toTarget = " -> "

// Sys captures the part of /sys that is needed to find a network device: the attributes of network devices, the links
// to them in buses, classes and IOMMU groups, and the targets of links. It returns the number of attributes without
// read permission.
func Sys(sys fs.FS) (entries []txtar.File, denied int, err error) {
	t := &tree{sys: sys, kept: map[string]kept{}}
	for _, s := range subsystems {
		t.list(s)
	}
	t.file("module/ib_core/parameters/netns_mode")
	t.targets()
	for _, name := range slices.Sorted(maps.Keys(t.kept)) {
		entries = append(entries, txtar.File{Name: "sys/" + name + t.kept[name].what, Data: t.kept[name].data})
	}
	return entries, t.denied, t.err
}

// failed records an error of a read, unless it means that there is nothing: the device may just have been unbound.
func (t *tree) failed(err error) {
	if !sysfs.Absent(err) {
		t.err = cmp.Or(t.err, err)
	}
}

// read returns what a function of package fs reads, or nothing after an error.
func read[T any](t *tree, do func(fs.FS, string) (T, error), name string) T {
	got, err := do(t.sys, name)
	t.failed(err)
	return got
}

func (t *tree) list(s subsystem) {
	for _, e := range read(t, fs.ReadDir, s.list) {
		link := path.Join(s.list, e.Name())
		target := read(t, fs.ReadLink, link) // "" = class/net/bonding_masters, which is a file
		dir := path.Join(s.list, target)     // the kernel's links contain canonical paths
		if target != "" && t.network(s.name, dir) {
			t.kept[link] = linkTo(target)
			t.keep(dir, append(strings.Fields(s.kept), "net", "infiniband"))
			t.group(dir)
		}
	}
}

// network reports whether a device belongs to a network controller: a PCI function of class 02xxxx or with
// auxiliary devices, a VFIO device of such a function, or a virtio device that is a NIC or is below such a
// function. Devices of the other subsystems always do. The functions of AMD Pensando have class 12xxxx, and their
// vDPA devices are below an auxiliary device.
func (t *tree) network(subsystem, dir string) bool {
	switch subsystem {
	case "pci":
		isAuxiliary := func(e fs.DirEntry) bool {
			return e.IsDir() && path.Base(read(t, fs.ReadLink, path.Join(dir, e.Name(), "subsystem"))) == "auxiliary"
		}
		return strings.HasPrefix(string(read(t, fs.ReadFile, dir+"/class")), "0x02") || slices.ContainsFunc(read(t, fs.ReadDir, dir), isAuxiliary)
	case "vfio-dev":
		return t.network("pci", path.Dir(path.Dir(dir)))
	case "virtio":
		return path.Base(read(t, fs.ReadLink, dir+"/driver")) == "virtio_net" || t.network("pci", path.Dir(dir))
	}
	return true
}

// keep captures what matches a pattern below a directory: links, files, and directories that are empty.
func (t *tree) keep(dir string, patterns []string) {
	for _, e := range read(t, fs.ReadDir, dir) {
		name := path.Join(dir, e.Name())
		for _, pattern := range patterns {
			first, rest, more := strings.Cut(pattern, "/")
			matched, _ := path.Match(first, e.Name()) // the patterns are constants
			switch {
			case !matched:
			case more:
				t.keep(name, []string{rest})
			case e.Type() == fs.ModeSymlink:
				if target := read(t, fs.ReadLink, name); target != "" {
					t.kept[name] = linkTo(target)
				}
			case e.IsDir() && (first == "net" || first == "infiniband"): // a file that is a directory cannot be read
				below, err := fs.ReadDir(t.sys, name)
				if t.failed(err); err == nil && len(below) == 0 {
					t.kept[name] = kept{what: "/"}
				}
			case first != "node_desc" || strings.HasPrefix(string(read(t, fs.ReadFile, name)), sysfs.ErdmaDesc): // of others it has the host's name
				t.file(name)
			}
		}
	}
}

// file captures a file, or the error of reading it.
func (t *tree) file(name string) {
	data, err := fs.ReadFile(t.sys, name)
	errno, named := capturefile.ErrorName(err)
	switch {
	case err == nil:
		t.kept[name] = kept{data: data}
	case errors.Is(err, fs.ErrNotExist):
	case !named:
		t.err = cmp.Or(t.err, fmt.Errorf("capture /sys: %w", err))
	default:
		t.kept[name] = kept{what: " !" + errno}
		if errors.Is(err, fs.ErrPermission) {
			t.denied++
		}
	}
}

// group captures the device's link to its IOMMU group and the group's name. The name shows whether VFIO created the
// group because the machine lacks an IOMMU.
func (t *tree) group(dir string) {
	target, ok := t.kept[dir+"/iommu_group"].target()
	if !ok {
		return
	}
	group := path.Join(dir, target)
	member := path.Join(group, "devices", path.Base(dir))
	t.kept[member] = linkTo(strings.Repeat("../", strings.Count(member, "/")) + dir)
	t.file(group + "/name")
}

// targets adds an empty directory for each link whose target is not captured. The parents of captured links are not
// links themselves, so joining paths is correct.
func (t *tree) targets() {
	filled := map[string]bool{}
	for name := range t.kept {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			filled[dir] = true
		}
	}
	for name, k := range t.kept {
		to, ok := k.target()
		if target := path.Join(path.Dir(name), to); ok && !filled[target] {
			t.kept[target] = kept{what: "/"}
		}
	}
}
