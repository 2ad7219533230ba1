package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/invoke"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Paths are the paths of files, directories and sockets on the node. All are absolute.
type Paths struct {
	PluginDirs   []string // CNI_PATH
	ConfDir      string   // directory of CNI configurations
	Settings     config.Node
	NRISocket    string
	PodResources string // the kubelet's socket
	SRIOVLocks   string // directory of sriov-cni's locks
}

// The remedies for paths that are not there, for example because devinfo-agent's pod does not mount them.
const (
	NameConfDir      = "name it with --cni-conf-dir" + orMount
	NamePodResources = "name it with --pod-resources" + orMount

	orMount = "; in devinfo-agent's pod, agent.doctor=true of the chart or the kustomize component doctor mounts it"
)

// Gather collects the live facts of this node. Live.Notes lists the facts that it cannot read. It runs the
// configured plugins with VERSION, which changes nothing (CNI specification 1.1.0).
func Gather(ctx context.Context, p Paths, gone func(netns string) (bool, error)) *Live {
	l := &Live{PluginDirs: p.PluginDirs, Missing: map[string]string{}, Unwritable: map[string]string{}, Plugins: map[string]Plugin{}}
	s := p.Settings
	if !exists(p.ConfDir) {
		l.NoConf = p.ConfDir
	}
	for _, dir := range p.PluginDirs {
		switch stat, err := os.Stat(dir); {
		case err != nil:
			l.Missing[dir] = errorText(err)
		case !stat.IsDir():
			l.Missing[dir] = "is not a directory"
		}
	}
	for _, d := range []struct {
		path     string
		writable func() error
	}{{s.StateDir, func() error { return journal.Open(s.StateDir, "").Writable() }}, {s.DeviceInfoDir, store.Open(s.DeviceInfoDir).Writable}, {s.CDIDir, store.Open(s.CDIDir).Writable}} {
		switch err := d.writable(); {
		case err == nil || d.path == "" || errors.Is(err, store.ErrNFS): // reported below
		case errors.Is(err, fs.ErrPermission):
			l.note("directories", "run as root", "whether ADD can write to "+d.path+": "+strings.TrimPrefix(err.Error(), d.path+": "))
		case errors.Is(err, unix.EROFS):
			l.ReadOnly = append(l.ReadOnly, d.path)
		default:
			l.Unwritable[d.path] = strings.TrimPrefix(err.Error(), d.path+": ")
		}
	}
	l.NFS = errors.Is(store.Lockable(s.StateDir), store.ErrNFS)
	if err := journal.Open(s.StateDir, "").Own(); err != nil && s.StateDir != "" {
		l.Exposed = "state directory: " + errors.Unwrap(err).Error()
	}
	networks, types := l.networks(p.ConfDir)
	l.ask(ctx, append(types, validate.Plugin))
	l.validate(networks)
	l.NRI = exists(p.NRISocket)
	if _, err := os.Stat(p.NRISocket); err != nil && l.NRI {
		l.note("runtime", "run as root", "the NRI socket "+p.NRISocket+": "+errorText(err))
	}
	l.GatherDevices(ctx, p, gone)
	return l
}

// GatherDevices collects the facts that tell which devices pods have, and whether the next pod can use the others.
func (l *Live) GatherDevices(ctx context.Context, p Paths, gone func(netns string) (bool, error)) {
	var err error
	if l.Locks, err = journal.ReadSRIOVLocks(os.DirFS(p.SRIOVLocks), gone); err != nil {
		l.note("holders", "run as root", "sriov-cni's locks in "+p.SRIOVLocks+": "+errorText(err))
	}
	if l.VFs, err = settings.VFs(); err != nil {
		l.note("leftovers", "", fmt.Sprintf("settings of VFs: %v", err))
	}
	if l.Conditions, err = settings.Conditions("/proc"); err != nil {
		l.note("usable", "", fmt.Sprintf("settings of interfaces: %v", err))
	}
	l.Blind = !link.SeesProcesses() || err != nil
	l.devices(ctx, p)
}

