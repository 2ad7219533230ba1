package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/capturefile"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

const inventoryHelp = `Prints which of the node's network devices would be published in its ResourceSlices,
and why the others would not. It publishes nothing, and needs no API server.

The rules are the key "devices" of the configuration file; without --config no device
is named by one. Nobody is asked which devices pods have: one that sriov-cni has locked, or
whose interface is in a pod, is left out, and any other is printed as if it were free. Run it
in the host's network namespace.`

const inventoryExample = `  cni-dra-driver inventory --config devices.yaml
  cni-dra-driver inventory --config devices.yaml --capture node.txtar -o yaml`

type inventoryOptions struct {
	configFile, captureFile, nodeFile, nodeLabels, output string
}

func inventoryCommand() *cobra.Command {
	var o inventoryOptions
	cmd := &cobra.Command{
		Use: "inventory", Short: "print which devices would be published, and why others would not", Long: inventoryHelp,
		Example: inventoryExample, Args: commandline.Args(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.configFile, "config", "", "`file` with the rules, {devices: [...]}, in YAML or JSON")
	f.StringVar(&o.captureFile, "capture", "", "capture `file`, written by devinfoctl capture, to read instead of this host")
	f.StringVar(&o.nodeFile, "node-config", config.NodeFile, "node settings `file` of the devinfo plugin, for sysfs; it need not exist")
	f.StringVar(&o.nodeLabels, "node-labels", "", "`labels` of the node, \"rack=a,zone=b\", as kubectl get node --show-labels prints them; required if rules have nodes")
	commandline.Choice(cmd, f, &o.output, "output", "o", "table", "how to print: table, json or yaml", "table", "json", "yaml")
	return cmd
}

// An offering is what the command prints as JSON and YAML.
type offering struct {
	Slices   []inventory.Slice `json:"slices"`
	LeftOut  []leftOut         `json:"leftOut"`
	Warnings []string          `json:"warnings,omitempty"`
}

type leftOut struct {
	Device string `json:"device"`
	IfName string `json:"ifName,omitempty"`
	Why    string `json:"why"`
}

func (o *inventoryOptions) run(out, warn io.Writer) error {
	var rules inventory.Rules
	if o.configFile != "" {
		var err error
		if rules, _, err = rulesIn("config", o.configFile); err != nil {
			return err
		}
	}
	if rules.SelectNodes() {
		if o.nodeLabels == "" {
			return errors.New("--node-labels: rules select nodes; give the labels that \"kubectl get node NODE --show-labels\" prints")
		}
		node, err := labels.ConvertSelectorToLabelsMap(o.nodeLabels)
		if err != nil {
			return fmt.Errorf("--node-labels: %w", err)
		}
		rules = rules.On(node)
	}
	host, taken, err := o.host()
	if err != nil {
		return err
	}
	devices, warnings, err := inventory.Read(host)
	if err != nil {
		return err
	}
	if host.Uplinks == nil {
		warnings = append(warnings, "the host's default routes are unknown: their interfaces are treated like any other")
	}
	decisions := inventory.Decide(devices, rules, inventory.Situation{Driver: driver, Sharing: true, Others: taken})
	for _, idle := range rules.Idle(decisions, host.Links) {
		warnings = append(warnings, idle.Rule+" names no device: "+idle.Why)
	}
	if err := o.print(out, decisions, warnings); err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintf(warn, "warning: %s\n", w)
	}
	return nil
}

// rulesIn reads the file that a flag names.
func rulesIn(flag, file string) (rules inventory.Rules, digest string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return rules, "", fmt.Errorf("--%s: %w", flag, err)
	}
	digest = fmt.Sprintf("%x", sha256.Sum256(data))
	if rules, err = inventory.ParseRules(data); err != nil {
		err = fmt.Errorf("--%s: %s: %w", flag, file, err)
	}
	return rules, digest, err
}

// captured reads the host that the flag --capture names.
func captured(name string) (host inventory.Host, err error) {
	file, err := capturefile.Load(name)
	if err == nil {
		host, err = inventory.Captured(file)
	}
	if err != nil {
		err = fmt.Errorf("--capture: %w", err)
	}
	return host, err
}

// host is this one, or the captured one, and what others have of its devices.
func (o *inventoryOptions) host() (host inventory.Host, taken map[string]string, err error) {
	if o.captureFile != "" {
		host, err = captured(o.captureFile)
		return host, nil, err
	}
	node, err := config.LoadNode(o.nodeFile)
	if err != nil {
		return host, nil, fmt.Errorf("--node-config: %w", err)
	}
	sys, err := sysfs.Open(node.Sysfs)
	if err != nil {
		return host, nil, err
	}
	if host, err = inventory.Live(sys); err != nil {
		return host, nil, err
	}
	taken, err = journal.LockedBySRIOV(os.DirFS(journal.SRIOVLocks), link.NetnsGone)
	return host, taken, err
}

func (o *inventoryOptions) print(out io.Writer, decisions []inventory.Decision, warnings []string) error {
	all := offering{Slices: append([]inventory.Slice{}, inventory.Slices(decisions, nil, nil)...), LeftOut: []leftOut{}, Warnings: warnings}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DEVICE\tKIND\tINTERFACE\tOFFERED\tRULE\tWHY NOT")
	for _, c := range decisions {
		as, rule := string(c.Sharing), "-"
		if c.Why != "" {
			as = "no"
			all.LeftOut = append(all.LeftOut, leftOut{c.Device.Name, c.Device.IfName, c.Why})
		}
		if c.Rule >= 0 {
			rule = strconv.Itoa(c.Rule)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Device.Name, c.Device.Kind, cmp.Or(c.Device.IfName, "-"), as, rule, cmp.Or(c.Why, "-"))
	}
	switch o.output {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(all)
	case "yaml":
		text, err := yaml.Marshal(all)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	return w.Flush()
}
