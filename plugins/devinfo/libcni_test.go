package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/link/linktest"
)

// A received is what one call of a delegate was given.
type received struct {
	Name  string            // of the executable
	Env   map[string]string // CNI_*
	Stdin any
}

// recordings is where recorders write what they receive, one JSON each line.
const recordings = "/run/recordings"

// record is a delegate that writes down what it was given. At ADD it prints what its
// configuration has under "prints", else its prevResult.
func record(name string) {
	stdin, err := io.ReadAll(os.Stdin)
	must(err)
	call := received{Name: name, Env: map[string]string{}}
	must(exactly(stdin, &call.Stdin))
	for _, pair := range os.Environ() {
		if key, value, _ := strings.Cut(pair, "="); strings.HasPrefix(key, "CNI_") {
			call.Env[key] = value
		}
	}
	line, err := json.Marshal(call)
	must(err)
	file, err := os.OpenFile(recordings, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(err)
	_, err = file.Write(append(line, '\n'))
	must(err)
	conf := call.Stdin.(map[string]any)
	if call.Env["CNI_COMMAND"] == "ADD" {
		result := conf["prints"]
		if result == nil {
			result = conf["prevResult"]
		}
		must(json.NewEncoder(os.Stdout).Encode(result))
	}
}

// recorded takes the recordings, without those of one delegate.
func recorded(t *testing.T, but string) (calls []received) {
	t.Helper()
	text, err := os.ReadFile(recordings)
	check(t, err)
	check(t, os.Remove(recordings))
	for line := range strings.Lines(string(text)) {
		var call received
		check(t, exactly([]byte(line), &call))
		if call.Name != but {
			calls = append(calls, call)
		}
	}
	return calls
}

// exactly decodes JSON without loss to numbers.
func exactly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// agree takes out what differs on purpose:
//   - libcni reads numbers as floating-point: 2^53+1 becomes another. Ours stay as they are.
//   - libcni hands a result of another version on as it is. The specification gives a
//     chain one version, and older plugins do not know the newer ones.
func (c chain) agree(libcni, devinfo received) {
	theirs, ours := libcni.Stdin.(map[string]any), devinfo.Stdin.(map[string]any)
	if theirs["number"] == json.Number("9007199254740992") && ours["number"] == json.Number("9007199254740993") {
		delete(theirs, "number")
		delete(ours, "number")
	}
	before, _ := theirs["prevResult"].(map[string]any)
	after, _ := ours["prevResult"].(map[string]any)
	if libcni.Env["CNI_COMMAND"] == "ADD" && before["cniVersion"] != c.version && after["cniVersion"] == c.version {
		delete(theirs, "prevResult")
		delete(ours, "prevResult")
	}
}

// A chain is what a runtime calls: the delegates of a devinfo, or the plugins of a list.
type chain struct {
	version   string
	before    string // the result of the plugin before devinfo; "" = there is none
	delegates string
}

func (c chain) String() string {
	return fmt.Sprintf("cniVersion %s, prevResult %v", c.version, c.before != "")
}

// The runtime's arguments.
const (
	cniArgs      = "IgnoreUnknown=1;K8S_POD_NAME=web;EMPTY=;SIGNS=a=b"
	capabilities = `{"portMappings": [{"hostPort": 80, "containerPort": 8080}], "bandwidth": {"ingressRate": 9007199254740993}, "CNIDeviceInfoFile": "/run/infos/pod1"}`
	valid        = `[{"containerID": "beef", "ifname": "eth0"}]`
)

// printed is the result of a plugin, with what a version can say.
func printed(version string) string {
	address := `"interface": 0, "address": "10.1.2.3/24", "gateway": "10.1.2.1"`
	if version < "1" {
		address += `, "version": "4"`
	}
	return `{"cniVersion": "` + version + `", "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/pod"}], "ips": [{` + address + `}], "routes": [{"dst": "0.0.0.0/0"}], "dns": {"search": ["a"]}}`
}

func chains() (list []chain) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		delegates := `{"type": "recorder1", "prints": ` + printed(version) + `, "name": "own", "cniVersion": "0.2.0",
  "capabilities": {"portMappings": true, "bandwidth": false, "mac": true}, "number": 9007199254740993, "text": "<&>\u2028"},
 {"type": "recorder2", "capabilities": {"bandwidth": true, "CNIDeviceInfoFile": true}, "runtimeConfig": {"mine": 1}, "prevResult": {"cniVersion": "1.0.0"}},
 {"type": "recorder3", "ipam": {"type": "none"}, "runtimeConfig": {"mine": 1}}`
		other := strings.Replace(delegates, printed(version), printed("0.4.0"), 1)
		list = append(list, chain{version, "", delegates}, chain{version, printed(version), delegates}, chain{version, "", other})
	}
	return list
}

