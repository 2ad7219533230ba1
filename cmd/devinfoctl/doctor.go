package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/finding"
	"devinfo-cni.io/pkg/ctl/output"
)

var doctorHelp = `Examines the whole node. Problems come first, each with its remedy. A check passes if

` + doctor.Checks() + `
It says nothing if there is nothing to check, or if it could not read everything that tells. The
check "sight" lists what could not be read, and "cards" how devinfo was tried on NICs like those of
this node. doctor runs the configured plugins with CNI_COMMAND=VERSION, which changes nothing. A
capture is examined as of its time.

A level is error, warning, unknown, info or ok. Exits with 1 if there is an error; warnings do not
count.`

const podResources = "/var/lib/kubelet/pod-resources/kubelet.sock"

func (t *tool) placeFlags(cmd *cobra.Command, p *doctor.Paths) {
	t.cniPathFlag(cmd)
	cmd.Flags().StringVar(&p.ConfDir, "cni-conf-dir", "", "`directory` of CNI's network configurations (default /etc/cni/net.d, or the directory of K3s, OpenShift or MicroK8s)")
	cmd.Flags().StringVar(&p.NRISocket, "nri-socket", "/var/run/nri/nri.sock", "NRI `socket` of the container runtime")
	cmd.Flags().StringVar(&p.PodResources, "pod-resources", podResources, "`socket` of the kubelet's pod resources API")
	cmd.Flags().StringVar(&p.SRIOVLocks, "sriov-locks", journal.SRIOVLocks, "`directory` of sriov-cni's locks")
}

func doctorCommand(t *tool) *cobra.Command {
	var paths doctor.Paths
	var problems bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "find problems of the node, with remedies",
		Long:  doctorHelp,
		Example: `  devinfoctl doctor
  devinfoctl doctor --problems
  devinfoctl doctor -o json | jq '.answers[] | select(.level == "error")'
  devinfoctl --capture node.txtar doctor`,
		PreRun: func(*cobra.Command, []string) { t.tolerant = true },
		RunE: t.onHost(func(cmd *cobra.Command, h *host, _ []string) error {
			e, err := h.evidence(t.live(cmd.Context(), h, paths))
			if err != nil {
				return err
			}
			e.NodeFile, e.Asking = t.nodeProblem, h.build
			return t.diagnose(doctor.Diagnose(e), problems)
		}),
	}
	cmd.Flags().BoolVar(&problems, "problems", false, "print only problems, and what could not be checked")
	t.placeFlags(cmd, &paths)
	return cmd
}

func (t *tool) diagnose(findings []doctor.Finding, problems bool) error {
	if problems {
		findings = slices.DeleteFunc(findings, func(f doctor.Finding) bool { return f.Level == finding.OK || f.Level == finding.Info })
	}
	colours := map[finding.Level]string{}
	if t.output == "table" && commandline.IsTerminal(t.raw) && os.Getenv("NO_COLOR") == "" {
		colours = map[finding.Level]string{finding.Error: "\x1b[31m", finding.Warning: "\x1b[33m"} // SGR (ECMA-48)
		t.stdout = t.raw                                                                           // all texts below are printable
	}
	found := slices.ContainsFunc(findings, func(a doctor.Finding) bool { return a.Level == finding.Error })
	return t.print(map[string]any{"answers": findings}, found, func(w *bytes.Buffer) {
		for _, f := range findings {
			level := fmt.Sprintf("%-7s", f.Level)
			if colour := colours[f.Level]; colour != "" {
				level = colour + level + "\x1b[0m"
			}
			fmt.Fprintf(w, "%s  %-11s  %s\n", level, f.Check, output.Cell(f.Text))
			if f.Remedy != "" {
				fmt.Fprintf(w, "  Remedy: %s\n\n", output.Cell(f.Remedy))
			}
		}
		if len(findings) == 0 {
			fmt.Fprintln(w, "no problem")
		}
	})
}

// live returns the live facts of this node or of the capture.
func (t *tool) live(ctx context.Context, h *host, paths doctor.Paths) (*doctor.Live, error) {
	paths.Settings, paths.PluginDirs = h.Settings, filepath.SplitList(t.pluginDirs())
	if paths.ConfDir == "" {
		_, paths.ConfDir = doctor.UsualDirs("")
	}
	return h.live(func() *doctor.Live { return doctor.Gather(ctx, paths, h.NetnsGone) })
}

// evidence returns what doctor examines, with the result of live.
func (h *host) evidence(live *doctor.Live, err error) (*doctor.Evidence, error) {
	devices, devicesErr := h.devices()
	if err = cmp.Or(err, devicesErr); err != nil {
		return nil, err
	}
	return doctor.EvidenceOf(h.Node, devices, live)
}

// live returns the live facts of the capture, or those that gather reads on this node.
func (h *host) live(gather func() *doctor.Live) (*doctor.Live, error) {
	if h.file == nil {
		l := gather()
		l.DriverAway = h.DriverAway()
		return l, nil
	}
	data := h.file.File("node/live.json")
	if data == nil {
		return doctor.NoLive(), nil
	}
	l := new(doctor.Live)
	if err := json.Unmarshal(data, l); err != nil {
		return doctor.NoLive(), clierr.For(fmt.Errorf("--capture: %s: node/live.json: %w", h.captured, err), "capture the host again: devinfoctl capture -o FILE.txtar")
	}
	return l, nil
}
