package devinfo_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/host/link/linktest"
	plugin "devinfo-cni.io/plugins/devinfo"
	"devinfo-cni.io/test/difftest"
)

// answer calls the plugin in a made-up environment and returns its output.
func answer(t *testing.T, env string, stdin io.Reader) (exit int, stdout, stderr string) {
	t.Helper()
	var out bytes.Buffer
	values := map[string]string{}
	for pair := range strings.FieldsSeq(env) {
		key, value, _ := strings.Cut(pair, "=")
		values[key] = value
	}
	exit, stderr = run(&plugin.Host{Stdout: &out}, values, stdin)
	return exit, out.String(), stderr
}

const add = "CNI_COMMAND=ADD CNI_CONTAINERID=c0ffee CNI_NETNS=/run/netns/pod CNI_IFNAME=net1 CNI_PATH=/opt/cni/bin "

func TestOnlyConfigurationIsReadFromStdin(t *testing.T) {
	broken := iotest.ErrReader(errors.New("broken"))
	for env, want := range map[string]string{
		"": "0CNI plugin devinfo: device information for network attachments\nCNI protocol versions supported: 0.1.0, ", "CNI_COMMAND=VERSION": `0{"cniVersion":"1.1.0","supportedVersions":["0.1.0"`,
		"CNI_COMMAND=ADD": `required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing`, add: `"code": 5`,
	} {
		exit, stdout, stderr := answer(t, env, broken)
		difftest.Contains(t, fmt.Sprint(exit, stderr, stdout), want)
	}
}

func TestConfigurationOverLimitIsRefused(t *testing.T) {
	for env, limit := range map[string]string{add: "8 MiB", add + "CNI_COMMAND=DEL": "20 MiB"} {
		endless, err := os.Open("/dev/zero")
		check(t, err)
		defer endless.Close()
		exit, stdout, _ := answer(t, env, io.MultiReader(strings.NewReader(`{"name": "`), endless))
		difftest.Same(t, env, exit, 1)
		difftest.Contains(t, stdout, `"code": 7`, "more than "+limit)
	}
}

// bySkel runs a plugin made with skel whose verbs do nothing.
func bySkel() {
	nothing := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(skel.CNIFuncs{Add: nothing, Check: nothing, Del: nothing, GC: nothing, Status: nothing}, version.All, "a plugin")
}

// A fault is a mistake in a call.
type fault struct {
	name  string
	env   string             // KEY=value that replaces the good one
	stdin string             // configuration that replaces the good one
	other map[string][2]uint // by verb: codes of skel and devinfo if they differ; 0 = success
	why   string
}

const every = "ADD CHECK GC STATUS DEL"

// codes returns the codes of skel and devinfo for some verbs.
func codes(skel, devinfo uint, verbs string) map[string][2]uint {
	codes := map[string][2]uint{}
	for verb := range strings.FieldsSeq(verbs) {
		codes[verb] = [2]uint{skel, devinfo}
	}
	return codes
}

const goodKeys = `"type": "devinfo", "deviceInfoFile": "auto", "deviceInfo": {"type": "memif", "memif": {"role": "slave", "path": "/run/app/m.sock", "mode": "ethernet"}}`

const good = `{"cniVersion": "1.1.0", "name": "net-a", ` + goodKeys + `}`

var faults = []fault{
	{name: "none"},
	{name: "no container", env: "CNI_CONTAINERID="},
	{name: "container of a bad name", env: "CNI_CONTAINERID=../x"},
	{name: "container with a line break", env: "CNI_CONTAINERID=x\n"},
	{name: "no interface", env: "CNI_IFNAME="},
	{name: "interface of a bad name", env: "CNI_IFNAME=a/b"},
	{name: "interface of a long name", env: "CNI_IFNAME=a234567890123456"},
	{name: "interface with a no-break space", env: "CNI_IFNAME=a\u00a0b"},
	{name: "interface that is no UTF-8", env: "CNI_IFNAME=a\xffb", other: codes(0, 7, "ADD CHECK"), why: "neither results nor records could spell it"},
	{name: "interface ..", env: "CNI_IFNAME=.."},
	{name: "no path", env: "CNI_PATH="},
	{name: "no namespace", env: "CNI_NETNS="},
	{name: "arguments of no form", env: "CNI_ARGS=a;b", other: codes(0, 4, "ADD CHECK"), why: "skel leaves CNI_ARGS to the plugin"},
	{name: "own namespace, on purpose", env: "CNI_NETNS_OVERRIDE=true"},
	{name: "namespace that is not there", env: "CNI_NETNS=/run/netns/gone", other: codes(0, 8, "ADD CHECK"), why: "skel looks when ADD is done, and has DEL in mind"},
	{name: "own namespace", env: "CNI_NETNS=/proc/self/ns/net", other: map[string][2]uint{"DEL": {8, 0}, "CHECK": {0, 8}}, why: "skel lets DEL do its work, and then reports that it failed, for ever; it does not look at CHECK"},
	{name: "empty", stdin: " "},
	{name: "null", stdin: "null", other: codes(7, 6, every), why: "it is no object to have a name in"},
	{name: "a list", stdin: "[]"},
	{name: "cut short", stdin: good[:20]},
	{name: "followed by text", stdin: good + "x"},
	{name: "no name", stdin: `{"cniVersion": "1.1.0", ` + goodKeys + `}`},
	{name: "name spelt otherwise", stdin: `{"cniVersion": "1.1.0", "Name": "net-a", ` + goodKeys + `}`, other: codes(0, 7, every), why: "two parsers would see two networks"},
	{name: "bad name", stdin: `{"cniVersion": "1.1.0", "name": "a/b", ` + goodKeys + `}`},
	{name: "name that is a number", stdin: `{"cniVersion": "1.1.0", "name": 5, ` + goodKeys + `}`, other: codes(6, 2, every), why: "the JSON is sound, and the error has key and value"},
	{name: "version that is a number", stdin: `{"cniVersion": 1, "name": "net-a", ` + goodKeys + `}`, other: map[string][2]uint{"ADD": {6, 2}, "CHECK": {6, 2}, "GC": {6, 2}, "STATUS": {6, 2}, "DEL": {6, 0}}, why: "the JSON is sound, and the error has key and value; DEL cleans up all the same"},
	{name: "no version", stdin: `{"name": "net-a", ` + goodKeys + `}`},
	{name: "version 0.3.1", stdin: `{"cniVersion": "0.3.1", "name": "net-a", ` + goodKeys + `}`},
	{name: "version 0.4.0", stdin: `{"cniVersion": "0.4.0", "name": "net-a", ` + goodKeys + `}`},
	{name: "version 1.0.0", stdin: `{"cniVersion": "1.0.0", "name": "net-a", ` + goodKeys + `}`},
	{name: "version to come", stdin: `{"cniVersion": "9.0.0", "name": "net-a", ` + goodKeys + `}`, other: codes(1, 0, "DEL"), why: "DEL cleans up all the same"},
	{name: "version that is none", stdin: `{"cniVersion": "x", "name": "net-a", ` + goodKeys + `}`, other: map[string][2]uint{"CHECK": {6, 1}, "GC": {6, 1}, "STATUS": {6, 1}, "DEL": {1, 0}}, why: "it is a version that is not supported, as skel too says of ADD; DEL cleans up all the same"},
}

