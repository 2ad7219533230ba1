package faults_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/crash/inject"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/node"
	"devinfo-cni.io/test/undertest"
)

// Paths of the node.
const (
	infoDir   = "/run/info"
	cdiDir    = "/run/cdi"
	stateDir  = "/run/state"
	claimDir  = "/run/plugins/driver/state"
	driverDir = "/run/dra"
	sriovDir  = journal.SRIOVLocks
)

// VFs of the captured host.
const (
	vf       = "0000:01:10.0"
	othersVF = "0000:01:10.2"
	claimsVF = "0000:01:10.4"
)

type conf map[string]any

// An attachment is one interface of one container.
type attachment struct{ container, ifName, netns, uid string }

var (
	ours   = attachment{"c0ffee00c0ffee00c0ffee00", "net1", "/run/netns/pod", "6e0c3a54-8d0f-4e52-b4a1-0c5ad4a3d1f7"}
	others = attachment{"decaf000decaf000decaf000", "net1", "/run/netns/other", "90d1b0a2-27b4-4c3e-9a56-5b1f4d0c7e11"}
	stale  = attachment{"deadbeefdeadbeefdeadbeef", "net1", "/run/netns/stale", "a3f5cf0e-9f39-4f0e-8bb0-3d1d0a6f1d6e"}
)

// conf returns the attachment's network configuration. A socket needs no device.
func (a attachment) conf(device string) conf {
	c := conf{
		"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "cdi": true,
		"capabilities":  conf{"CNIDeviceInfoFile": true},
		"runtimeConfig": conf{"CNIDeviceInfoFile": infoDir + "/default-net-" + a.container + "_" + a.ifName},
	}
	if device != "" {
		c["deviceID"] = device
	}
	return c
}

// A world is a node with two running pods, what a third has left, and a claim.
type world struct {
	t      *testing.T
	seat   *node.Seat
	base   node.Snapshot
	result json.RawMessage // of the ADD of others
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, seat: node.NewSeat(t, inject.Reads|inject.Inputs)}
	node.Make(t, conf{"deviceInfoDir": infoDir, "stateDir": stateDir, "cdiDir": cdiDir}, slices.Collect(maps.Keys(helpers)),
		infoDir, cdiDir, stateDir, claimDir, stageDir, "/run/agent")
	difftest.Write(t, filepath.Join(sriovDir, "0000:41:10.0"), others.netns, 0o600)
	for _, a := range []attachment{ours, others, stale} {
		difftest.Must(t, linktest.MakeNetns(a.netns))
	}
	t.Cleanup(func() {
		for _, a := range []attachment{ours, others} {
			difftest.Must(t, unix.Unmount(a.netns, 0))
		}
	})
	linktest.AddVeth(t, "veth0", "net1", others.netns)
	w.result = json.RawMessage(w.must("ADD", others, othersVF).Stdout)
	w.must("ADD", stale, "0000:01:10.6")
	difftest.Must(t, unix.Unmount(stale.netns, 0), os.Remove(stale.netns))
	w.claims()
	w.must("STATUS", attachment{}, "")
	w.base = view.Take(t)
	return w
}

// claims writes the records of two claims, and the lease of one.
func (w *world) claims() {
	t := w.t
	t.Helper()
	s, err := state.Open(claimDir)
	difftest.Must(t, err)
	for _, uid := range []string{"uid-a", "uid-b"} {
		difftest.Must(t, s.Put(&state.Claim{
			Namespace: "shop", Name: "claim-" + uid, UID: uid, Pod: state.Pod{Namespace: "shop", Name: "web-" + uid, UID: "pod-" + uid},
			Attachments: []state.Attachment{{
				Request: "r", Pool: "n1", Device: "pci-0000-01-10-4", Network: "net", CNIVersion: "1.1.0", IfName: "net1", List: json.RawMessage(`{}`),
				Phase: state.Prepared, NodeDevice: &state.NodeDevice{Ref: hostdev.Ref{Kind: hostdev.VF, PCI: claimsVF}, Published: json.RawMessage(`{}`)},
			}},
		}))
	}
	difftest.Must(t, s.Close())
	sys, err := sysfs.Open(node.Sys)
	difftest.Must(t, err)
	j, err := node.Journal(stateDir)
	difftest.Must(t, err)
	line, err := sys.Lineage(claimsVF)
	difftest.Must(t, err)
	for _, uid := range []string{"uid-a", "uid-gone"} {
		mode := journal.Shared
		claim := &journal.Claim{UID: uid, Part: "pci-0000-01-10-4", Namespace: "shop", Name: "claim-" + uid, Pods: []string{"pod"}, Time: time.Unix(1e9, 0)}
		for _, d := range line {
			claim.Leases = append(claim.Leases, journal.DeviceLease{ID: d.ID, Mode: mode, Object: d.Inode})
		}
		difftest.Must(t, j.Hold(claim))
	}
}

