package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/output"
	"devinfo-cni.io/pkg/ctl/topology"
)

const topologyHelp = `Shows the network devices of the node: PFs, their VFs and SFs, the vDPA and RDMA
devices on them, their interfaces, their representors (in switchdev mode), and the attachments
that use them. "held" is an exclusive lease, "shared" a shared lease, and "named" no lease.

If cni-dra-driver offers devices of the node, topology shows for each its name in the
ResourceSlice, its sharing, and the claim that holds it. For a device that a rule names and that
is not offered, it shows the reason. To see the effect of changed rules, run
cni-dra-driver inventory.

topology shows the interfaces of this network namespace only. For an interface that was moved into
a pod it shows the device and the attachment that holds it. Without root it shows no attachments,
and may show a wrong eswitch mode.

DEVICE limits the tree to one device, its parents and its children. It is a PCI address, an
interface, a representor, an RDMA or vDPA device, or a socket.`

func topologyCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:   "topology [DEVICE]",
		Short: "show the network devices of the node and their holders",
		Long:  topologyHelp,
		Example: `  devinfoctl topology
  devinfoctl topology 0000:3b:00.0
  devinfoctl --capture node.txtar topology -o json`,
		Args: commandline.Args(0, "DEVICE"), ValidArgsFunction: t.complete(false),
		RunE: t.onHost(t.topology),
	}
}

func (t *tool) topology(_ *cobra.Command, h *host, args []string) error {
	held, err := t.held(h)
	if err != nil {
		return err
	}
	offer, _, err := t.offer(h)
	if err != nil && !errors.Is(err, fs.ErrPermission) { // held has printed this warning
		t.warn("%v", err)
	}
	if offer.Problem != "" {
		t.warn("cni-dra-driver offers nothing: %s", offer.Problem)
	}
	devices, err := h.devices()
	if err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	top, err := topology.Read(devices, offer.Devices, held)
	if err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	if len(args) > 0 && !top.Only(view.Named(args[0])) {
		return clierr.For(fmt.Errorf("topology: no device %s", args[0]), cmp.Or(view.Misspelt(args[0]), "devinfoctl topology shows all; one that is in a pod is found by its PCI address"))
	}
	return t.print(top, false, func(w *bytes.Buffer) { // JSON and YAML contain the warnings
		w.WriteString(top.Tree())
		for _, warning := range top.Warnings {
			t.warn("%s", warning)
		}
	})
}

// held returns the attachments of the journal and of claims. If they cannot be read, it prints a warning. The tree
// shows the devices anyway.
func (t *tool) held(h *host) ([]node.Attachment, error) {
	list, err := h.Attachments()
	if errors.Is(err, fs.ErrPermission) {
		t.warn("the attachments are unknown: %v", err)
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	for _, a := range list {
		if a.Unread() {
			t.warn("%s", a.Why)
		}
	}
	more, err := h.Holds()
	return append(more, list...), err
}

// offer returns the offer of cni-dra-driver, without devices if there is none. If the driver does not run, it offers none, and
// offer prints a warning.
func (t *tool) offer(h *host) (o *state.Offer, away bool, err error) {
	o, err = h.Offer()
	live, awayErr := h.live(func() *doctor.Live { return new(doctor.Live) })
	away = live.DriverAway
	if away && o != nil && o.Problem == "" {
		t.warn(doctor.DriverAway)
		o = nil
	}
	return cmp.Or(o, new(state.Offer)), away, cmp.Or(err, awayErr)
}

const offeredHelp = `Lists the devices of the node that rules of cni-dra-driver name: as what each is offered to
claims, which pods have it by one, and why another is not offered. doctor names the rules that
name no device; topology shows all devices.`

func offeredCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use: "offered", Short: "what cni-dra-driver offers of the node, to whom it is given, and why the rest is not", Long: offeredHelp,
		Example: "  devinfoctl offered\n  devinfoctl offered -o json",
		RunE: t.onHost(func(_ *cobra.Command, h *host, _ []string) error {
			offer, away, err := t.offer(h)
			list, listErr := h.Offered(offer)
			if err = cmp.Or(err, listErr); err != nil {
				return err
			}
			err = t.print(map[string]any{"devices": list}, false, func(w *bytes.Buffer) {
				switch {
				case !h.FileThere(h.ClaimDir):
					fmt.Fprintf(w, "%s does not exist: either cni-dra-driver has never run on this node, or the kubelet's directory is a different one; then give the driver's state directory with --dra-state-dir\n", h.ClaimDir)
					return
				case len(list) == 0:
					none := "cni-dra-driver offers no devices of this node"
					if !away && offer.Problem == "" {
						none += ", only the shared device cni, for networks that need no device"
					}
					fmt.Fprintln(w, none)
					for _, idle := range offer.Unmatched {
						fmt.Fprintln(w, output.Cell(offer.Rules+": "+idle.String()))
					}
					return
				}
				rows := [][]string{{"DEVICE", "KIND", "WHERE", "OFFERED", "GIVEN TO", "WHY NOT"}}
				for _, d := range list {
					sharing := d.Sharing
					if d.Why != "" {
						sharing = "no"
					}
					rows = append(rows, []string{d.Name, string(d.Kind), d.Where, sharing, strings.Join(d.GivenTo, ", "), d.Why})
				}
				_ = output.Rows(w, rows)
			})
			if err == nil && offer.Problem != "" {
				err = &clierr.Error{Err: errors.New("cni-dra-driver: " + offer.Problem), Remedy: doctor.CorrectRules, Code: clierr.Found}
			}
			return err
		}),
	}
}
