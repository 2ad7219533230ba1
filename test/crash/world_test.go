package crash_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/node"
	"devinfo-cni.io/test/undertest"
)

// Paths of a world. /run and /var/lib are mounted for it.
const (
	infoDir    = "/run/k8s.cni.cncf.io/devinfo/cni"
	cdiDir     = "/run/cdi"
	stateDir   = "/var/lib/cni/devinfo"
	ipamDir    = "/var/lib/cni/networks"
	socketDirs = "/var/run/vhost-user"
	podNetns   = "/run/netns/pod"
	otherNetns = "/run/netns/other"
	podUID     = "6e0c3a54-8d0f-4e52-b4a1-0c5ad4a3d1f7"
	otherUID   = "90d1b0a2-27b4-4c3e-9a56-5b1f4d0c7e11"
)

// VFs of the captured host. The bystanders use the second one.
const (
	vf       = "0000:01:10.0"
	othersVF = "0000:01:10.2"
)

// A world is a node with bystanders, in namespaces of the test.
type world struct {
	t        *testing.T
	seat     *node.Seat
	plugin   string
	ctl      string // devinfoctl
	cniPath  string
	base     node.Snapshot // expected state at the end
	promised node.Snapshot // files for other programs that ADD must write
}

// inWorld calls f with a world in new namespaces. f sets the base.
func inWorld(t *testing.T, f func(*world)) {
	t.Helper()
	plugin, tool := undertest.Plugin(t), undertest.Once(t, "", "devinfo-cni.io/cmd/devinfoctl")+"/devinfoctl"
	linktest.Run(t, func(t *testing.T) {
		w := &world{t: t, plugin: plugin, ctl: tool, seat: node.NewSeat(t, inject.Changes)}
		w.fine(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) // to wait for orphans
		node.Make(t, conf{"deviceInfoDir": infoDir, "stateDir": stateDir, "cdiDir": cdiDir, "allowedDevices": []string{vfioVF}}, []string{marker, claimant},
			infoDir, cdiDir, stateDir, ipamDir, markDir, socketDirs+"/"+podUID, socketDirs+"/"+otherUID)
		w.cniPath = node.Bin + ":" + undertest.Peers(t, "macvlan", "bridge", "host-local")
		w.networks()
		f(w)
	})
}

func (w *world) fine(errs ...error) {
	w.t.Helper()
	difftest.Must(w.t, errs...)
}

// networks creates the pods' network namespaces, and the interface for macvlan.
func (w *world) networks() {
	w.t.Helper()
	for _, path := range []string{podNetns, otherNetns} {
		w.fine(linktest.MakeNetns(path))
		w.t.Cleanup(func() { w.fine(unix.Unmount(path, 0)) })
	}
	linktest.AddVeth(w.t, "nic", "peer", linktest.NewNetns(w.t))
}

// settle adds the bystanders and the pod's own interface. It runs all verbs once, because the first run creates files
// that stay, and takes the base.
func (w *world) settle(s scenario) {
	w.t.Helper()
	if s.pod {
		linktest.AddVeth(w.t, "veth0", ours.ifName, podNetns)
	}
	for _, b := range bystanders() {
		w.must("ADD", b.attachment, b.conf)
	}
	w.before(trial{scenario: s, verb: "DEL"})
	added := view.Take(w.t)
	w.must("DEL", ours, s.conf)
	w.must("GC", ours, s.conf)
	w.base = view.Take(w.t)
	w.promised = visible(added.Beyond(w.base))
}

// reap waits for the delegates of a killed plugin.
func (w *world) reap() {
	w.t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		w.t.Fatal("no /proc/self/task/*/children: ", err)
	}
	for _, list := range lists {
		pids, _ := os.ReadFile(list) // the thread may have ended
		for _, pid := range strings.Fields(string(pids)) {
			if n, err := strconv.Atoi(pid); err == nil {
				_, _ = unix.Wait4(n, nil, 0, nil) // fails for a grandchild
			}
		}
	}
}

func (w *world) call(verb string, a attachment, c conf, decide func(inject.Call) inject.Verdict) node.Outcome {
	w.t.Helper()
	if verb == "GC" {
		c = c.gc()
	}
	o, err := w.seat.Run(w.command(verb, a, c), decide)
	if err != nil {
		w.t.Fatalf("%s: %v", verb, err)
	}
	return o
}

// command returns a call of the plugin.
func (w *world) command(verb string, a attachment, c conf) *exec.Cmd {
	cmd := exec.Command(w.plugin)
	cmd.Stdin = strings.NewReader(c.String())
	cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_PATH=" + w.cniPath, "DEVINFO_NODE_CONFIG=" + node.Settings, "PATH=" + os.Getenv("PATH")}
	if verb != "GC" {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID="+a.container, "CNI_IFNAME="+a.ifName, "CNI_NETNS="+a.netns,
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID="+a.uid)
	}
	return cmd
}

// must makes a call that has to succeed.
func (w *world) must(verb string, a attachment, c conf) {
	w.t.Helper()
	if why := w.call(verb, a, c, nil).Failure(); why != "" {
		w.t.Fatalf("%s without a fault: %s", verb, why)
	}
}
