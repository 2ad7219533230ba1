package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/node"
)

const gcHelp = `Removes stale attachments: the network namespace no longer exists, or the attachment is from an
earlier boot. Like the plugin's GC, it runs the delegates' DEL in reverse order, and removes the
device-info file, the CDI spec and the journal entry. If a step fails, gc continues with the next
one and keeps the entry. Then it sweeps files of killed plugins that no attachment owns, such as
temporary files.

Run it on the node itself, because network namespaces of the node may be invisible in a container
and would count as missing. gc skips attachments whose network namespace exists, even if ADD is
incomplete, and entries that cannot be read. It shows files in the device-info directory that no
attachment owns, and keeps them, because other plugins write to that directory too.

Container runtimes that call GC (CNI 1.1.0) do the same by themselves.

With --claim, gc only ends the leases of a ResourceClaim. Use it on a node from which
cni-dra-driver was removed, where such a lease makes ADD of other pods fail with error 104. gc
refuses while cni-dra-driver has a record of the claim.

Exits with 1 if --dry-run finds something to remove, with 3 if --yes could not remove
everything.`

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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun == yes {
				return clierr.Misuse("give --dry-run to see what would be removed, or --yes to remove it", "gc: one of --dry-run and --yes is needed")
			}
			h, err := t.host()
			if err != nil {
				return err
			}
			if yes && h.captured != "" {
				return clierr.Misuse("leave --capture out, and run it on the node itself", "gc --yes: %s is a capture and cannot be changed", h.captured)
			}
			if claim != "" {
				return t.endLeases(h, claim, yes)
			}
			return t.gc(cmd.Context(), h, yes)
		},
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
	g, err := h.Garbage()
	if err != nil {
		return err
	}
	failed := false
	if remove {
		failed = t.collect(ctx, h, g.Stale)
	}
	if err := t.print(g, func(w io.Writer) { garbageTable(w, g) }); err != nil {
		return err
	}
	return collected(failed, remove, len(g.Stale))
}

// collected returns the error of a gc that has printed its findings.
func collected(failed, remove bool, found int) error {
	switch {
	case failed:
		return clierr.For(errors.New("gc: not everything could be removed"), "fix the errors above, and run it again")
	case !remove && found > 0:
		return clierr.ErrFound
	}
	return nil
}

func (t *tool) endLeases(h *host, uid string, remove bool) error {
	list, err := h.LeasesOf(uid)
	if err != nil {
		return err
	}
	failed := false
	for n := range list {
		if remove && h.EndLeases(&list[n]) != nil {
			failed = true
		}
	}
	if err := t.print(map[string]any{"claims": list}, func(w io.Writer) { leasesTable(w, uid, list) }); err != nil {
		return err
	}
	return collected(failed, remove, len(list))
}

func leasesTable(w io.Writer, uid string, list []node.ClaimLeases) {
	if len(list) == 0 {
		fmt.Fprintf(w, "claim %s has no leases\n", printable(uid))
	}
	for _, l := range list {
		ended, removed := "would end", "would remove"
		switch {
		case l.Ended:
			ended, removed = "ended", "removed"
		case l.Error != "":
			ended, removed = "may be left", "not removed"
		}
		fmt.Fprintf(w, "claim %s\n", printable(cmp.Or(l.Claim, uid)))
		for _, d := range l.Devices {
			fmt.Fprintf(w, "  %s: lease of %s\n", ended, printable(d))
		}
		fmt.Fprintf(w, "  %s: %s\n", removed, printable(l.Record))
		say(w, "  ", "error", l.Error)
	}
}

// collect removes stale attachments and records each result. It checks each attachment again first, because a
// runtime may have added it again. Finally it removes leftover files of killed calls of the plugin.
func (t *tool) collect(ctx context.Context, h *host, stale []node.Stale) (failed bool) {
	log := slog.New(slog.NewTextHandler(t.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c := cleanup.New(h.Settings, h.Finder.Sys, h.BootID, log)
	c.CNIPath = t.pluginDirs()
	for n := range stale {
		o := &stale[n]
		err := ctx.Err()
		if err == nil {
			err = h.Collect(o, func(e *journal.Entry) (bool, error) {
				done, err := c.Collect(e.Key, e, nil)
				return done, failure.Translate(err)
			})
		}
		if err != nil {
			o.Error, failed = err.Error(), true
		}
		o.Left = slices.DeleteFunc(slices.Clone(o.Files), func(f string) bool { return !h.FileThere(f) })
	}
	if err := c.Sweep(func() {}); err != nil {
		t.warn("sweep: %v", failure.Translate(err))
		failed = true
	}
	return failed
}

func garbageTable(w io.Writer, g *node.Garbage) {
	for _, o := range g.Stale {
		made, file, left := "would remove", "would remove", "not removed"
		switch {
		case o.Removed:
			made, file = "removed", "removed"
		case o.Error != "":
			made, file = "may be left", "removed"
		}
		fmt.Fprintf(w, "%s: %s\n", printable(o.Title), printable(o.Why))
		for _, d := range o.Delegates {
			fmt.Fprintf(w, "  %s: results of delegate %s\n", made, printable(d))
		}
		for _, f := range o.Files {
			verb := file
			if slices.Contains(o.Left, f) {
				verb = left
			}
			fmt.Fprintf(w, "  %s: %s\n", verb, printable(f))
		}
		say(w, "  ", "error", o.Error)
	}
	if len(g.Stale) == 0 {
		fmt.Fprintln(w, "nothing to remove")
	}
	for _, o := range g.Skipped {
		fmt.Fprintf(w, "%s: kept: %s\n", printable(o.Title), printable(o.Why))
	}
	for _, path := range g.Unowned {
		fmt.Fprintf(w, "%s: kept: no attachment owns it; another plugin may use it\n", printable(path))
	}
}
