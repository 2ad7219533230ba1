package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/difftest"
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
	nodeFile   = "/run/node.json"
	cniDir     = "/run/bin" // directory of the plugin marker
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
	onePod   bool // all attachments belong to one pod, and may share the device
	ownPods  bool // each container is a pod of its own; the pod's UID is the container's ID
	t        *testing.T
	seat     *seat
	plugin   string
	ctl      string // devinfoctl
	cniPath  string
	base     snapshot // expected state at the end
	promised snapshot // files for other programs that ADD must write
}

// inWorld calls f with a world in new namespaces. f sets the base.
func inWorld(t *testing.T, f func(*world)) {
	t.Helper()
	plugin, tool := undertest.Plugin(t), undertest.Once(t, "", "devinfo-cni.io/cmd/devinfoctl")+"/devinfoctl"
	linktest.Run(t, func(t *testing.T) {
		w := &world{t: t, plugin: plugin, ctl: tool, seat: newSeat(t, inject.Changes)}
		w.fine(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) // to wait for orphans
		w.directories()
		w.program(marker)
		w.cniPath = cniDir + ":" + undertest.Peers(t, "macvlan", "bridge", "host-local")
		w.networks()
		f(w)
	})
}

func (w *world) fine(errs ...error) {
	w.t.Helper()
	difftest.Must(w.t, errs...)
}

// directories creates the plugin's directories and settings, and the captured host's /sys.
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

// program links the test binary into cniDir under a program's name, and returns the path.
func (w *world) program(name string) (path string) {
	w.t.Helper()
	self, err := os.Executable()
	path = filepath.Join(cniDir, name)
	w.fine(err, os.Symlink(self, path))
	return path
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
	added := take(w.t)
	w.must("DEL", ours, s.conf)
	w.must("GC", ours, s.conf)
	w.base = take(w.t)
	w.promised = added.beyond(w.base).visible()
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

// command returns a call of the plugin.
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

// must makes a call that has to succeed.
func (w *world) must(verb string, a attachment, c conf) {
	w.t.Helper()
	if why := w.call(verb, a, c, nil).failure(); why != "" {
		w.t.Fatalf("%s without a fault: %s", verb, why)
	}
}

// openJournal opens the node's journal. The claimant uses it too.
func openJournal() (*journal.Journal, error) {
	boot, err := journal.BootID()
	return journal.Open(stateDir, boot), err
}

// hangs is the time limit of a call.
const hangs = 10 * time.Minute

// A seat runs one program at a time.
type seat struct {
	inj *inject.Injector
	// The program's standard output and error; they are files, because an orphaned child would keep a pipe open.
	out [2]*os.File
}

func newSeat(t *testing.T, which inject.Calls) *seat {
	t.Helper()
	s := &seat{inj: inject.New(t, which)}
	for n := range s.out {
		file, err := os.CreateTemp(t.TempDir(), "")
		difftest.Must(t, err)
		s.out[n] = file
	}
	return s
}

// A program is an executable with its arguments, environment and standard input.
type program struct {
	path      string
	args, env []string
	stdin     string
}

// An outcome is the result of one call of the plugin.
type outcome struct {
	exit           int // -1 = killed
	stdout, stderr string
}

// run runs a program. decide may be nil. The error is not an error of the program.
func (s *seat) run(p program, decide func(inject.Call) inject.Verdict) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env, cmd.Stdin = p.env, strings.NewReader(p.stdin)
	cmd.Stdout, cmd.Stderr = s.out[0], s.out[1]
	for _, f := range s.out {
		_, err := f.Seek(0, io.SeekStart)
		if err = errors.Join(err, f.Truncate(0)); err != nil {
			return outcome{}, err
		}
	}
	if err := errors.Join(s.inj.Run(cmd, decide), ctx.Err()); err != nil {
		return outcome{}, err
	}
	stdout, err := os.ReadFile(s.out[0].Name())
	stderr, e := os.ReadFile(s.out[1].Name())
	return outcome{cmd.ProcessState.ExitCode(), string(stdout), string(stderr)}, errors.Join(err, e)
}

// failure returns why the call failed; "" if it succeeded.
func (o outcome) failure() string {
	switch e := o.printed(); {
	case o.exit == 0:
		return ""
	case e.Code == 0:
		return "exit code " + strings.TrimSpace(o.stdout+o.stderr)
	default:
		return strings.TrimSpace(e.Msg + "; " + e.Details)
	}
}

// printed returns the CNI error; its code is 0 if the program printed none.
func (o outcome) printed() (e types.Error) {
	if json.Unmarshal([]byte(o.stdout), &e) != nil {
		e.Code = 0
	}
	return e
}
