package doctor_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/core/podresources/podresourcestest"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/finding"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

func paths(t *testing.T) (doctor.Paths, string) {
	t.Helper()
	dir := t.TempDir()
	p := doctor.Paths{
		PluginDirs: []string{filepath.Join(dir, "bin")}, ConfDir: filepath.Join(dir, "net.d"),
		NRISocket: filepath.Join(dir, "nri.sock"), PodResources: filepath.Join(dir, "kubelet.sock"), SRIOVLocks: filepath.Join(dir, "pci"),
		Settings: config.Node{CDIDir: filepath.Join(dir, "cdi"), Sysfs: filepath.Join(dir, "sys")},
	}
	return p, dir
}

func TestGatherCollectsLiveFacts(t *testing.T) {
	p, dir := paths(t)
	difftest.Must(t, capturetest.Load(t, "pds-vdpa").Unpack(p.Settings.Sysfs)) // 0000:b5:00.1 is a network device only by its vDPA device
	difftest.Write(t, p.Settings.Sysfs+"/devices/pci0000:00/0000:00:0e.0/class", "0x030000\n", 0o444)
	difftest.Must(t, os.Symlink("../../../devices/pci0000:00/0000:00:0e.0", p.Settings.Sysfs+"/bus/pci/devices/0000:00:0e.0"))
	podresourcestest.Kubelet{Pods: func() ([]*podresourcesapi.PodResources, error) {
		return []*podresourcesapi.PodResources{podresourcestest.Pod("shop", "dpdk-0", podresourcestest.Of("example.com/vf", "0000:b5:00.1", "0000:b5:00.7", "gpu-7", "0000:00:0e.0"),
			podresourcestest.Claim("sriov.example.com", "0000-b5-00-1"), podresourcestest.Claim("gpu.example.com", "gpu-0000-00-0e-0"))}, nil
	}}.Serve(t, p.PodResources)
	script := "#!/bin/sh\n>$0.asked\n" + // each plugin answers only after both were started
		"until [ -e " + dir + "/bin/devinfo.asked -a -e " + dir + "/bin/sriov.asked ]; do sleep 0.01; done\necho '{\"cniVersion\": \"1.0.0\", \"supportedVersions\": [\"0.4.0\", \"1.0.0\"]}'\n"
	difftest.Write(t, filepath.Join(dir, "bin/devinfo"), script, 0o755)
	difftest.Write(t, filepath.Join(dir, "bin/sriov"), script, 0o755)
	difftest.Write(t, filepath.Join(dir, "bin/bridge"), "no program", 0o755)
	difftest.Write(t, filepath.Join(dir, "bin/unused"), "#!/bin/sh\ntouch "+dir+"/run\n", 0o755)
	difftest.Write(t, filepath.Join(dir, "net.d/10.conflist"),
		`{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "sriov", "password": "secret"}, {"type": "devinfo", "deviceInfoFile": "auto", "strict": "secret"}]}`, 0o600)
	difftest.Write(t, filepath.Join(dir, "net.d/20.conf"), `{"cniVersion": "1.0.0", "name": "m", "type": "unused"}`, 0o600)
	difftest.Write(t, filepath.Join(dir, "net.d/30.conf.bak"), `{"cniVersion": "1.0.0", "name": "o", "type": "devinfo"}`, 0o600)
	difftest.Write(t, filepath.Join(dir, "net.d/00-multus.conflist"),
		`{"cniVersion": "1.0.0", "name": "multus", "plugins": [{"type": "multus", "delegates": [{"cniVersion": "1.0.0", "name": "k", "plugins": [{"type": "bridge"}, {"type": "devinfo"}]}]}]}`, 0o600)
	difftest.Write(t, filepath.Join(dir, "pci/0000:03:00.2"), "/run/netns/a", 0o600)
	difftest.Write(t, filepath.Join(dir, "pci/0000:03:00.3"), "/run/netns/b", 0o600)
	difftest.Write(t, p.NRISocket, "", 0o600)

	l := doctor.Gather(t.Context(), p, func(netns string) (bool, error) { return netns == "/run/netns/b", nil })
	l.VFs, l.Conditions, l.Blind = nil, nil, false // of the machine that runs the test
	versions := []string{"0.4.0", "1.0.0"}
	const other = "the %s of this node knows CNI 0.4.0, 1.0.0 only, not 1.1.0: set one of those as cniVersion, or update the plugin"
	want := &doctor.Live{
		Kubelet: true, Claimed: []podresources.Claimed{{Pod: "shop/dpdk-0", Driver: "sriov.example.com", PCI: []string{"0000:b5:00.1"}}}, Devices: []podresources.Given{
			{Pod: "shop/dpdk-0", Resource: "example.com/vf", Device: "0000:b5:00.1"}, {Pod: "shop/dpdk-0", Resource: "example.com/vf", Device: "0000:b5:00.7"},
			{Pod: "shop/dpdk-0", Resource: "example.com/vf", Device: "gpu-7"},
		},
		Locks: []journal.SRIOVLock{{Device: "0000:03:00.2", Netns: "/run/netns/a"}, {Device: "0000:03:00.3", Netns: "/run/netns/b", Gone: true}},
		Plugins: map[string]doctor.Plugin{
			"devinfo": {Path: filepath.Join(dir, "bin/devinfo"), CNIVersions: versions}, "sriov": {Path: filepath.Join(dir, "bin/sriov"), CNIVersions: versions},
			"bridge": {Path: filepath.Join(dir, "bin/bridge"), Problem: "VERSION: fork/exec " + filepath.Join(dir, "bin/bridge") + ": exec format error"},
		},
		PluginDirs: p.PluginDirs, NRI: true, Unwritable: map[string]string{}, Missing: map[string]string{},
		Networks: []doctor.Network{{Path: filepath.Join(dir, "net.d/00-multus.conflist"), Findings: []validate.Finding{{
			Path: "plugins[0].delegates[0].plugins[1].deviceInfoFile", Rule: `Multus passes no path for a pod's default network: set "auto"`, Line: 1,
		}}}, {Path: filepath.Join(dir, "net.d/10.conflist"), Findings: []validate.Finding{
			{Path: "plugins[0].type", Rule: fmt.Sprintf(other, "sriov"), Line: 1}, {Path: "plugins[1].type", Rule: fmt.Sprintf(other, "devinfo"), Line: 1},
			{Path: "plugins[1].strict", Rule: "must be true or false", Line: 1},
		}}},
	}
	if os.Geteuid() != 0 {
		l.Notes = nil // others' network namespaces cannot be seen
	}
	difftest.Equal(t, l, want)
	difftest.Same(t, "calls of a plugin that no network with devinfo uses", difftest.Files(t, filepath.Join(dir, "run")), []string(nil))
}

