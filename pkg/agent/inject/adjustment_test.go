package inject

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

const infoDir = "/var/run/k8s.cni.cncf.io/devinfo/cni"

// all returns an adjustment of c with every kind of addition.
func all(c *api.Container, others []*api.Mount, userns bool) *adjustment {
	closed := cdispec.DeviceNode{Path: "/dev/vfio/15", Type: "c", Major: 1, Minor: 3, Perm: 0o660, GID: 107}
	open := closed
	open.Path, open.Perm = "/dev/infiniband/rdma_cm", 0o666
	g := newAdjustment(&api.PodSandbox{}, c, others)
	g.userns = userns
	g.withhold(ByPolicy, "a PF", "why", "remedy")
	mounted := g.mount(cdispec.Mount{Host: "/stage", Container: cdispec.InfoDir, ReadOnly: true})
	for _, n := range []cdispec.DeviceNode{closed, open, open} {
		g.node(n)
	}
	g.directory(cdispec.Mount{Host: "/run/vhost-user/pod-a", Container: "/var/run/vhost-user/a"}, 0o755, false)
	g.directory(cdispec.Mount{Host: "/run/vhost-user/pod-b", Container: "/var/run/vhost-user/b"}, 0o755, true)
	g.directory(cdispec.Mount{Host: "/run/vhost-user/pod-c", Container: "/var/run/vhost-user/c"}, 0o773, true)
	g.variables([]nic{{networkInfo: networkInfo{Interface: "net1", DeviceInfo: []byte("{}")}}}, mounted)
	return g
}

const (
	given      = "/stage on " + cdispec.InfoDir + "\nDEVINFO_NET1=" + cdispec.InfoDir + "/net1.json\n"
	givenNodes = "/dev/vfio/15 0660 0:107\n/dev/infiniband/rdma_cm 0666 0:107\n"
	givenA     = "/run/vhost-user/pod-a on /var/run/vhost-user/a\n"
	givenB     = "/run/vhost-user/pod-b on /var/run/vhost-user/b\n"
	givenC     = "/run/vhost-user/pod-c on /var/run/vhost-user/c\n"
	byPolicy   = "policy: a PF\n"
)

func mount(source, destination string, options ...string) *api.Mount {
	return &api.Mount{Source: source, Destination: destination, Type: "bind", Options: append(options, "rbind")}
}