// ask runs plugins with VERSION, all in parallel, so that a plugin that hangs does not use up the time of the
// next ones.
func (l *Live) ask(ctx context.Context, types []string) {
	var all sync.WaitGroup
	var one sync.Mutex
	for _, kind := range slices.Compact(slices.Sorted(slices.Values(types))) {
		path, err := invoke.FindInPath(kind, l.PluginDirs)
		if err != nil {
			continue
		}
		all.Go(func() {
			p := Plugin{Path: path}
			if e, err := install.Examine(ctx, path); err != nil {
				p.Problem = err.Error()
			} else {
				p = Plugin{path, e.CNIVersions, e.Problem, e.Build}
			}
			one.Lock()
			defer one.Unlock()
			l.Plugins[kind] = p
		})
	}
	all.Wait()
}

// exists reports whether a path is there, or cannot be looked at.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// UsualDirs returns the existing directories of CNI plugins and the directory of network configurations below
// root. It knows the default directories and the directories of K3s, OpenShift and MicroK8s. root "" means /.
func UsualDirs(root string) (plugins []string, conf string) {
	const pluginDir, confDir = "/opt/cni/bin", "/etc/cni/net.d"
	conf = confDir
	for _, of := range []struct{ plugins, conf string }{
		{"/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/agent/etc/cni/net.d"},
		{"/var/lib/cni/bin", "/etc/kubernetes/cni/net.d"},
		{"/var/snap/microk8s/current/opt/cni/bin", "/var/snap/microk8s/current/args/cni-network"},
		{pluginDir, confDir},
	} {
		if exists(root + of.plugins) {
			plugins = append(plugins, of.plugins)
		}
		if conf == confDir && exists(root+of.conf) {
			conf = of.conf
		}
	}
	if plugins == nil {
		plugins = []string{pluginDir}
	}
	return plugins, conf
}

// errorText returns the error without the path, which the caller prints.
func errorText(err error) string {
	if path, is := errors.AsType[*fs.PathError](err); is {
		return path.Err.Error()
	}
	return err.Error()
}

// typed matches the types of plugins in a configuration, those in delegates of Multus and of devinfo and those of IPAM too.
var typed = regexp.MustCompile(`(?i)"type"\s*:\s*"([^"]+)"`)

// networks reads the configurations that contain devinfo, by path, and returns the types of their plugins.
func (l *Live) networks(dir string) (texts map[string][]byte, types []string) {
	texts = map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil && l.NoConf == "" {
		l.note("networks", "run as root, and check the type of the file", "network configurations in "+dir+": "+errorText(err))
	}
	for _, e := range entries {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := store.ReadFile(path, config.MaxFile)
		if err != nil {
			l.note("networks", "run as root, and check the type of the file", "network configuration "+path+": "+strings.TrimPrefix(errorText(err), path+": "))
			continue
		}
		var used []string
		for _, found := range typed.FindAllSubmatch(text, -1) {
			used = append(used, string(found[1]))
		}
		if slices.Contains(used, validate.Plugin) {
			texts[path], types = text, append(types, used...)
		}
	}
	return texts, types
}

func (l *Live) validate(texts map[string][]byte) {
	checker := validate.Checker{Versions: func(plugin string) []string { return l.Plugins[plugin].CNIVersions }}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		n, docs := Network{Path: path}, validate.Parse(path, texts[path])
		checker.Check(docs, validate.CNIConfig)
		for _, d := range docs {
			for _, f := range d.Findings {
				f.Value = "" // it may be a secret
				n.Findings = append(n.Findings, f)
			}
		}
		l.Networks = append(l.Networks, n)
	}
}