// Only root may look into /run/nri.
func TestWhatCannotBeLookedAtIsNotMissing(t *testing.T) {
	p, dir := paths(t)
	difftest.Must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	p.NRISocket, p.ConfDir = filepath.Join(dir, "loop/nri.sock"), filepath.Join(dir, "loop/net.d")
	l := doctor.Gather(t.Context(), p, nil)
	difftest.Same(t, "NRI", l.NRI, true)
	difftest.Contains(t, fmt.Sprint(l.Notes), "the NRI socket "+p.NRISocket+": too many levels of symbolic links run as root runtime}")
	difftest.Same(t, "no configurations", l.NoConf, "")
}

func TestGatherTakesNoSecretsFromConfigurations(t *testing.T) {
	p, dir := paths(t)
	for name, text := range map[string]string{
		"a.conf":     `{"name": "a", "type": "devinfo", "delegates": [{"type": "userspace", "capabilities": {"mac": true}, "token": "secret"}]}`,
		"b.conflist": `{"name": "b", "plugins": [{"type": "devinfo", "delegates": [{"type": "x", "token": "secret"}]}]}`,
		"c.conf":     `{"name": "c", "type": "devinfo", "delegates": {"type": "x", "token": "secret"}}`,
		"d.conf":     `{"name": "d", "type": "devinfo", "delegates": ["secret"]}`,
		"e.conflist": `{"name": "e", "token": "secret", "plugins": [{"type": "devinfo", "strict": true, "delegate": {"token": "secret"}}]}`,
		"f.conflist": `{"name": "f", "plugins": [{"type": "devinfo", "a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1, "k": "secret"}]}`,
	} {
		difftest.Write(t, filepath.Join(dir, "net.d", name), text, 0o600)
	}
	l := doctor.Gather(t.Context(), p, nil)
	text, err := json.Marshal(l)
	difftest.Must(t, err)
	if len(l.Networks) != 6 || strings.Contains(string(text), "secret") || !strings.Contains(string(text), "delegates") {
		t.Errorf("%d networks: %s", len(l.Networks), text)
	}
}