func TestItemsOfTheContainerStay(t *testing.T) {
	for what, test := range map[string]struct {
		container *api.Container
		userns    bool
		want      string
	}{
		"nothing": {&api.Container{}, false, given + givenA + givenB + givenC + givenNodes + byPolicy},
		"items from CDI": {&api.Container{
			Env:    []string{"DEVINFO_NET1=" + cdispec.InfoDir + "/net1.json"},
			Mounts: []*api.Mount{mount(infoDir+"/net-c0ffee_net1", cdispec.InfoDir+"/net1.json", "ro"), mount("/run/vhost-user/pod-a", "/var/run/vhost-user/a")},
			Linux:  &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/infiniband/rdma_cm"}}},
		}, false, "/stage on " + cdispec.InfoDir + "\n" + givenB + givenC + "/dev/vfio/15 0660 0:107\n" + byPolicy},
		"the same by /run": {&api.Container{Mounts: []*api.Mount{mount("/run/k8s.cni.cncf.io/devinfo/cni/net-c0ffee_net1", cdispec.InfoDir+"/net1.json", "ro")}},
			false, given + givenA + givenB + givenC + givenNodes + byPolicy},
		"a variable of the pod": {&api.Container{Env: []string{"DEVINFO_NET1=mine", "DEVINFO_NET2"}}, false,
			"/stage on " + cdispec.InfoDir + "\n" + givenA + givenB + givenC + givenNodes + byPolicy},
		"the directory": {&api.Container{Mounts: []*api.Mount{mount("/x", cdispec.InfoDir+"/")}}, false,
			givenA + givenB + givenC + givenNodes + byPolicy + "mount: the directory " + cdispec.InfoDir + "\n"},
		"something below it": {&api.Container{Mounts: []*api.Mount{mount("/x", cdispec.InfoDir+"/dp")}}, false,
			givenA + givenB + givenC + givenNodes + byPolicy + "mount: the directory " + cdispec.InfoDir + "\n"},
		"a file of the pod in place of CDI's": {&api.Container{Mounts: []*api.Mount{mount("/var/lib/kubelet/x", cdispec.InfoDir+"/net1.json")}}, false,
			givenA + givenB + givenC + givenNodes + byPolicy + "mount: the directory " + cdispec.InfoDir + "\n"},
		"something below it by /run": {&api.Container{Mounts: []*api.Mount{mount(infoDir+"/net-c0ffee_net1", "/run/k8s.cni.cncf.io/devinfo/net1.json")}}, false,
			givenA + givenB + givenC + givenNodes + byPolicy + "mount: the directory " + cdispec.InfoDir + "\n"},
		"something above it":                   {&api.Container{Mounts: []*api.Mount{mount("/x", "/run", "rw"), mount("/y", "/var"), mount("/z", "/var/run/k8s", "ro"), mount("/", "/")}}, false, given + givenA + givenB + givenC + givenNodes + byPolicy},
		"something read-only above everything": {&api.Container{Mounts: []*api.Mount{mount("/x", "/run", "ro")}}, false, givenNodes + byPolicy + "mount: the directory " + cdispec.InfoDir + "\nmount: the directory /var/run/vhost-user/a\nmount: the directory /var/run/vhost-user/b\nmount: the directory /var/run/vhost-user/c\n"},
		"a socket's directory":                 {&api.Container{Mounts: []*api.Mount{mount("/x", "/run/vhost-user/b")}}, false, given + givenA + givenC + givenNodes + byPolicy + "mount: the directory /var/run/vhost-user/b\n"},
		"something shared above":               {&api.Container{Mounts: []*api.Mount{mount("/run", "/run", "rw", "rshared")}}, false, givenNodes + byPolicy + "propagation: the directory " + cdispec.InfoDir + "\npropagation: the directory /var/run/vhost-user/a\npropagation: the directory /var/run/vhost-user/b\npropagation: the directory /var/run/vhost-user/c\n"},
		"something shared above one of them":   {&api.Container{Mounts: []*api.Mount{mount("/x", "/var/run/vhost-user", "shared"), mount("/y", "/run/k8s.cni.cncf.io", "rslave"), mount("/z", "/srv", "rshared")}}, false, given + givenNodes + byPolicy + "propagation: the directory /var/run/vhost-user/a\npropagation: the directory /var/run/vhost-user/b\npropagation: the directory /var/run/vhost-user/c\n"},
		"a user namespace": {&api.Container{}, true,
			given + givenA + givenC + "/dev/infiniband/rdma_cm 0666 0:107\n" + byPolicy + "userNamespace: /dev/vfio/15\nuserNamespace: the directory /run/vhost-user/pod-b\n"},
	} {
		_, others := mountPoints(test.container.GetMounts(), infoDir)
		g := all(test.container, others, test.userns)
		difftest.Same(t, what, show(g), test.want)
		for _, w := range g.withheld {
			difftest.Same(t, what+": no reason, and no remedy", []bool{w.Why == "", w.Remedy == ""}, []bool{false, false})
		}
	}
}

