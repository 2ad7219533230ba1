package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/link"
)

const inspectHelp = `Shows the device information that ADD would write for a device, and where each fact
comes from, without regard to a configuration or an existing file.

DEVICE is a PCI address (03:00.5 is 0000:03:00.5), an auxiliary device (an SF), a vDPA
device or a network interface: one of this namespace or, with --netns, of that one. If a
name means several devices, --as decides.

Except on a captured host, the source of a representor says whether sriovnet agrees: it is
what OVN-Kubernetes, ovs-cni and the SR-IOV operators find it with.

Exits with 1 if ADD could not describe the device.`

const inspectExample = `  devinfoctl inspect 0000:3b:02.1
  devinfoctl inspect vdpa0 -o json
  devinfoctl inspect mlx5_core.sf.4 --subfunction-parent
  devinfoctl inspect net1 --netns /var/run/netns/cni-5f0d2c9a
  devinfoctl --host node.txtar inspect ens1f0v2`

// inspection is what inspect prints.
type inspection struct {
	Device     string          `json:"device"`
	As         string          `json:"as"` // "pci", "auxiliary", "vdpa" or "interface"
	Netns      string          `json:"netns,omitempty"`
	DeviceInfo json.RawMessage `json:"deviceInfo,omitempty"` // the file that ADD would write
	Facts      []fact          `json:"facts"`
	Shared     bool            `json:"shared,omitempty"` // the device is not the interface's alone
	Problem    string          `json:"problem,omitempty"`
	Warnings   []string        `json:"warnings,omitempty"`
}

// fact is a discovery.Fact.
type fact struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// subject is what the command line says of the device.
type subject struct {
	name, as, netns                string
	followLower, subfunctionParent bool
}

func inspectCommand(t *tool) *cobra.Command {
	var s subject
	cmd := &cobra.Command{
		Use:               "inspect DEVICE",
		Short:             "what ADD would write for a device, and where each fact comes from",
		Long:              inspectHelp,
		Example:           inspectExample,
		Args:              exactly("DEVICE"),
		ValidArgsFunction: t.completeDevices,
		RunE: func(_ *cobra.Command, args []string) error {
			s.name = fullAddress(args[0])
			if s.as != "" {
				if err := oneOf("as", s.as, kinds...); err != nil {
					return err
				}
			}
			return t.inspect(s)
		},
	}
	cmd.Flags().StringVar(&s.netns, "netns", "", "`path` of the network namespace that the interface is in")
	cmd.Flags().StringVar(&s.as, "as", "", "what DEVICE is: "+strings.Join(kinds, ", "))
	cmd.Flags().BoolVar(&s.followLower, "follow-lower", false, "for a macvlan, ipvlan or vlan interface, take the lower one's device")
	cmd.Flags().BoolVar(&s.subfunctionParent, "subfunction-parent", false, "let the parent function stand for an SF")
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (t *tool) inspect(s subject) error {
	h, err := t.host()
	if err != nil {
		return err
	}
	if s.as, err = h.settle(s); err != nil {
		return err
	}
	device, err := h.find(s)
	if err != nil {
		return h.explained(err)
	}
	var missing *discovery.MissingError
	if errors.As(device.Problem, &missing) || s.as == asInterface && !device.InNetns {
		return h.unknown(s)
	}
	in := inspection{Device: s.name, As: s.as, Netns: s.netns, Shared: device.Shared, Warnings: device.Warnings, Facts: facts(device)}
	in.judge(h)
	if info := devinfo.Merge(nil, device.Info, nil); info != nil {
		in.DeviceInfo = info.Encode()
		if err := info.Validate().Err(); err != nil {
			in.Problem = err.Error()
		}
	}
	switch {
	case device.Problem != nil:
		in.Problem = device.Problem.Error()
		if errors.As(device.Problem, new(*discovery.UndescribableError)) && s.as == asAuxiliary {
			in.Problem = strings.ReplaceAll(in.Problem, `"subfunctionParent": true`, "--subfunction-parent")
		}
	case device.Info == nil:
		in.Problem = fmt.Sprintf("interface %s has no device of its own: it is software, or stacked on another (see --follow-lower)", s.name)
	}
	if err := t.print(in, t.inspectionTable(in)); err != nil {
		return err
	}
	if in.Problem != "" {
		return errFound
	}
	return nil
}

// fullAddress adds the usual domain to a PCI address without one, as lspci prints it.
func fullAddress(name string) string {
	if _, err := pci.Parse(name); err == nil || strings.Count(name, ":") != 1 {
		return name
	}
	if full, err := pci.Parse("0000:" + name); err == nil {
		return full.String()
	}
	return name
}

func facts(device *discovery.Device) []fact {
	list := []fact{}
	for _, f := range device.Facts {
		list = append(list, fact(f))
	}
	return list
}

// find asks discovery, as ADD does.
func (h *host) find(s subject) (*discovery.Device, error) {
	target := discovery.Target{FollowLower: s.followLower, SubfunctionParent: s.subfunctionParent}
	finder := *h.finder
	if s.as == asInterface {
		target.Netns, target.IfName = s.netns, s.name
		if s.netns == "" {
			target.Netns = "our own" // to the finder an empty one means not to look
			finder.Interfaces = ownNetns{finder.Interfaces}
		}
	} else {
		target.DeviceIDs = []config.NamedID{{Key: "the command line", ID: s.name}}
	}
	return finder.Find(target)
}

// ownNetns gives the interfaces of our own network namespace, wherever they are
// asked for.
type ownNetns struct{ discovery.Interfaces }

func (o ownNetns) Interface(_, name string) (link.Interface, error) {
	return o.Interfaces.Interface("", name)
}

// explained adds to an error of discovery what to do about it.
func (h *host) explained(err error) error {
	switch {
	case errors.Is(err, errPermission) && h.captured != "":
		return blind(err, "capture the host as root")
	case errors.Is(err, errPermission):
		return blind(err, "run as root")
	case errors.Is(err, link.ErrNoNetns):
		return blind(err, "devinfoctl list -o json has the network namespace of each attachment")
	}
	return err
}

func (t *tool) inspectionTable(in inspection) func(*tabwriter.Writer) {
	return func(w *tabwriter.Writer) {
		if in.DeviceInfo != nil {
			fmt.Fprintf(w, "%s\n", in.DeviceInfo)
		}
		if len(in.Facts) > 0 {
			rows := [][]string{{"KEY", "VALUE", "SOURCE"}}
			for _, f := range in.Facts {
				rows = append(rows, []string{f.Key, f.Value, f.Source})
			}
			for _, line := range fit(rows, t.width()) {
				fmt.Fprintln(w, line)
			}
		}
		if in.Shared {
			fmt.Fprintln(w, "\nThe device is not the interface's alone: others use it too.")
		}
		if in.Problem != "" {
			fmt.Fprintln(w, t.paint(red, "problem")+": "+printable(in.Problem))
		}
		for _, warning := range in.Warnings {
			fmt.Fprintln(w, t.paint(yellow, "warning")+": "+printable(warning))
		}
	}
}

// nearest gives at most three of the words that look most like name.
func nearest(name string, words []string) (near []string) {
	words = slices.Clone(words)
	for len(near) < 3 && len(words) > 0 {
		w := config.Nearest(name, words)
		near = append(near, w)
		words = slices.DeleteFunc(words, func(other string) bool { return other == w })
	}
	return near
}