// Opening a named pipe blocks until a writer opens it.
func TestGatherNotesWhatItCannotRead(t *testing.T) {
	for want, spoil := range map[string]func(p doctor.Paths){
		"a.conf: not a regular file (mode prw-------) run as root, and check the type of the file networks}": func(p doctor.Paths) {
			difftest.Must(t, os.MkdirAll(p.ConfDir, 0o755), unix.Mkfifo(filepath.Join(p.ConfDir, "a.conf"), 0o600))
		},
		"net.d: not a directory run as root, and check the type of the file networks}": func(p doctor.Paths) { difftest.Write(t, p.ConfDir, "", 0o600) },
		"pci: not a directory run as root holders}":                                    func(p doctor.Paths) { difftest.Write(t, p.SRIOVLocks, "", 0o600) },
		"refused\" check that the kubelet runs: systemctl status kubelet allocations}": func(p doctor.Paths) { difftest.Write(t, p.PodResources, "", 0o600) },
	} {
		p, _ := paths(t)
		spoil(p)
		difftest.Contains(t, fmt.Sprint(doctor.Gather(t.Context(), p, nil).Notes), want)
	}
}

func TestGatherFindsWhatIsNoDirectory(t *testing.T) {
	p, dir := paths(t)
	difftest.Write(t, p.PluginDirs[0], "", 0o600)
	p.PluginDirs = append(p.PluginDirs, filepath.Join(dir, "gone"))
	l := doctor.Gather(t.Context(), p, nil)
	difftest.Equal(t, l.Missing, map[string]string{p.PluginDirs[0]: "is not a directory", p.PluginDirs[1]: "no such file or directory"})
}

// ADD would only report that it cannot lock a temporary file. STATUS fails, but no runtime asks for it before CNI 1.1.
func TestGatherFindsDirectoriesInWhichADDCannotWrite(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		p, dir := paths(t)
		ro, full := filepath.Join(dir, "ro"), filepath.Join(dir, "full")
		difftest.Must(t, os.Mkdir(ro, 0o755), unix.Mount("tmpfs", ro, "tmpfs", unix.MS_RDONLY, ""), os.Mkdir(full, 0o755), unix.Mount("tmpfs", full, "tmpfs", 0, "nr_inodes=1"))
		defer func() { _, _ = unix.Unmount(ro, 0), unix.Unmount(full, 0) }() // a mounted directory cannot be removed
		difftest.Must(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
		difftest.Write(t, filepath.Join(dir, "file"), "", 0o600)
		p.Settings.StateDir, p.Settings.DeviceInfoDir, p.Settings.CDIDir = filepath.Join(ro, "lib/state"), filepath.Join(dir, "infos"), ro
		difftest.Equal(t, doctor.Gather(t.Context(), p, nil).ReadOnly, []string{p.Settings.StateDir, p.Settings.CDIDir})
		p.Settings.StateDir, p.Settings.DeviceInfoDir, p.Settings.CDIDir = filepath.Join(dir, "link"), filepath.Join(full, "infos"), filepath.Join(dir, "file")
		difftest.Equal(t, doctor.Gather(t.Context(), p, nil).Unwritable, map[string]string{
			p.Settings.StateDir: "symbolic link to nothing", p.Settings.DeviceInfoDir: full + ": not writable: no space left on device", p.Settings.CDIDir: "not a directory",
		})
	})
}

// Only root may try to write in the directories of the plugin.
func TestGatherNotesDirectoryThatItMayNotTry(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	p, dir := paths(t)
	p.Settings.DeviceInfoDir = filepath.Join(dir, "infos")
	difftest.Must(t, os.Mkdir(p.Settings.DeviceInfoDir, 0o500))
	l := doctor.Gather(t.Context(), p, nil)
	difftest.Contains(t, fmt.Sprint(l.Notes), "whether ADD can write to "+p.Settings.DeviceInfoDir+": ", "run as root directories}")
}

func TestGatherFindsJournalThatOthersCanChange(t *testing.T) {
	p, dir := paths(t)
	p.Settings.StateDir = filepath.Join(dir, "state")
	open := filepath.Join(p.Settings.StateDir, "attachments")
	difftest.Must(t, os.MkdirAll(open, 0o700), os.Chmod(open, 0o777))
	difftest.Contains(t, doctor.Gather(t.Context(), p, nil).Exposed, "state directory: "+open+" has mode ")
}

