package crash_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/undertest"
)

// The paths of a world; /run and /var/lib are its own.
const (
	infoDir    = "/run/k8s.cni.cncf.io/devinfo/cni"
	cdiDir     = "/run/cdi"
	stateDir   = "/var/lib/cni/devinfo"
	ipamDir    = "/var/lib/cni/networks"
	socketDirs = "/var/run/vhost-user"
	podNetns   = "/run/netns/pod"
	otherNetns = "/run/netns/other"
	nodeFile   = "/run/node.json"
	cniDir     = "/run/bin" // of marker
	podUID     = "6e0c3a54-8d0f-4e52-b4a1-0c5ad4a3d1f7"
	otherUID   = "90d1b0a2-27b4-4c3e-9a56-5b1f4d0c7e11"
)

// VFs of the captured host; the second is the bystanders'.
const (
	vf       = "0000:01:10.0"
	othersVF = "0000:01:10.2"
)

// A world is a node in namespaces of the test's own, with bystanders on it.
type world struct {
	onePod   bool // all attachments are one pod's, and may share the device
	ownPods  bool // each container is a pod of its own, whose UID is its ID
	t        *testing.T
	seat     *seat
	plugin   string
	cniPath  string
	base     snapshot // how everything must be in the end
	promised snapshot // what ADD has others read
}

// newWorld prepares the namespaces that linktest.Run has made for runs of the plugin.
// Its base is yet to be taken.
func newWorld(t *testing.T, plugin string) *world {
	t.Helper()
	w := &world{t: t, plugin: plugin, seat: newSeat(t, inject.Changes)}
	w.fine(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) // orphans are waited for
	w.directories()
	w.programs()
	w.networks()
	return w
}

func (w *world) fine(errs ...error) {
	w.t.Helper()
	difftest.Must(w.t, errs...)
}

// directories makes those of the plugin, its settings, and the captured host's /sys.
func (w *world) directories() {
	w.t.Helper()
	w.fine(unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755"))
	for _, dir := range []string{infoDir, cdiDir, stateDir, ipamDir, markDir, cniDir, socketDirs + "/" + podUID, socketDirs + "/" + otherUID} {
		w.fine(os.MkdirAll(dir, 0o755))
	}
	undertest.Sys(w.t, "igb-sriov", "/run/sys")
	settings, err := json.Marshal(conf{"deviceInfoDir": infoDir, "stateDir": stateDir, "cdiDir": cdiDir, "allowedDevices": []string{vfioVF}, "sysfs": "/run/sys"})
	w.fine(err, os.WriteFile(nodeFile, settings, 0o644))
}

// programs finds the delegates.
func (w *world) programs() {
	w.t.Helper()
	w.program(marker)
	w.cniPath = cniDir + ":" + undertest.Peers(w.t, "macvlan", "bridge", "host-local")
}

// program puts the test binary in cniDir under the name of a program, and gives its path.
func (w *world) program(name string) (path string) {
	w.t.Helper()
	self, err := os.Executable()
	path = filepath.Join(cniDir, name)
	w.fine(err, os.Symlink(self, path))
	return path
}

// networks makes the pods' network namespaces, and the card for macvlan.
func (w *world) networks() {
	w.t.Helper()
	for _, path := range []string{podNetns, otherNetns} {
		w.fine(linktest.MakeNetns(path))
		w.t.Cleanup(func() { w.fine(unix.Unmount(path, 0)) })
	}
	linktest.AddVeth(w.t, "nic", "peer", linktest.NewNetns(w.t))
}

// settle adds the bystanders and the pod's own interface, goes once through all verbs,
// so that what is made once for all is there, and takes the base.
func (w *world) settle(s scenario) {
	w.t.Helper()
	if s.pod {
		linktest.AddVeth(w.t, "veth0", ours.ifName, podNetns)
	}
	for _, b := range bystanders() {
		w.must("ADD", b.attachment, b.conf)
	}
	w.before(trial{scenario: s, verb: "DEL"})
	added := take(w.t)
	w.must("DEL", ours, s.conf)
	w.must("GC", ours, s.conf)
	w.base = take(w.t)
	w.promised = added.beyond(w.base).visible()
}

// reap waits for the delegates that a killed plugin has left running.
func (w *world) reap() {
	w.t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		w.t.Fatal("no /proc/self/task/*/children: ", err)
	}
	for _, list := range lists {
		pids, _ := os.ReadFile(list) // of a thread that may have ended
		for _, pid := range strings.Fields(string(pids)) {
			if n, err := strconv.Atoi(pid); err == nil {
				_, _ = unix.Wait4(n, nil, 0, nil) // a child of a child cannot be waited for
			}
		}
	}
}

// call runs the plugin.
func (w *world) call(verb string, a attachment, c conf, decide func(inject.Call) inject.Verdict) outcome {
	w.t.Helper()
	if verb == "GC" {
		c = c.gc()
	}
	o, err := w.seat.run(w.command(verb, a, c), decide)
	if err != nil {
		w.t.Fatalf("%s: %v", verb, err)
	}
	return o
}

// command is a call of the plugin.
func (w *world) command(verb string, a attachment, c conf) program {
	p := program{path: w.plugin, env: []string{"CNI_COMMAND=" + verb, "CNI_PATH=" + w.cniPath, "DEVINFO_NODE_CONFIG=" + nodeFile, "PATH=" + os.Getenv("PATH")}}
	if verb != "GC" {
		uid := podUID
		switch {
		case w.ownPods:
			uid = a.container
		case a.container != ours.container && !(w.onePod && a == neighbour):
			uid = otherUID
		}
		p.env = append(p.env, "CNI_CONTAINERID="+a.container, "CNI_IFNAME="+a.ifName, "CNI_NETNS="+a.netns,
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID="+uid)
	}
	p.stdin = c.String()
	return p
}

// must is call where nothing is in its way.
func (w *world) must(verb string, a attachment, c conf) {
	w.t.Helper()
	if why := w.call(verb, a, c, nil).failure(); why != "" {
		w.t.Fatalf("%s without a fault: %s", verb, why)
	}
}

// openJournal opens the node's journal, also for a program that is us.
func openJournal() (*journal.Journal, error) {
	boot, err := journal.BootID()
	return journal.Open(stateDir, boot), err
}
