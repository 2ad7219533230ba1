package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/output"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/event"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
)

// inventory returns what --devices selects, or nil without the flag, and records the offer for devinfoctl.
func (o *options) inventory(sys *sysfs.FS) (*devices.Inventory, error) {
	if o.devices == "" {
		return nil, state.WriteOffer(o.stateDir(), nil)
	}
	rules, err := rulesIn("devices", o.devices)
	if err != nil { // devinfoctl shows this error while the driver restarts again and again
		return nil, errors.Join(err, state.WriteOffer(o.stateDir(), &state.Offer{Rules: o.devices, Problem: err.Error()}))
	}
	socket := o.podResourcesSocket()
	if _, err := os.Stat(socket); err != nil && o.podResourcesGiven {
		return nil, fmt.Errorf("--pod-resources-socket: %w: give the path of the kubelet's socket, as the host sees it, or leave the flag out", err)
	}
	memory := podresources.Memory{Socket: socket, Driver: driver}
	conditions := &settings.Memory{Proc: "/proc"}
	return &devices.Inventory{
		Rules: rules, File: o.devices, Events: event.Listen, Settle: time.Second, Poll: time.Minute,
		EvictLost: o.evictLost, CarrierGrace: o.carrierGrace,
		Host: func() (inventory.Host, error) {
			if o.captureFile != "" {
				return captured(o.captureFile)
			}
			return inventory.Live(sys, conditions)
		},
		Waits: memory.Waits,
		Others: func(ctx context.Context) (map[string]string, error) {
			all, failed := journal.LockedBySRIOV(os.DirFS(filepath.Join("/", o.hostRoot, journal.SRIOVLocks)), link.NetnsGone)
			given, err := memory.Ask(ctx)
			if err != nil {
				err = fmt.Errorf("--pod-resources-socket: %s: cannot list the devices of pods: %w", socket, err)
			}
			maps.Copy(all, given)
			return all, errors.Join(err, failed)
		},
	}, nil
}

// podResourcesSocket is the path of the kubelet's socket for this process.
func (o *options) podResourcesSocket() string { return filepath.Join("/", o.hostRoot, o.podResources) }

// sysfs returns the /sys of the node, or of the capture file.
func (o *options) sysfs(node config.Node) (*sysfs.FS, error) {
	if o.captureFile == "" {
		return sysfs.Open(node.Sysfs)
	}
	host, err := captured(o.captureFile)
	return host.Sys, err
}

const inventoryHelp = `Prints which of the node's network devices cni-dra-driver would publish in its ResourceSlices,
and why not the other devices. It publishes nothing, and needs no API server.

The rules are the key "devices" of the configuration file. Without --config, no rule selects a
device. The command does not ask the kubelet which devices pods have. It leaves out devices that
sriov-cni has locked and devices whose interface is in a pod, and prints each other device as if
it were free. Run it in the host's network namespace.`

const inventoryExample = `  cni-dra-driver inventory --config devices.yaml
  cni-dra-driver inventory --config devices.yaml --capture node.txtar -o yaml`

type inventoryOptions struct {
	configFile, captureFile, nodeFile, nodeLabels, output string
}

func inventoryCommand() *cobra.Command {
	var o inventoryOptions
	cmd := &cobra.Command{
		Use: "inventory", Short: "print which devices the driver would publish, and why not the rest", Long: inventoryHelp,
		Example: inventoryExample, Args: commandline.Args(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.configFile, "config", "", "`file` with the rules, {devices: [...]}, in YAML or JSON")
	f.StringVar(&o.captureFile, "capture", "", "capture `file`, written by devinfoctl capture, to read instead of this host")
	f.StringVar(&o.nodeFile, "node-config", config.NodeFile, "node settings `file` of the devinfo plugin, for its key sysfs; may be missing")
	f.StringVar(&o.nodeLabels, "node-labels", "", "`labels` of the node as kubectl get node --show-labels prints them, \"rack=a,zone=b\"; required if rules select nodes")
	commandline.Choice(cmd, f, &o.output, "output", "o", "table", "output format: table, json or yaml", "table", "json", "yaml")
	return cmd
}

// An offering is the JSON and YAML output of the command.
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

func (o *inventoryOptions) run(out, warn io.Writer) (err error) {
	rules := inventory.Rules{}
	if o.configFile != "" {
		if rules, err = rulesIn("config", o.configFile); err != nil {
			return err
		}
	}
	if rules.SelectNodes() {
		if o.nodeLabels == "" {
			return errors.New("--node-labels: the rules select nodes: give the labels that \"kubectl get node NODE --show-labels\" prints")
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
		warnings = append(warnings, "the host's default routes are unknown, so interfaces with one are offered like any other")
	}
	decisions := inventory.Decide(devices, rules, inventory.DecideInput{Driver: driver, Sharing: true, Others: taken})
	for _, rule := range rules.Unmatched(decisions, host.Links) {
		warnings = append(warnings, rule.Rule+" selects no device: "+rule.Why)
	}
	if err := o.print(out, host, decisions, warnings); err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintf(warn, "warning: %s\n", w)
	}
	return nil
}

// rulesIn parses the rules in a file. flag is the flag that names the file, for errors.
func rulesIn(flag, file string) (inventory.Rules, error) {
	data, err := store.ReadFile(file, config.MaxFile)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	rules, err := inventory.ParseRules(data)
	if err != nil {
		err = fmt.Errorf("--%s: %s: %w", flag, file, err)
	}
	return rules, err
}

// captured reads the capture file of --capture.
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

// host returns this host, or the one in the capture file, and the devices that sriov-cni has locked.
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
	host, err = inventory.Live(sys, &settings.Memory{Proc: "/proc"})
	taken, takenErr := journal.LockedBySRIOV(os.DirFS(journal.SRIOVLocks), link.NetnsGone)
	return host, taken, cmp.Or(err, takenErr)
}

// printCards prints how devinfo was tried on NICs like those of the host.
func printCards(out io.Writer, host inventory.Host) error {
	devices, _, err := hostdev.Read(hostdev.Host{Sys: host.Sys})
	if devices == nil && err != nil {
		return err // of one device it has been said
	}
	cards, err := nic.Seen(host.Sys, devices)
	for _, card := range cards {
		if text := card.Text; card.OnCard {
			fmt.Fprintln(out, text)
		} else {
			fmt.Fprintf(out, "%s; %s\n", text, nic.Remedy)
		}
	}
	return err
}

func (o *inventoryOptions) print(out io.Writer, host inventory.Host, decisions []*inventory.Decision, warnings []string) error {
	all := offering{Slices: append([]inventory.Slice{}, inventory.Slices(inventory.Pool(decisions, nil))...), LeftOut: []leftOut{}, Warnings: warnings}
	rows := [][]string{{"DEVICE", "KIND", "INTERFACE", "OFFERED", "RULE", "WHY NOT"}}
	for _, c := range decisions {
		as, rule := string(c.Sharing), ""
		if c.Why != "" {
			as = "no"
			all.LeftOut = append(all.LeftOut, leftOut{c.Device.Name, c.Device.IfName, c.Why})
		}
		if c.Rule >= 0 {
			rule = strconv.Itoa(c.Rule)
		}
		rows = append(rows, []string{c.Device.Name, string(c.Device.Kind), c.Device.IfName, as, rule, c.Why})
	}
	if o.output != "table" {
		return output.Encode(out, o.output, all)
	}
	return cmp.Or(output.Rows(out, rows), printCards(out, host))
}