// K3s and OpenShift have additional CNI directories.
func TestUsualDirsIncludeThoseOfDistributions(t *testing.T) {
	for _, test := range []struct {
		there, dirs []string
		conf        string
	}{
		{nil, []string{"/opt/cni/bin"}, "/etc/cni/net.d"},
		{[]string{"/opt/cni/bin", "/etc/cni/net.d"}, []string{"/opt/cni/bin"}, "/etc/cni/net.d"},
		{[]string{"/opt/cni/bin", "/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/agent/etc/cni/net.d", "/etc/cni/net.d"},
			[]string{"/var/lib/rancher/k3s/data/cni", "/opt/cni/bin"}, "/var/lib/rancher/k3s/agent/etc/cni/net.d"},
		{[]string{"/var/lib/cni/bin", "/etc/kubernetes/cni/net.d", "/etc/cni/net.d"}, []string{"/var/lib/cni/bin"}, "/etc/kubernetes/cni/net.d"},
	} {
		root := t.TempDir()
		for _, dir := range test.there {
			difftest.Must(t, os.MkdirAll(root+dir, 0o755))
		}
		dirs, conf := doctor.UsualDirs(root)
		if !slices.Equal(dirs, test.dirs) || conf != test.conf {
			t.Errorf("%q: %q, %s", test.there, dirs, conf)
		}
	}
}

// A healthy node without agent.doctor=true gets no warnings. ADD makes the directory of CDI specs.
func TestUnmountedDirectoriesAreUnknown(t *testing.T) {
	p, dir := paths(t)
	difftest.Write(t, filepath.Join(dir, "bin/x"), "", 0o755)
	got := map[string]doctor.Finding{}
	for _, a := range doctor.Diagnose(&doctor.Evidence{Live: doctor.Gather(t.Context(), p, nil)}) {
		got[a.Check] = a
	}
	for check, want := range map[string]doctor.Finding{
		"networks":    {Level: finding.Unknown, Rule: "conf-missing", Text: p.ConfDir + ": no such file or directory", Remedy: doctor.NameConfDir},
		"sight":       {Level: finding.Unknown, Rule: "unread", Text: "devices of pods: " + p.PodResources + ": no such file or directory", Remedy: doctor.NamePodResources},
		"directories": {Level: finding.OK, Text: "the directories of CNI and CDI can be used, and ADD can write to its own"},
	} {
		want.Check = check
		difftest.Equal(t, got[check], want)
	}
}

// Evidence either has an error, or is what it is without the failure.
func TestEvidenceDoesNotOmitWhatItCannotRead(t *testing.T) {
	want := ""
	capturetest.EachFailure(capturetest.Load(t, "mlx5-vdpa").Sys(), func(files fs.FS, failed *string) {
		sys := sysfs.New(files)
		n := node.Open(node.Options{Settings: config.Node{StateDir: t.TempDir()}, Finder: &discovery.Finder{Sys: sys}, ClaimDir: "/nonexistent"})
		given := []podresources.Given{{Device: "0000:65:00.0"}, {Device: "0000:65:1f.7"}, {Device: "gpu-7"}, {Device: "a/b.sf.4"}, {Device: "mlx5_core.sf.99"}}
		vfs := []settings.VFRecord{{PF: "0000:65:00.0", Index: 1, PFName: "ens1"}, {PF: "0000:65:00.1", Index: 0}}
		e, err := doctor.EvidenceOf(n, hostdev.Host{Sys: sys}, &doctor.Live{Devices: given, VFs: vfs})
		if want == "" {
			difftest.Must(t, err)
			want = fmt.Sprint(len(e.Devices), e.VFs, e.Cards, e.Closed, e.RDMA, e.GivenGone)
			difftest.Equal(t, e.GivenGone, []podresources.Given{given[1], given[4]})
			difftest.Equal(t, e.VFs, []doctor.VF{{Address: "0000:65:00.3", PFDriver: "mlx5_core", VFRecord: vfs[0]}})
		}
		if err == nil && fmt.Sprint(len(e.Devices), e.VFs, e.Cards, e.Closed, e.RDMA, e.GivenGone) != want {
			t.Errorf("%s fails, and nothing says so", *failed)
		}
	})
}
