package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/test/difftest"
)

const igb = "../../testdata/hosts/igb-sriov.txtar"

// idleIn returns the warnings about unmatched rules for a captured host.
func idleIn(t *testing.T, host, rules string) (list []string) {
	t.Helper()
	_, warnings, err := inventoryOf(t, rules, "--capture", host)
	must(t, err)
	for line := range strings.Lines(warnings) {
		if strings.Contains(line, "selects no device") {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

// inventoryOf runs the command.
func inventoryOf(t *testing.T, rules string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "devices.yaml")
	must(t, os.WriteFile(file, []byte(rules), 0o600))
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
	host := strings.ReplaceAll(difftest.Read(t, igb), "eth2", "eth2\u009b31m\u202e")
	for name, text := range map[string]string{capture: host, capture + ".broken": "x\n-- netlink/ip-link.json --\n" + evil} {
		difftest.Write(t, name, text, 0o600)
		for _, rules := range []string{someDevices, "devices: [{pfNames: ['" + evil + "'], sharing: shared}]", "devices: [{drivers: [a], sharing: shared, attributes: {'a" + evil + "': 1}}]", evil} {
			file := filepath.Join(t.TempDir(), "devices.yaml")
			difftest.Write(t, file, rules, 0o600)
			for _, format := range []string{"table", "json", "yaml", evil} {
				cmd := command()
				var out bytes.Buffer
				cmd.SetOut(&out)
				cmd.SetErr(&out)
				cmd.SetArgs([]string{"inventory", "--config", file, "--capture", name, "-o", format})
				err := commandline.Run(cmd)
				clierr.Report(&out, "cni-dra-driver", true, err)
				if raw := difftest.Raw(out.String()); raw != "" {
					t.Errorf("-o %q, %q: %q in %q", format, rules, raw, out.String())
				}
			}
		}
	}
}

const someDevices = `devices:
- {pfNames: [eth1], sharing: exclusive}
- {ifNames: [eth0], sharing: shared}
`

func TestInventoryPrintsOfferedDevicesAndReasons(t *testing.T) {
	got, warnings, err := inventoryOf(t, someDevices, "--capture", igb)
	want := `DEVICE            KIND  INTERFACE  OFFERED    RULE  WHY NOT
pci-0000-01-00-0  pf    eth0       shared     1     -
pci-0000-01-10-0  vf    eth2       no         -     no rule selects it
pci-0000-01-10-2  vf    eth3       no         -     no rule selects it
pci-0000-01-10-4  vf    eth4       no         -     no rule selects it
pci-0000-01-10-6  vf    -          no         -     no rule selects it
pci-0000-02-00-0  pf    -          no         -     no rule selects it
pci-0000-41-00-0  pf    eth1       no         -     no rule selects it
pci-0000-41-10-0  vf    eth6       exclusive  0     -
pci-0000-41-10-2  vf    eth7       exclusive  0     -
`
	must(t, err)
	difftest.Equal(t, got, want)
	difftest.Contains(t, warnings, "default routes")
}

// Pods stay Pending if a rule selects no device, and the scheduler does not report the reason.
func TestInventoryWarnsAboutUnmatchedRules(t *testing.T) {
	got := idleIn(t, "../devinfoctl/testdata/node.txtar", `devices:
- {ifNames: [eth4], sharing: exclusive}
- {pfNames: [p0], sharing: exclusive}
- {pfNames: [p9], drivers: [mlx4_core], sharing: exclusive}
- {pciAddresses: ["0000:03:00.7", "0000:03:00.5"], sharing: exclusive}
- {select: "false", sharing: exclusive}
- {ifNames: [p0], sharing: shared}
- {ifNames: [p0], sharing: shared}
`)
	const none = "no device matches all of its keys, or an earlier rule already selects it"
	difftest.Equal(t, got, []string{
		"warning: devices[0] (ifNames: eth4) selects no device: eth4 is a representor; the nearest is p0",
		"warning: devices[2] (pfNames: p9; drivers: mlx4_core) selects no device: this node has no interface p9; the nearest is p0; no device has the driver mlx4_core; the nearest is mlx5_core",
		"warning: devices[3] (pciAddresses: 0000:03:00.7, 0000:03:00.5) selects no device: 0000:03:00.7 is not on this node; the nearest is 0000:03:00.0",
		"warning: devices[4] (select) selects no device: " + none,
		"warning: devices[6] (ifNames: p0) selects no device: " + none,
	})
	const empty = "warning: devices selects no device: the file has no rules; write a rule such as devices: [{pfNames: [ens1f0np0], sharing: exclusive}], or devices: [] to offer no devices"
	for rules, want := range map[string][]string{"": {empty}, "# later\n": {empty}, "devices:\n# - {ifNames: [p0], sharing: shared}\n": {empty}, "devices: []": nil} {
		difftest.Same(t, rules, idleIn(t, igb, rules), want)
	}
	difftest.Equal(t, idleIn(t, "../../testdata/hosts/mlx5-legacy.txtar", `devices:
- {pfNames: [ens1f1np1, ens1f9], sharing: exclusive}
- {pfNames: [ens1f0v0], sharing: exclusive}
- {select: 'device.attributes["devinfo-cni.io"].king == "vf"', sharing: exclusive}
- {pfNames: [ens1f0np0], sharing: exclusive}
`), []string{
		"warning: devices[0] (pfNames: ens1f1np1, ens1f9) selects no device: no VF, SF or vDPA device is on ens1f1np1; the nearest is ens1f0np0; this node has no interface ens1f9; the nearest is ens1f0np0",
		"warning: devices[1] (pfNames: ens1f0v0) selects no device: no VF, SF or vDPA device is on ens1f0v0; the nearest is ens1f0np0",
		"warning: devices[2] (select) selects no device: select: no such key: king",
	})
}

func TestInventoryPrintsSameContentAsYAMLAndJSON(t *testing.T) {
	var all [2]struct {
		Slices  []struct{ Devices []map[string]any }
		LeftOut []map[string]string
	}
	for n, format := range []string{"yaml", "json"} {
		text, _, err := inventoryOf(t, someDevices, "--capture", igb, "-o", format)
		must(t, err)
		if isJSON := json.Valid([]byte(text)); isJSON != (format == "json") {
			t.Errorf("-o %s prints JSON: %v", format, isJSON)
		}
		must(t, yaml.Unmarshal([]byte(text), &all[n])) // JSON is YAML
	}
	difftest.Equal(t, all[1], all[0])
	if len(all[0].Slices) != 1 || len(all[0].Slices[0].Devices) != 3 || len(all[0].LeftOut) != 6 {
		t.Errorf("got %v", all[0])
	}
}

func TestInventoryRefusesInvalidInput(t *testing.T) {
	for _, test := range []struct {
		rules, host, want string
	}{
		{"devices: [{sharing: shared}]", igb, "devices[0].select: the rule selects no devices"},
		{someDevices, "/nowhere", "--capture: open /nowhere"},
	} {
		out, _, err := inventoryOf(t, test.rules, "--capture", test.host)
		difftest.Says(t, err, test.want)
		difftest.Same(t, "printed", out, "")
	}
}

func TestInventoryAppliesRulesToNodeLabels(t *testing.T) {
	const racks = `devices:
- {nodes: {matchLabels: {rack: a}}, pfNames: [eth1], sharing: exclusive}
- {nodes: {matchExpressions: [{key: rack, operator: In, values: [b]}]}, ifNames: [eth0], sharing: shared}
- {ifNames: [eth3], sharing: exclusive}
`
	for labels, want := range map[string]string{
		"rack=a,zone=x":  "pci-0000-01-10-2 exclusive 2, pci-0000-41-10-0 exclusive 0, pci-0000-41-10-2 exclusive 0",
		"zone=x,rack=b":  "pci-0000-01-00-0 shared 1, pci-0000-01-10-2 exclusive 2",
		"rack=c":         "pci-0000-01-10-2 exclusive 2",
		"example.com/x=": "pci-0000-01-10-2 exclusive 2",
	} {
		out, warnings, err := inventoryOf(t, racks, "--capture", igb, "--node-labels", labels)
		must(t, err)
		var offered []string
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); f[3] == "exclusive" || f[3] == "shared" {
				offered = append(offered, f[0]+" "+f[3]+" "+f[4])
			}
		}
		difftest.Same(t, "offered with "+labels, strings.Join(offered, ", "), want)
		if strings.Contains(warnings, "selects no device") {
			t.Errorf("%s: a rule for other nodes is reported: %s", labels, warnings)
		}
	}
	for args, want := range map[string]string{
		"":                      "--node-labels: the rules select nodes: give the labels",
		"--node-labels=":        "--node-labels: the rules select nodes: give the labels",
		"--node-labels=rack":    "--node-labels: ",
		"--node-labels=a b=c":   "--node-labels: ",
		"--node-labels=rack!=a": "--node-labels: ",
	} {
		var more []string
		if args != "" {
			more = []string{args}
		}
		out, _, err := inventoryOf(t, racks, append(more, "--capture", igb)...)
		difftest.Says(t, err, want)
		difftest.Same(t, "printed", out, "")
	}
}

