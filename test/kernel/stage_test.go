// Package kernel_test runs the devinfo binary as a runtime does, in network namespaces of this machine's kernel. The
// reference plugins in bin/ are its delegates, or run before it. The tests kill and signal the plugin, fill its disk,
// and corrupt its files.
//
// Each test has its own namespaces and an empty /run (package linktest), as root and as an ordinary user. /sys is that of
// a captured host.
package kernel_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/node"
	"devinfo-cni.io/test/undertest"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "child":
		playChild()
		return
	case "attacker":
		playAttacker()
		return
	case "confined":
		playConfined()
		return
	}
	undertest.Temp(m)
}

// Paths of the stage. /run belongs to the test.
const (
	infoDir  = "/run/k8s.cni.cncf.io/devinfo/cni"
	stateDir = "/run/state"
	ipamDir  = "/run/ipam"
	cdiDir   = "/run/cdi"
	infoFile = infoDir + "/net-c0ffee_net1"
)

// vf is a VF of the captured host igb-sriov, and vfFile is its device-info file.
const (
	vf     = "0000:01:10.0"
	vfFile = `{
  "type": "pci",
  "version": "1.1.0",
  "pci": {
    "pci-address": "0000:01:10.0",
    "pf-pci-address": "0000:01:00.0"
  }
}
`
)

var (
	must       = difftest.Must
	same       = difftest.Same
	eventually = difftest.Eventually
)

// onStage runs a test with a pod in namespaces of its own. They have node settings, an empty /var/lib, programs, and
// the /sys of the captured host igb-sriov.
func onStage(t *testing.T, f func(t *testing.T, pod string)) {
	t.Helper()
	plugin := undertest.Plugin(t)
	linktest.Run(t, func(t *testing.T) {
		node.Make(t, map[string]any{"deviceInfoDir": infoDir, "stateDir": stateDir}, []string{"child"})
		must(t, os.Symlink(plugin, node.Bin+"/devinfo"))
		t.Setenv("DEVINFO_NODE_CONFIG", node.Settings)
		t.Setenv("CNI_PATH", node.Bin+":"+binDir(t))
		f(t, linktest.NewNetns(t))
	})
}

func writeJSON(t *testing.T, path string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err, os.WriteFile(path, text, 0o644))
}

// nodeSettings adds settings to those of the stage.
func nodeSettings(t *testing.T, more map[string]any) {
	t.Helper()
	var settings map[string]any
	must(t, json.Unmarshal([]byte(read(t, node.Settings)), &settings))
	maps.Copy(settings, more)
	writeJSON(t, node.Settings, settings)
}

// binDir returns the directory of the reference plugins.
func binDir(t *testing.T) string {
	t.Helper()
	return undertest.Peers(t, "macvlan", "bridge", "host-device", "host-local", "tuning")
}

// podLinks returns the names of the interfaces in a pod, except lo.
func podLinks(t *testing.T, netns string) string {
	t.Helper()
	var names []string
	must(t, linktest.InNetns(netns, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if l.Attrs().Name != "lo" {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	}))
	return strings.Join(names, " ")
}

// An answer is the result of one call of the plugin.
type answer struct {
	exit           int // -1 = killed
	stdout, stderr string
}

// devinfo prepares one call of the plugin. env overrides other variables.
func devinfo(verb, netns, conf string, env ...string) *exec.Cmd {
	cmd := exec.Command(node.Bin + "/devinfo")
	cmd.Stdin = strings.NewReader(conf)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb)
	if verb != "GC" && verb != "STATUS" {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID=c0ffee", "CNI_IFNAME=net1", "CNI_NETNS="+netns)
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func call(t *testing.T, verb, netns, conf string, env ...string) answer {
	t.Helper()
	return finish(t, devinfo(verb, netns, conf, env...))
}

// finish runs the command. Any goroutine may call it.
func finish(t *testing.T, cmd *exec.Cmd) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Start()
	if err == nil {
		hangs := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		if !hangs.Stop() {
			t.Errorf("%s: it hung, and was killed\n%s", cmd, &stderr)
		}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// ok fails the test unless the call succeeded. It returns the result.
func (a answer) ok(t *testing.T) string {
	t.Helper()
	if a.exit != 0 {
		t.Fatalf("exit code %d: %s\n%s", a.exit, a.stdout, a.stderr)
	}
	return a.stdout
}

// failure returns the CNI error that a call has printed.
func (a answer) failure(t *testing.T) (e types.Error) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.stdout), &e); err != nil {
		t.Fatalf("standard output is no CNI error: %v\nexit code %d\n%s%s", err, a.exit, a.stdout, a.stderr)
	}
	return e
}

// fails fails the test unless the call failed with this code and message, and printed nothing else.
func (a answer) fails(t *testing.T, code uint, msg string) {
	t.Helper()
	e := a.failure(t)
	same(t, "failure", fmt.Sprintf("exit %d, code %d: %s", a.exit, e.Code, plain(e.Msg)), fmt.Sprintf("exit 1, code %d: %s", code, msg))
}

var (
	macs   = regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`)
	veths  = regexp.MustCompile(`\bveth[0-9a-f]{8}\b`)
	temps  = regexp.MustCompile(`/tmp/[^ "]*/netns\b`)
	blanks = regexp.MustCompile(`[ \n]+`)
)

// plain replaces random values, and collapses white space.
func plain(text string) string {
	text = macs.ReplaceAllString(text, "MAC")
	text = veths.ReplaceAllString(text, "VETH")
	text = temps.ReplaceAllString(text, "NETNS")
	return strings.TrimSpace(blanks.ReplaceAllString(text, " "))
}

// compact returns JSON without white space, with sorted keys and with plain's replacements.
func compact(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	data, err := json.Marshal(v)
	must(t, err)
	return plain(string(data))
}

// read returns the content of a file; "" if it does not exist.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

// files lists the files in the directories in order. A missing directory has no files.
func files(t *testing.T, dirs ...string) string {
	t.Helper()
	return strings.Join(difftest.Files(t, dirs...), "\n")
}

// addresses lists the addresses that host-local has assigned.
func addresses(t *testing.T) string {
	t.Helper()
	var list []string
	for _, path := range difftest.Files(t, ipamDir) {
		if name := filepath.Base(path); name != "lock" && !strings.HasPrefix(name, "last_reserved_ip") {
			list = append(list, name)
		}
	}
	return strings.Join(list, "\n")
}

// nothingLeft checks that no state of an attachment remains on the node or in the pods.
func nothingLeft(t *testing.T, pods ...string) {
	t.Helper()
	same(t, "files left", files(t, infoDir, stateDir), "")
	same(t, "addresses left", addresses(t), "")
	for _, pod := range pods {
		same(t, "interfaces left in the pod", podLinks(t, pod), "")
	}
}

// delLeavesNothing deletes the attachment of a pod without other interfaces, and checks that no state remains.
func delLeavesNothing(t *testing.T, pod, conf string) {
	t.Helper()
	call(t, "DEL", pod, conf).ok(t)
	nothingLeft(t, pod)
}