// show lists the additions of an adjustment and the withheld items, one in each line.
func show(a *adjustment) string {
	var b strings.Builder
	for _, m := range a.GetMounts() {
		fmt.Fprintf(&b, "%s on %s\n", m.Source, m.Destination)
		for _, e := range a.GetEnv() {
			if m.Destination == cdispec.InfoDir {
				fmt.Fprintf(&b, "%s=%s\n", e.Key, e.Value)
			}
		}
	}
	if len(a.GetMounts()) == 0 && len(a.GetEnv()) > 0 {
		b.WriteString("variables without a file\n")
	}
	for _, d := range a.GetLinux().GetDevices() {
		fmt.Fprintf(&b, "%s %04o %d:%d\n", d.Path, fs.FileMode(d.FileMode.GetValue()), d.Uid.GetValue(), d.Gid.GetValue())
	}
	for _, w := range a.withheld {
		fmt.Fprintf(&b, "%s: %s\n", w.cause, w.Device)
	}
	return b.String()
}

// A container with another user could not open a device node that belongs to root and has mode 0600.
func TestDeviceNodeHasTheOwnerThatCDISets(t *testing.T) {
	for _, path := range []string{"/dev/null", "/dev/full"} {
		node, err := grant.NodesBelow("")(path)
		difftest.Must(t, err)
		for _, user := range []oci.User{{}, {UID: 107}, {GID: 108}, {UID: 107, GID: 108}} {
			spec := &oci.Spec{Process: &oci.Process{User: user}}
			edits := cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: path}}}}
			difftest.Must(t, edits.Apply(spec))
			c := &api.Container{User: &api.User{Uid: user.UID, Gid: user.GID}}
			byCDI, g := newAdjustment(&api.PodSandbox{}, c, nil), newAdjustment(&api.PodSandbox{}, c, nil)
			byCDI.AddDevice(api.FromOCILinuxDevices(spec.Linux.Devices)[0])
			node.UID, node.GID = 5, 6 // on the host
			g.node(node)
			difftest.Same(t, fmt.Sprintf("%s for %d:%d", path, user.UID, user.GID), show(g), show(byCDI))
		}
	}
}

// The author of the network chooses the path of a socket, so it may be any path.
func TestSocketDirectoryHidesNoOtherMount(t *testing.T) {
	mounts := []*api.Mount{mount("proc", "/proc", "ro"), mount("tmpfs", "/dev")}
	g := newAdjustment(&api.PodSandbox{}, &api.Container{Mounts: mounts}, mounts)
	g.mount(cdispec.Mount{Host: "/stage", Container: cdispec.InfoDir, ReadOnly: true})
	for n, inside := range []string{cdispec.InfoDir + "/x", "/run/k8s.cni.cncf.io/devinfo", "/var/run/k8s.cni.cncf.io", "/dev", "/", "/proc/x", "/a", "/a", "/a/b"} {
		g.directory(cdispec.Mount{Host: fmt.Sprint("/host", n), Container: inside}, 0o755, false)
	}
	var got []string
	for _, m := range g.GetMounts() {
		got = append(got, m.Destination)
	}
	// /a/b is allowed because /a is writable, so the runtime can create the mount point.
	difftest.Equal(t, got, []string{cdispec.InfoDir, "/a", "/a/b"})
	difftest.Equal(t, len(g.withheld), 7)
}