func TestDocumentationShowsTheOutputOfInventory(t *testing.T) {
	const docs, prompt = "../../docs/dra", "$ cni-dra-driver inventory --config devices.yaml "
	command, want, _ := strings.Cut(difftest.Block(t, docs, "console", prompt), "\n")
	args := strings.Replace(strings.TrimPrefix(command, prompt), "--capture ", "--capture ../../", 1)
	got, _, err := inventoryOf(t, difftest.Block(t, docs, "yaml", "physicalNetwork: red"), strings.Fields(args)...)
	must(t, err)
	difftest.Equal(t, got, want)
}

func TestClearDropsOnlyUndeletedAttachments(t *testing.T) {
	plugins := t.TempDir()
	store, err := state.Open(filepath.Join(plugins, driver, "state"))
	must(t, err)
	defer store.Close() // the store is locked, as by a running driver
	at := state.Attachment{
		Pool: "n1", Device: "cni-3", Network: "net", IfName: "net1", List: json.RawMessage("{}"), Phase: state.Undeleted,
		Execution: state.Execution{Sandbox: "s1", Args: [][2]string{{"K8S_POD_NAMESPACE", "ns"}, {"K8S_POD_NAME", "pod"}}},
	}
	left := &state.Claim{Namespace: "ns", Name: "claim", UID: "u1", Undeleted: []state.Attachment{at}}
	must(t, store.Put(left))
	var out strings.Builder
	cmd := command()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"clear", "--kubelet-plugins-dir", plugins, "u2", "u1", "../u1"})
	err = cmd.Execute()
	difftest.Says(t, err, `claim UID "u2"`, "../u1")
	difftest.Equal(t, out.String(), "claim ns/claim, pod ns/pod: interface net1 in network net, device n1/cni-3: cleared\n")
	if !store.IsCleared("u1", &at) {
		t.Error("the agent is not told")
	}
	t.Setenv(state.DirVariable, filepath.Join(plugins, driver, "state"))
	out.Reset()
	cmd.SetArgs([]string{"clear", "u1"})
	must(t, cmd.Execute())
	difftest.Contains(t, out.String(), "cleared") // in the directory of the node
	cmd.SetArgs([]string{"clear", "--kubelet-plugins-dir", filepath.Join(plugins, "none"), "u1"})
	difftest.Says(t, cmd.Execute(), "give --kubelet-plugins-dir")
	at.Sandbox = "s2"
	if store.IsCleared("u1", &at) {
		t.Error("it is told of another one")
	}
}