// devices reads the devices of pods from the kubelet's pod resources API. It leaves out PCI devices of other kinds, such as
// GPUs, because a capture of /sys does not contain them. The driver also keeps off what other DRA drivers have given away.
func (l *Live) devices(ctx context.Context, p Paths) {
	if _, err := os.Stat(p.PodResources); err != nil {
		l.note("allocations", NamePodResources, "devices of pods: "+p.PodResources+": "+errorText(err))
		return
	}
	answer, err := podresources.Ask(ctx, p.PodResources)
	if err != nil {
		l.note("allocations", "check that the kubelet runs: systemctl status kubelet", fmt.Sprintf("devices of pods: %v", err))
		return
	}
	sys := sysfs.New(os.DirFS(p.Settings.Sysfs))
	devices, _, err := hostdev.Read(hostdev.Host{Sys: sys})
	if err != nil {
		l.note("allocations", "", fmt.Sprintf("devices of pods: %v", err))
	}
	network := map[string]bool{}
	for _, d := range devices {
		network[d.At.Name] = true
		if d.Function != nil {
			network[d.Function.Address.String()] = true
		}
	}
	l.Kubelet = true
	l.Devices = slices.DeleteFunc(answer.Given, func(g podresources.Given) bool {
		there, _, err := onNode(sys, g.Device)
		return err == nil && there && !network[g.Device]
	})
	l.Claimed = slices.DeleteFunc(answer.Claimed, func(c podresources.Claimed) bool {
		return !slices.ContainsFunc(c.PCI, func(address string) bool { return network[address] })
	})
}

// NoLive stands for the live facts of a capture that has none.
func NoLive() *Live { return &Live{None: true, Blind: true} }

// Live contains the facts that are only available on the node itself.
type Live struct {
	None       bool                   `json:"-"`                    // see [NoLive]
	VFs        []settings.VFRecord    `json:"vfs,omitempty"`        // VFs whose PFs report the settings
	Conditions []settings.Condition   `json:"conditions,omitempty"` // of hardware interfaces
	Devices    []podresources.Given   `json:"devices,omitempty"`    // allocations of device plugins to pods
	Claimed    []podresources.Claimed `json:"claimed,omitempty"`    // devices that DRA drivers have given to pods, as far as their names tell
	Kubelet    bool                   `json:"kubelet,omitempty"`    // the kubelet has answered, so that Devices is complete
	Blind      bool                   `json:"blind,omitempty"`      // not all network namespaces are visible
	Locks      []journal.SRIOVLock    `json:"locks,omitempty"`      // locks of sriov-cni
	Plugins    map[string]Plugin      `json:"plugins,omitempty"`    // CNI plugins by type: the configured ones and devinfo
	PluginDirs []string               `json:"pluginDirs,omitempty"`
	Networks   []Network              `json:"networks,omitempty"`   // configurations that contain devinfo
	NRI        bool                   `json:"nri,omitempty"`        // the NRI socket exists
	ReadOnly   []string               `json:"readOnly,omitempty"`   // directories of the plugin on a read-only file system
	Unwritable map[string]string      `json:"unwritable,omitempty"` // those in which ADD cannot write, and why: a full disk, a file in the way
	NFS        bool                   `json:"nfs,omitempty"`        // stateDir is on NFS
	Exposed    string                 `json:"exposed,omitempty"`    // why other users can change the journal
	Missing    map[string]string      `json:"missing,omitempty"`    // directories of plugins, and why they cannot be used
	NoConf     string                 `json:"noConf,omitempty"`     // directory of the network configurations, if it is not there
	DriverAway bool                   `json:"driverAway,omitempty"` // see [node.Node.DriverAway]
	Notes      []Note                 `json:"notes,omitempty"`
}

type Plugin struct {
	Path        string     `json:"path"`
	CNIVersions []string   `json:"cniVersions,omitempty"`
	Problem     string     `json:"problem,omitempty"` // why its versions are unknown
	Build       build.Info `json:"build,omitzero"`    // build information of Go programs; devinfo prints its own
}

// Network is a file of the CNI configuration directory. It has no part of the configuration, which may contain secrets.
type Network struct {
	Path     string             `json:"path"`
	Findings []validate.Finding `json:"findings,omitempty"` // without values
}

// Note describes facts that could not be read.
type Note struct {
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
	Check  string `json:"check,omitempty"` // the check that needs them
}

func (l *Live) note(check, remedy, text string) { l.Notes = append(l.Notes, Note{text, remedy, check}) }
