package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/output"
	"devinfo-cni.io/pkg/host/link"
)

const inspectHelp = `Shows the device information that ADD would write for a device, and the source of each fact. It ignores existing device-info files.

DEVICE is a PCI address (03:00.5 is 0000:03:00.5), an auxiliary device (an SF), a vDPA device, a
network interface, or an RDMA device, which stands for its parent device. With --netns it is an
interface in that network namespace. For a macvlan, ipvlan or vlan interface inspect shows the
device of the lower interface, as ADD does with the key followLower.

For a VF, SF or vDPA device that no pod has it also says why the next pod could not use it, as
doctor does for all of them.

Except in a capture, the source of a representor also names the one that sriovnet finds.
OVN-Kubernetes, ovs-cni and the SR-IOV operators use sriovnet.

Exits with 1 if ADD could not describe the device.`

func inspectCommand(t *tool) *cobra.Command {
	var s node.Subject
	cmd := &cobra.Command{
		Use:   "inspect DEVICE",
		Short: "show the device information that ADD would write, with the source of each fact",
		Long:  inspectHelp,
		Example: `  devinfoctl inspect 0000:3b:02.1
  devinfoctl inspect vdpa0 -o json
  devinfoctl inspect mlx5_core.sf.4 --subfunction-parent
  devinfoctl inspect net1 --netns /var/run/netns/cni-5f0d2c9a
  devinfoctl --capture node.txtar inspect ens1f0v2`,
		Args: commandline.Args(1, "DEVICE"), ValidArgsFunction: t.complete(false),
		RunE: t.onHost(func(cmd *cobra.Command, h *host, args []string) error {
			s.Name = args[0]
			if s.Netns != "" && !strings.Contains(s.Netns, "/") { // a name, as for ip -n
				s.Netns = "/run/netns/" + s.Netns
			}
			return t.inspect(cmd.Context(), h, s)
		}),
	}
	cmd.Flags().StringVar(&s.Netns, "netns", "", "network namespace that the interface is in, by `path`, or by the name that ip -n takes")
	cmd.Flags().BoolVar(&s.SubfunctionParent, "subfunction-parent", false, "let the parent function stand for an SF")
	return cmd
}

func (t *tool) inspect(ctx context.Context, h *host, s node.Subject) error {
	in, err := h.Inspect(s)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return h.asRoot(err, "run as root")
	case errors.Is(err, link.ErrNoNetns):
		return clierr.For(err, "devinfoctl list -o json has the network namespace of each attachment")
	case err != nil:
		return err
	}
	if s.Netns == "" && in.Problem == "" {
		if in.Unusable, err = h.unusable(ctx, in.Name); err != nil {
			in.Warnings = append(in.Warnings, fmt.Sprintf("cannot tell whether the next pod could use it: %v", err))
		}
	}
	return t.print(in, in.Problem != "", func(w *bytes.Buffer) {
		if in.DeviceInfo != nil {
			fmt.Fprintf(w, "%s\n", in.DeviceInfo)
		}
		if len(in.Facts) > 0 {
			rows := [][]string{{"KEY", "VALUE", "SOURCE"}}
			for _, f := range in.Facts {
				rows = append(rows, []string{f.Key, f.Value, f.Source})
			}
			_ = output.Rows(w, rows)
		}
		if in.Shared {
			fmt.Fprintln(w, "\nOther interfaces use the device too.")
		}
		say(w, "", "problem", in.Problem)
		say(w, "", "warning", in.Warnings...)
		say(w, "", "the next pod could not use it", in.Unusable...)
	})
}

// unusable returns why the next pod could not use a free device. On a node it returns nothing if the kubelet does not say who has it.
func (h *host) unusable(ctx context.Context, device string) (why []string, err error) {
	live, err := h.live(func() *doctor.Live {
		l := new(doctor.Live)
		l.GatherDevices(ctx, doctor.Paths{Settings: h.Settings, PodResources: podResources, SRIOVLocks: journal.SRIOVLocks}, h.NetnsGone)
		return l
	})
	if h.file == nil && !live.Kubelet {
		return nil, nil
	}
	e, err := h.evidence(live, err)
	if err != nil {
		return nil, err
	}
	return e.Unusable(device), nil
}