// A container may mount the socket's directory at another path than the declared one.
func TestSocketVariableIsThePathInTheContainer(t *testing.T) {
	declared := &devinfo.Info{Type: devinfo.TypeMemif, Memif: &devinfo.Memif{Role: "slave", Mode: "ip", Path: "/var/run/usrsp/pod-a/m.sock"}}
	for want, test := range map[string]struct {
		socketDir string
		given     []cdispec.Mount
		mounts    []*api.Mount
	}{
		"none":                        {"", nil, []*api.Mount{mount("proc", "/proc"), mount("/run/usrsp/pod-ab", "/a"), mount("/x", "/run/usrsp/pod-a")}},
		"/var/run/usrsp/pod-a/m.sock": {"", []cdispec.Mount{{Host: "/run/usrsp/pod-a", Container: "/var/run/usrsp/pod-a"}}, []*api.Mount{mount("/run/usrsp", "/all")}},
		"/all/pod-a/m.sock":           {"", nil, []*api.Mount{mount("/run/usrsp", "/all"), mount("/x", "/all/pod")}},
		"/b/m.sock":                   {"/srv/a", nil, []*api.Mount{mount("/run/usrsp/pod-a", "/a"), mount("/srv", "/c"), mount("/x", "/c/a"), mount("/srv/a", "/b")}},
	} {
		g := newAdjustment(&api.PodSandbox{}, &api.Container{}, test.mounts)
		for _, m := range test.given {
			g.mount(m)
		}
		g.variables([]nic{{networkInfo: networkInfo{Interface: "net-1"}, info: declared, entry: &journal.Entry{SocketDir: test.socketDir}}}, false)
		var got []string
		for _, e := range g.GetEnv() {
			got = append(got, strings.TrimPrefix(e.Key, "DEVINFO_NET_2D1_")+"="+e.Value)
		}
		facts := []string{"TYPE=memif", "SOCKET=" + want, "ROLE=slave", "MODE=ip"}
		if want == "none" {
			facts = slices.Delete(facts, 1, 2)
		}
		difftest.Equal(t, got, facts)
	}
}

func TestCopiesHaveTheLabel(t *testing.T) {
	s := stage{root: t.TempDir(), label: containerLabel}
	err := s.put("c0ffee", "/run/netns/a", map[string][]byte{"net1.json": []byte("{}"), networkInfoFile: []byte("{}")}, nil)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EINVAL) {
		difftest.Says(t, err, "cannot set SELinux label "+containerLabel)
		t.Skip(err)
	}
	difftest.Must(t, err, s.put("c0ffee", "/run/netns/a", map[string][]byte{"net1.json": []byte("{}"), networkInfoFile: []byte("{}")}, nil))
	for _, path := range []string{"", "/devinfo", "/devinfo/net1.json", "/devinfo/network-info.json"} {
		label := make([]byte, 100)
		n, err := unix.Lgetxattr(s.root+"/c0ffee"+path, "security.selinux", label)
		difftest.Must(t, err)
		difftest.Same(t, path, string(label[:n]), containerLabel+"\x00")
	}
}

func TestSandboxIsStagedByNameAndNamespace(t *testing.T) {
	const name, none = "its ID is not valid as a directory name", "the container runtime reported no path of its network namespace"
	for _, test := range [][3]string{{"", "/netns", name}, {".hidden", "/netns", name}, {"a/b", "/netns", name}, {"c0ffee", "", none}} {
		s := stage{root: t.TempDir()}
		difftest.Says(t, s.put(test[0], test[1], nil, nil), test[2])
		difftest.Holds(t, s.root)
	}
}

