package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/output"
)

const gcHelp = `Removes stale attachments: the network namespace no longer exists, or the attachment is from an
earlier boot. Like the plugin's GC, it runs the delegates' DEL in reverse order, and removes the
device-info file, the CDI spec and the journal entry. If a step fails, gc continues with the next
one and keeps the entry. Then it sweeps files of killed plugins that no attachment owns, such as
temporary files. devinfo-agent does the same every few minutes.

Run it on the node itself, because network namespaces of the node may be invisible in a container
and would count as missing. gc skips attachments whose network namespace exists, even if ADD is
incomplete. It keeps entries that cannot be read or judged, and shows them.

Container runtimes that call GC (CNI 1.1.0) do the same by themselves.

With --claim, gc only ends the leases of a ResourceClaim. Use it on a node from which
cni-dra-driver was removed, where such a lease makes ADD of other pods fail with error 104. gc
refuses while cni-dra-driver has a record of the claim.

Exits with 1 if --dry-run finds something to remove, with 3 if --yes could not remove
everything, or if an entry is kept because it cannot be read or judged.`

func gcCommand(t *tool) *cobra.Command {
	var dryRun, yes bool
	var claim string
	cmd := &cobra.Command{
		Use:   "gc --dry-run|--yes",
		Short: "remove stale attachments, whose network namespace no longer exists",
		Long:  gcHelp,
		Example: `  devinfoctl gc --dry-run
  devinfoctl gc --yes
  devinfoctl gc --yes --cni-path /opt/cni/bin:/usr/lib/cni
  devinfoctl gc --claim 0d3f9a52-5f0c-4f6c-9d7e-3a1c5b7e9f01 --yes`,
		PreRunE: func(*cobra.Command, []string) error {
			if dryRun == yes {
				return clierr.Misuse("give --dry-run to see what would be removed, or --yes to remove it", "gc: one of --dry-run and --yes is needed")
			}
			return nil
		},
		RunE: t.onHost(func(cmd *cobra.Command, h *host, _ []string) error {
			if yes && h.captured != "" {
				return clierr.Misuse("leave --capture out, and run it on the node itself", "gc --yes: %s is a capture and cannot be changed", h.captured)
			}
			if claim != "" {
				return t.endLeases(h, claim, yes)
			}
			return t.gc(cmd.Context(), h, yes)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be removed")
	cmd.Flags().BoolVar(&yes, "yes", false, "remove it")
	cmd.Flags().StringVar(&claim, "claim", "", "end the leases of the ResourceClaim with this `UID`, and do nothing else")
	t.cniPathFlag(cmd)
	return cmd
}

func (t *tool) cniPathFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.cniPath, "cni-path", "", "`directories` of the CNI plugins, separated by colons (default $CNI_PATH, else the existing ones of /opt/cni/bin and the directories of K3s, OpenShift and MicroK8s)")
}

// pluginDirs returns the value of --cni-path or its default.
func (t *tool) pluginDirs() string {
	usual, _ := doctor.UsualDirs("")
	return cmp.Or(t.cniPath, os.Getenv("CNI_PATH"), strings.Join(usual, string(os.PathListSeparator)))
}

func (t *tool) gc(ctx context.Context, h *host, remove bool) error {
	found, err := h.Garbage()
	if err != nil {
		return err
	}
	var done cleanup.Garbage
	if remove {
		c := cleanup.New(h.Settings, *h.Finder, h.BootID, slog.New(slog.NewTextHandler(t.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
		c.CNIPath = t.pluginDirs()
		done, err = c.CollectStale(ctx, true, func(context.Context) {})
		err = cmp.Or(err, ctx.Err())
	}
	printed := t.print(found, !remove && len(found.Stale) > 0, func(w *bytes.Buffer) {
		for _, a := range found.Stale {
			fmt.Fprintln(w, output.Cell(a.Short()+": "+a.Why))
		}
		for _, a := range found.Kept {
			fmt.Fprintln(w, output.Cell(a.Short()+": kept: "+a.Why))
		}
		switch {
		case remove:
			fmt.Fprintf(w, "removed %s and %s\n", count(done.Collected, "attachment"), count(done.Swept, "leftover file"))
		case len(found.Stale) == 0:
			fmt.Fprintln(w, "nothing to remove")
		}
	})
	switch {
	case err != nil:
		return clierr.For(fmt.Errorf("gc: %w", err), "fix the errors, and run it again")
	case printed == nil && len(found.Kept) > 0:
		return clierr.For(errors.New("gc: entries that cannot be read or judged were kept"), "devinfoctl check shows why, each with its remedy")
	}
	return printed
}

func (t *tool) endLeases(h *host, uid string, remove bool) error {
	list, err := h.LeasesOf(uid)
	if err != nil {
		return err
	}
	ends := "would end"
	if remove {
		ends = "ended"
		for n := range list {
			if err = h.EndLeases(&list[n]); err != nil {
				list = list[:n]
				break
			}
		}
	}
	return cmp.Or(err, t.print(map[string]any{"claims": list}, !remove && len(list) > 0, func(w *bytes.Buffer) {
		for _, l := range list {
			fmt.Fprintln(w, output.Cell("claim "+cmp.Or(l.Claim, uid)+": "+ends+" the leases of "+strings.Join(l.Devices, ", ")))
		}
		if len(list) == 0 && err == nil {
			fmt.Fprintf(w, "claim %s has no leases\n", output.Cell(uid))
		}
	}))
}