// Delegates get from devinfo what plugins of a list get from libcni.
func TestDelegatesGetWhatLibcniWouldGiveThem(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		w := newWorld(t)
		check(t, w.host("mlx5-legacy", "", nil))
		self, err := os.Executable()
		check(t, err)
		for _, name := range []string{"recorder0", "recorder1", "recorder2", "recorder3"} {
			check(t, os.Symlink(self, filepath.Join(binDir, name)))
		}
		t.Setenv(storyHost, hostFile)
		for _, c := range chains() {
			want, got := c.byLibcni(t), c.byDevinfo(t, w)
			if len(want) < 3*2 || !slices.EqualFunc(want, got, func(a, b received) bool { return a.Name == b.Name }) {
				t.Errorf("%s: libcni makes %d calls, devinfo %d, or others", c, len(want), len(got))
				continue
			}
			for n := range want {
				c.agree(want[n], got[n])
				if diff := cmp.Diff(want[n], got[n]); diff != "" {
					t.Errorf("%s: call %d, %s of %s: libcni gives (-), devinfo (+):\n%s", c, n, want[n].Env["CNI_COMMAND"], want[n].Name, diff)
				}
			}
		}
	})
}

// byDevinfo calls every verb of a devinfo that has the delegates.
func (c chain) byDevinfo(t *testing.T, w *world) []received {
	t.Helper()
	config := fmt.Sprintf(`{"cniVersion": %q, "name": "net-a", "type": "devinfo", "capabilities": {"portMappings": true},
  "runtimeConfig": %s, "delegates": [%s]}`, c.version, capabilities, c.delegates)
	check(t, json.Unmarshal([]byte(config), &w.config))
	delete(w.config, "prevResult")
	if c.before != "" {
		w.config["prevResult"] = json.RawMessage(c.before)
	}
	for _, s := range []step{
		{verb: "ADD", args: []string{"CNI_ARGS=" + cniArgs}}, {verb: "CHECK", args: []string{"CNI_ARGS=" + cniArgs}},
		{verb: "DEL", args: []string{"CNI_ARGS=" + cniArgs}}, {verb: "GC", body: `{"cni.dev/valid-attachments": ` + valid + `}`}, {verb: "STATUS"},
	} {
		if since := map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}[s.verb]; c.version < since {
			continue
		}
		output, err := w.do(s)
		check(t, err)
		for _, f := range output {
			if f.Name == "error" || f.Name == "exit" {
				t.Fatalf("%s: %s: %s", c, s.verb, f.Data)
			}
		}
	}
	return recorded(t, "")
}

// byLibcni calls every verb of a list of the same plugins. A first one stands for what
// came before devinfo.
func (c chain) byLibcni(t *testing.T) []received {
	t.Helper()
	plugins := c.delegates
	if c.before != "" {
		plugins = `{"type": "recorder0", "prints": ` + c.before + `}, ` + plugins
	}
	list, err := libcni.ConfListFromBytes([]byte(fmt.Sprintf(`{"cniVersion": %q, "name": "net-a", "plugins": [%s]}`, c.version, plugins)))
	check(t, err)
	rt := &libcni.RuntimeConf{ContainerID: "c0ffee", IfName: "net1", NetNS: podNetns}
	for pair := range strings.SplitSeq(cniArgs, ";") {
		key, value, _ := strings.Cut(pair, "=")
		rt.Args = append(rt.Args, [2]string{key, value})
	}
	var given map[string]json.RawMessage
	check(t, json.Unmarshal([]byte(capabilities), &given))
	rt.CapabilityArgs = map[string]any{}
	for key, value := range given {
		rt.CapabilityArgs[key] = value
	}
	runtime, ctx := libcni.NewCNIConfigWithCacheDir([]string{binDir}, t.TempDir(), nil), context.Background()
	_, err = runtime.AddNetworkList(ctx, list, rt)
	check(t, err)
	if c.version >= "0.4.0" {
		check(t, runtime.CheckNetworkList(ctx, list, rt))
	}
	check(t, runtime.DelNetworkList(ctx, list, rt))
	if c.version >= "1.1.0" {
		check(t, runtime.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "beef", IfName: "eth0"}}}))
		check(t, runtime.GetStatusNetworkList(ctx, list))
	}
	return recorded(t, "recorder0")
}