// Something is in the way of each part of a sandbox's directory. The container must not start as if it had the files.
func TestStagingFailsAtEachStep(t *testing.T) {
	file := func(path string) error { return os.WriteFile(path, []byte("x"), 0o644) }
	dir := func(path string) error { return os.MkdirAll(path+"/full", 0o755) }
	loop := func(path string) error { return os.Symlink(filepath.Base(path), path) }
	for at, test := range map[string]struct {
		spoil func(path string) error
		want  error
	}{
		".": {func(path string) error {
			return errors.Join(os.Remove(filepath.Clean(path)), file(filepath.Clean(path)))
		}, unix.ENOTDIR},
		"c0ffee":                            {loop, unix.ELOOP},
		"c0ffee/":                           {func(path string) error { return file(filepath.Clean(path)) }, unix.ENOTDIR},
		"c0ffee/devinfo":                    {loop, unix.ELOOP},
		"c0ffee/devinfo/net1.json":          {dir, fs.ErrExist},
		"c0ffee/devinfo/" + long:            {func(string) error { return nil }, unix.ENAMETOOLONG},
		"c0ffee/devinfo/old":                {dir, unix.ENOTEMPTY},
		"c0ffee/devinfo/" + networkInfoFile: {dir, fs.ErrExist},
	} {
		s := stage{root: t.TempDir()}
		points := []string{"net9.json"}
		if strings.HasSuffix(at, long) {
			points = append(points, long)
		} else if at != "." {
			difftest.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(s.root, at)), 0o755))
		}
		difftest.Must(t, test.spoil(s.root+"/"+at))
		err := s.put("c0ffee", "/netns", map[string][]byte{"net1.json": []byte("{}"), networkInfoFile: []byte("{}")}, points)
		difftest.Same(t, fmt.Sprintf("%s: %v", at, err), errors.Is(err, test.want), true)
	}
	s := stage{root: t.TempDir(), label: strings.Repeat("x", 1<<17)} // longer than any attribute
	difftest.Says(t, s.put("c0ffee", "/netns", nil, nil), "cannot set SELinux label")
	s = stage{root: filepath.Join(t.TempDir(), "removed")}
	difftest.Must(t, s.put("c0ffee", "/netns", nil, nil))
	difftest.Is(t, s.put("c0ffee", "/"+strings.Repeat(long, 20), nil, nil), unix.ENAMETOOLONG) // the link of a namespace that could not be found again
	for root, says := range map[string]string{"/proc/none": "mkdir /proc/none", "/proc/self/status": "/proc/self/status"} {
		s := stage{root: root}
		difftest.Says(t, s.open(), says)
	}
}

var long = strings.Repeat("x", 300)

// An entry that is there but cannot be read is not one of nobody: the container would start without its information.
func TestEntryThatCannotBeReadIsAnError(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		settings := config.Node{StateDir: t.TempDir(), DeviceInfoDir: t.TempDir()}
		entries := settings.StateDir + "/attachments"
		difftest.Must(t, os.Mkdir(entries, 0o700), os.WriteFile(entries+"/net@c0ffee@net1", []byte("{}"), 0o600))
		p := New(Config{})
		listed, err := p.list(settings, new(atomic.Bool), "c0ffee")
		var limit unix.Rlimit
		difftest.Must(t, err, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit), unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}, nil))
		_, err = p.attachments(listed, "c0ffee", "/netns")
		difftest.Must(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil))
		difftest.Is(t, err, unix.EMFILE)
	})
}

// A change is noticed by the directories' times, unless these may stand still. Each minute all is compared.
func TestRefreshIsDueAfterChangesAndEachMinute(t *testing.T) {
	settings := config.Node{StateDir: t.TempDir(), DeviceInfoDir: t.TempDir()}
	entries := settings.StateDir + "/attachments"
	difftest.Must(t, os.Mkdir(entries, 0o700))
	now := time.Now()
	old, newer := now.Add(-time.Hour), now.Add(-time.Hour/2)
	for _, test := range []struct {
		journal, files, looked time.Time
		due, again             bool // again: the next refresh is due in any case
	}{
		{old, old, now.Add(-50 * time.Second), false, false},
		{old, old, now.Add(-70 * time.Second), true, false},
		{old, old, time.Time{}, true, false},
		{newer, old, now, true, false},
		{old, newer, now, true, false},
		{now.Add(time.Hour), old, now, true, true},
		{old, now.Add(time.Hour), now, true, true},
	} {
		set := func(journal, files time.Time) {
			difftest.Must(t, os.Chtimes(entries, journal, journal), os.Chtimes(settings.DeviceInfoDir, files, files))
		}
		p := New(Config{Log: slog.New(slog.DiscardHandler)})
		set(old, old)
		seen, _ := p.look(settings, state{})
		seen.at = test.looked
		set(test.journal, test.files)
		got, due := p.look(settings, seen)
		difftest.Same(t, fmt.Sprintf("%+v", test), []bool{due, got.at.IsZero()}, []bool{test.due, test.again})
	}
}
