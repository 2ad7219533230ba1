package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

const offeredHelp = `Lists the devices of the node that rules of cni-dra-driver name: as what each is offered to
claims, which pods have it by one, and why another is not offered. doctor names the rules that
name no device; topology shows all devices.`

func offeredCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use: "offered", Short: "what cni-dra-driver offers of the node, to whom it is given, and why the rest is not", Long: offeredHelp,
		Example: "  devinfoctl offered\n  devinfoctl offered -o json",
		RunE: t.onHost(func(h *host, _ []string) error {
			offer, err := h.Offer()
			if err != nil {
				return err
			}
			list, err := h.Offered(offer)
			if err != nil {
				return err
			}
			err = t.print(map[string]any{"devices": list}, func(w io.Writer) {
				switch {
				case !h.FileThere(h.ClaimDir):
					fmt.Fprintf(w, "there is no %s: cni-dra-driver has not run on this node, or its state is elsewhere, below the kubelet's directory (--dra-state-dir)\n", h.ClaimDir)
					return
				case len(list) == 0:
					fmt.Fprintln(w, "cni-dra-driver offers no devices of this node")
					if offer != nil {
						for _, idle := range offer.Idle {
							fmt.Fprintln(w, printable(offer.Rules+": "+idle.String()))
						}
					}
					return
				}
				rows := [][]string{{"DEVICE", "KIND", "WHERE", "AS", "GIVEN TO", "WHY NOT"}}
				for _, d := range list {
					as := d.As
					if d.Why != "" {
						as = "no"
					}
					rows = append(rows, []string{d.Name, string(d.Kind), d.Where, as, strings.Join(d.GivenTo, ", "), d.Why})
				}
				t.printRows(w, rows)
			})
			return cmp.Or(err, checkOffer(offer))
		}),
	}
}