// An answer is what one run of a program gives.
type answer struct {
	node.Outcome
	calls  []inject.Call
	after  node.Snapshot
	notice bool // the fault needs no error
}

// toldBy are words of answers that say that something cannot be read, or is damaged.
var toldBy = []string{"unknown", "Unknown", "FileInvalid", "FileMissing", "Corrupt", "corrupt"}

// says reports whether the answer tells of the fault: by an error, in its log, by the text of the error, or by a word.
func (a answer) says(tr trial) bool {
	text := a.Stdout + a.Stderr
	failed := a.Exit != 0 && a.Exit != tr.clean.Exit && text != ""
	logged := a.Stderr != "" && a.Stderr != tr.clean.Stderr
	named := tr.fault.errno != 0 && (strings.Contains(text, tr.fault.errno.Error()) || strings.Contains(text, "!"+tr.fault.name+" --")) // as captures write it
	return a.notice || failed || logged || named || slices.ContainsFunc(toldBy, func(word string) bool {
		return strings.Count(text, word) > strings.Count(tr.clean.Stdout, word)
	})
}

// program is an executable of this repository, or one of helpers.
func program(t *testing.T, name string) string {
	t.Helper()
	if _, ok := helpers[name]; ok {
		return filepath.Join(node.Bin, name)
	}
	if name == "devinfo" {
		return undertest.Plugin(t)
	}
	return filepath.Join(undertest.Once(t, "", "devinfo-cni.io/cmd/devinfoctl", "devinfo-cni.io/cmd/devinfo-agent", "devinfo-cni.io/cmd/cni-dra-driver"), name)
}

// call returns a call of the plugin.
func (w *world) call(verb string, a attachment, c conf) *exec.Cmd {
	cmd := exec.Command(program(w.t, "devinfo"))
	text, _ := json.Marshal(c) // strings and lists of them always encode
	cmd.Stdin = strings.NewReader(string(text))
	cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_PATH=" + node.Bin, "DEVINFO_NODE_CONFIG=" + node.Settings}
	if a.container != "" {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID="+a.container, "CNI_IFNAME="+a.ifName, "CNI_NETNS="+a.netns,
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID="+a.uid)
	}
	return cmd
}

// tool returns a command of a program with the node's directories.
func (w *world) tool(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(program(w.t, name), args...)
	cmd.Env = []string{"DEVINFO_NODE_CONFIG=" + node.Settings, state.DirVariable + "=" + claimDir, "CNI_PATH=" + node.Bin, "PATH=/none", "HOME=/run", "TZ=UTC"}
	return cmd
}

func (w *world) must(verb string, a attachment, device string) answer {
	w.t.Helper()
	got := w.execute(w.call(verb, a, a.conf(device)), nil)
	if got.Exit != 0 {
		w.t.Fatalf("%s: %s", verb, got.Stdout)
	}
	return got
}

// ready brings the node to the state before the scenario.
func (w *world) ready(s scenario) node.Snapshot {
	w.t.Helper()
	if s.before != nil {
		s.before(w)
	}
	return view.Take(w.t)
}

// clean runs the scenario without a fault, twice, so that what differs from run to run is known.
func (w *world) clean(s scenario) answer {
	w.t.Helper()
	var two [2]answer
	for n := range two {
		w.ready(s)
		two[n] = w.run(s, nil)
		two[n].after = view.Take(w.t)
		view.Restore(w.t, w.base, two[n].after)
	}
	if two[0].Stdout != two[1].Stdout || two[0].Exit != two[1].Exit || two[0].Exit < 0 || two[0].Exit > 3 || s.settles && two[0].Exit != 0 {
		w.t.Fatalf("%s: exit codes %d and %d, outputs\n%s\n%s\n%s", s.name, two[0].Exit, two[1].Exit, two[0].Stdout, two[1].Stdout, two[1].Stderr)
	}
	return two[1]
}

func (w *world) run(s scenario, decide func(inject.Call) inject.Verdict) answer {
	w.t.Helper()
	return w.execute(s.command(w), decide)
}

// execute runs a program.
func (w *world) execute(cmd *exec.Cmd, decide func(inject.Call) inject.Verdict) (a answer) {
	w.t.Helper()
	if decide == nil {
		decide = func(c inject.Call) inject.Verdict {
			if !c.Child {
				a.calls = append(a.calls, c)
			}
			return inject.Verdict{}
		}
	}
	o, err := w.seat.Run(cmd, decide)
	if err != nil {
		o = node.Outcome{Exit: -1, Stderr: err.Error()}
	}
	a.Exit, a.Stdout, a.Stderr = o.Exit, mask(o.Stdout), mask(o.Stderr)
	return a
}

// changing are parts of the output that differ from run to run.
var changing = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.0-9]*(Z|[-+]\d\d:\d\d)?|boot [0-9a-f-]{36}|"uptime":\d+`)

func mask(text string) string { return changing.ReplaceAllString(text, "TIME") }

// view leaves out what the driver keeps for its connections.
var view = node.View{Without: []string{driverDir}}