// devinfo refuses the same calls as skel, with the same codes, except the listed differences.
func TestProtocolMatchesSkel(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		w := newWorld(t)
		w.host("virtio-vm", "", nil)
		self, err := os.Executable()
		check(t, err)
		check(t, os.Symlink(self, filepath.Join(binDir, "skel")))
		for _, f := range faults {
			for _, verb := range []string{"ADD", "CHECK", "GC", "STATUS", "DEL", "VERSION", "", "add", "UPDATE"} {
				if verb == "CHECK" { // CHECK needs an attachment
					difftest.Same(t, "ADD before CHECK", protocol(t, "devinfo", "ADD", fault{}), uint(0))
				}
				got := [2]uint{protocol(t, "skel", verb, f), protocol(t, "devinfo", verb, f)}
				want, differs := f.other[verb]
				if verb == "add" || verb == "UPDATE" { // skel reads the configuration first
					want, differs = [2]uint{got[0], 4}, true
				}
				if !differs {
					want = [2]uint{got[0], got[0]}
				}
				difftest.Same(t, fmt.Sprintf("%s, %q: codes of skel and devinfo; %s", f.name, verb, f.why), got, want)
			}
		}
	})
}

// protocol calls a plugin and returns the code of its error; 0 = success.
func protocol(t *testing.T, name, verb string, f fault) (code uint) {
	t.Helper()
	env := []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=c0ffee", "CNI_IFNAME=net1", "CNI_NETNS=" + podNetns, "CNI_PATH=" + binDir}
	key, _, _ := strings.Cut(f.env, "=")
	env = slices.DeleteFunc(env, func(pair string) bool { return key != "" && strings.HasPrefix(pair, key+"=") })
	if f.name == "own namespace, on purpose" {
		env = append(env, "CNI_NETNS=/proc/self/ns/net")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(binDir, name))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(good), &stdout, &stderr
	if f.stdin != "" {
		cmd.Stdin = strings.NewReader(f.stdin)
	}
	cmd.Env = append(env, f.env, storyHost+"="+hostFile, storyBoot+"=boot-0", "DEVINFO_NODE_CONFIG="+nodeFile, "GORACE="+os.Getenv("GORACE"))
	err := cmd.Run()
	if err == nil {
		return 0
	}
	own := new(types.Error)
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || json.Unmarshal(stdout.Bytes(), own) != nil || own.Code == 0 || own.Msg == "" {
		t.Fatalf("%s, %q of %s: %v, printed %q and %q", f.name, verb, name, err, stdout.String(), fmt.Sprintf("%.500s", stderr.String()))
	}
	return own.Code
}

// The codes are in the comments of CNI's constants in package failure, and in the values of devinfo's own constants. Code 1,
// an unsupported cniVersion, has no constant.
func TestReferenceListsErrorCodes(t *testing.T) {
	codes := append(find(t, `(?m)^\t\w+ += (?:types\.\w+ +// |uint\()(\d+)`, "../../pkg/core/failure/failure.go"), "1")
	slices.SortFunc(codes, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	difftest.Same(t, "codes in docs/reference.md", find(t, `(?m)^\| (\d+) \| `, "../../docs/reference.md"), codes)
}

// find returns the first group of each match in a file.
func find(t *testing.T, expression, path string) (list []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(expression).FindAllStringSubmatch(difftest.Read(t, path), -1) {
		list = append(list, found[1])
	}
	return list
}
