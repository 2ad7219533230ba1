package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

const igb = "../../testdata/hosts/igb-sriov.txtar"

// inventoryOf runs the command.
func inventoryOf(t *testing.T, rules string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "devices.yaml")
	difftest.Must(t, os.WriteFile(file, []byte(rules), 0o600))
	cmd := command()
	var out, warn bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&warn)
	cmd.SetArgs(append([]string{"inventory", "--config", file}, args...))
	err = cmd.Execute()
	return out.String(), warn.String(), err
}

func TestInventoryPrintsNoRawTexts(t *testing.T) {
	const evil = "\u202e\u2066\u009b" // YAML allows them
	capture := filepath.Join(t.TempDir(), "host"+evil+".txtar")
	difftest.Write(t, capture, strings.ReplaceAll(difftest.Read(t, igb), "eth2", "eth2\u009b31m\u202e"), 0o600)
	for _, rules := range []string{someDevices, "devices: [{pfNames: ['" + evil + "'], sharing: shared}]", evil} {
		file := filepath.Join(t.TempDir(), "devices.yaml")
		difftest.Write(t, file, rules, 0o600)
		for _, format := range []string{"table", "json", evil} {
			cmd := command()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetArgs([]string{"inventory", "--config", file, "--capture", capture, "-o", format})
			err := commandline.Run(cmd)
			clierr.Report(&out, "cni-dra-driver", true, err)
			difftest.NotRaw(t, "-o "+format+", "+rules, out.String())
		}
	}
}

// What is printed of the others does not depend on the format, though one device cannot be read.
func TestInventoryShowsTheOthersIfOneDeviceCannotBeRead(t *testing.T) {
	const total = "/0000:01:00.0/sriov_totalvfs"
	host := difftest.Read(t, igb)
	from := strings.Index(host, total)
	to := from + strings.Index(host[from:], "\n-- ")
	capture := filepath.Join(t.TempDir(), "host.txtar")
	difftest.Write(t, capture, host[:from]+total+" !EIO --"+host[to:], 0o600)
	for _, format := range []string{"table", "json"} {
		_, warnings, err := inventoryOf(t, someDevices, "--capture", capture, "-o", format)
		difftest.Must(t, err)
		difftest.Contains(t, warnings, "is not offered, because it cannot be read: ")
	}
}

const someDevices = `devices:
- {pfNames: [eth1], sharing: exclusive}
- {ifNames: [eth0], sharing: shared}
`

var inTemp = regexp.MustCompile(`/\S+/\d+/`)

// Each file has rules, then commands with their output. A line of output that begins with "!" is of standard error. The
// captured hosts are those of testdata/hosts, and node is devinfoctl's.
func TestInventoryPrintsRecordedOutput(t *testing.T) {
	goldentest.Archives(t, "testdata/inventory/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		rules := ""
		for n := range archive.Files {
			f := &archive.Files[n]
			line, isCommand := strings.CutPrefix(f.Name, "inventory ")
			if !isCommand {
				rules = string(f.Data)
				continue
			}
			args := strings.Fields(line)
			host := "../../testdata/hosts/" + args[0] + ".txtar"
			if args[0] == "node" {
				host = "../devinfoctl/testdata/node.txtar"
			}
			stdout, stderr, err := inventoryOf(t, rules, append(args[1:], "--capture", host)...)
			for warning := range strings.Lines(stderr) {
				stdout += "! " + warning
			}
			if err != nil {
				stdout += "! " + inTemp.ReplaceAllString(err.Error(), "") + "\n"
			}
			goldentest.Section(t, f, stdout)
		}
	})
}

func TestDocumentationShowsTheOutputOfInventory(t *testing.T) {
	const docs, prompt = "../../docs/dra", "$ cni-dra-driver inventory --config devices.yaml "
	command, want, _ := strings.Cut(difftest.Block(t, docs, "console", prompt), "\n")
	args := strings.Replace(strings.TrimPrefix(command, prompt), "--capture ", "--capture ../../", 1)
	got, _, err := inventoryOf(t, difftest.Block(t, docs, "yaml", "physicalNetwork: red"), strings.Fields(args)...)
	difftest.Must(t, err)
	difftest.Equal(t, got, want)
}

func TestClearDropsOnlyUndeletedAttachments(t *testing.T) {
	plugins := t.TempDir()
	store, err := state.Open(filepath.Join(plugins, driver, "state"))
	difftest.Must(t, err)
	defer store.Close() // the store is locked, as by a running driver
	at := state.Attachment{
		Pool: "n1", Device: "cni-3", Network: "net", IfName: "net1", List: json.RawMessage("{}"), Phase: state.Undeleted,
		Execution: state.Execution{Sandbox: "s1", Args: [][2]string{{"K8S_POD_NAMESPACE", "ns"}, {"K8S_POD_NAME", "pod"}}},
	}
	left := &state.Claim{Namespace: "ns", Name: "claim", UID: "u1", Undeleted: []state.Attachment{at}}
	difftest.Must(t, store.Put(left))
	var out strings.Builder
	cmd := command()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"clear", "--kubelet-plugins-dir", plugins, "u2", "u1", "../u1"})
	err = cmd.Execute()
	difftest.Says(t, err, `claim UID "u2"`, "../u1")
	difftest.Equal(t, out.String(), "claim ns/claim, pod ns/pod: interface net1 in network net, device n1/cni-3: cleared\n")
	difftest.Same(t, "the agent is told", store.IsCleared("u1", &at), true)
	t.Setenv(state.DirVariable, filepath.Join(plugins, driver, "state"))
	out.Reset()
	cmd.SetArgs([]string{"clear", "u1"})
	difftest.Must(t, cmd.Execute())
	difftest.Contains(t, out.String(), "cleared") // in the directory of the node
	cmd.SetArgs([]string{"clear", "--kubelet-plugins-dir", filepath.Join(plugins, "none"), "u1"})
	difftest.Says(t, cmd.Execute(), "give --kubelet-plugins-dir")
	t.Setenv(state.DirVariable, "")
	settings, journal := filepath.Join(plugins, "node.json"), filepath.Join(plugins, "journal")
	difftest.Must(t, os.Mkdir(journal, 0o755), os.WriteFile(settings, []byte(`{"stateDir":"`+journal+`"}`), 0o644), state.Announce(journal, filepath.Join(plugins, driver, "state")))
	cmd = command()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"clear", "--node-config", settings, "u1"})
	difftest.Must(t, cmd.Execute()) // in the directory that the driver of these node settings has announced
	at.Sandbox = "s2"
	difftest.Same(t, "it is told of another one", store.IsCleared("u1", &at), false)
}
