package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/audit"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/verify"
)

const doctorHelp = `Examines the whole node, and says what is wrong and what to do about it, one answer to a
line:

  attachments  the journal, the claims, the files, the namespaces and the devices agree
  files        each device-info file is an attachment's
  holders      no VF is held by two pods, nor by a device plugin and DRA
  leftovers    a VF that nobody holds has no VLAN, trust or MAC that a pod left
  addresses    no two VFs have the same MAC
  drivers      each VF and vDPA device has a driver
  plugin       the devinfo plugin is installed, of this program's build, and as
               devinfo-agent put it there
  settings     the node settings can be used, and are as devinfo-agent put them there
  networks     the network configurations with devinfo on this node are right: order,
               versions, capabilities
  directories  those of CNI and CDI are there
  runtime      the container runtime offers NRI

"sight" says what could not be checked. It runs the configured plugins with
CNI_COMMAND=VERSION, which changes nothing. A captured host is examined as it was.

Exits with 1 if there is an error; warnings do not count.`

const doctorExample = `  devinfoctl doctor
  devinfoctl doctor -o json | jq '.[] | select(.level == "error")'
  devinfoctl --host node.txtar doctor`

// placeFlags are for commands that examine the plugin's surroundings.
func placeFlags(cmd *cobra.Command, p *doctor.Places, cniPath *string) {
	*p = doctor.DefaultPlaces()
	cniPathFlag(cmd, cniPath)
	cmd.Flags().StringVar(&p.ConfDir, "cni-conf-dir", p.ConfDir, "`directory` of CNI's network configurations")
	cmd.Flags().StringVar(&p.NRISocket, "nri-socket", p.NRISocket, "NRI `socket` of the container runtime")
	cmd.Flags().StringVar(&p.PodResources, "pod-resources", p.PodResources, "`socket` by which the kubelet tells of devices")
	cmd.Flags().StringVar(&p.SRIOVLocks, "sriov-locks", p.SRIOVLocks, "`directory` of sriov-cni's locks")
}

func doctorCommand(t *tool) *cobra.Command {
	var places doctor.Places
	var cniPath string
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "what is wrong on the node, and what to do about it",
		Long:    doctorHelp,
		Example: doctorExample,
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t.tolerant = true
			h, err := t.host()
			if err != nil {
				return err
			}
			places.PluginDirs, places.NodeConfig = filepath.SplitList(cniPathOr(cniPath)), t.settingsPath()
			f, err := t.facts(cmd.Context(), h, places)
			if err != nil {
				return err
			}
			return t.diagnose(f)
		},
	}
	placeFlags(cmd, &places, &cniPath)
	return cmd
}

func (t *tool) diagnose(f *doctor.Facts) error {
	answers := doctor.Diagnose(f)
	err := t.print(answers, func(w *tabwriter.Writer) {
		for _, a := range answers {
			line := a.Text
			if a.Remedy != "" {
				line += ". Remedy: " + a.Remedy
			}
			level := fmt.Sprintf("%-7s", a.Level)
			fmt.Fprintf(w, "%s  %-11s  %s\n", t.paint(levelColours()[a.Level], level), a.Check, printable(line))
		}
	})
	if err == nil && doctor.Worst(answers) == doctor.Error {
		return errFound
	}
	return err
}

func levelColours() map[doctor.Level]colour {
	return map[doctor.Level]colour{doctor.OK: green, doctor.Unknown: yellow, doctor.Warning: yellow, doctor.Error: red}
}

// facts gathers all that the doctor looks at.
func (t *tool) facts(ctx context.Context, h *host, places doctor.Places) (*doctor.Facts, error) {
	list, err := h.attachments()
	if err != nil {
		return nil, err
	}
	f := &doctor.Facts{CDIDir: h.node.CDIDir, DRA: h.fileThere(h.claimDir), NodeFile: t.nodeProblem, NodeConfig: places.NodeConfig, Own: h.build}
	for _, a := range list {
		f.Attachments = append(f.Attachments, h.patient(a))
	}
	if f.Unclaimed, err = h.unclaimed(); err != nil {
		return nil, err
	}
	if f.Stale, err = h.stale(); err != nil {
		return nil, err
	}
	if f.Live, err = h.live(ctx, places); err != nil {
		return nil, err
	}
	if err := h.devicesOf(f); err != nil {
		return nil, err
	}
	f.Networks = checkedNetworks(f.Live)
	return f, nil
}

// patient is an attachment as the doctor sees it.
func (h *host) patient(a attachment) doctor.Attachment {
	c := h.compare(a)
	p := doctor.Attachment{
		Name: a.String(), Pod: a.Pod, Claim: a.Claim, Device: a.Device, Netns: a.Netns, State: string(a.State), Why: cmp.Or(c.Problem, a.Why), Remedy: c.Remedy,
		Left: a.State == audit.NetnsGone || a.State == audit.Orphan || a.State == audit.Abandoned,
	}
	switch {
	case c.Problem != "":
		p.Level = doctor.Error
	case len(c.Warnings) > 0 && a.State == audit.OK:
		p.Level, p.Why, p.Remedy = doctor.Warning, c.Warnings[0], "devinfoctl check "+a.String()+" explains it"
	case a.State == audit.OK:
		p.Level = doctor.OK
	case a.State == audit.Unknown:
		p.Level, p.Remedy = doctor.Unknown, "run as root, and not in a container"
	default:
		p.Level = doctor.Info
	}
	return p
}

// stale are the claims on files whose attachment has no entry any more.
func (h *host) stale() (paths []string, err error) {
	dir := filepath.Join(h.node.StateDir, "files")
	entries, err := os.ReadDir(h.path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, h.journalError(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		to, err := os.Readlink(h.path(path))
		if err == nil && !h.fileThere(filepath.Join(dir, to)) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// devicesOf adds VFs and vDPA devices, with what netlink says of their settings.
func (h *host) devicesOf(f *doctor.Facts) error {
	functions, err := h.sys.Functions()
	if err != nil {
		return err
	}
	for _, fn := range functions {
		if fn.PF == nil {
			continue
		}
		vf := doctor.VF{Address: fn.Address.String(), PF: fn.PF.String(), Driver: fn.Driver}
		index, ok, err := h.sys.VFIndex(*fn.PF, fn.Address)
		if err != nil {
			return err
		}
		if ok && f.Live != nil {
			vf.VFSettings = f.Live.VFs[fmt.Sprintf("%s/%d", vf.PF, index)]
		}
		f.VFs = append(f.VFs, vf)
	}
	vdpas, err := h.sys.VDPAs()
	for _, v := range vdpas {
		f.VDPAs = append(f.VDPAs, doctor.VDPA{Name: v.Name, Driver: v.Driver})
	}
	return err
}

// live asks the node, or the capture.
func (h *host) live(ctx context.Context, places doctor.Places) (*doctor.Live, error) {
	if h.file == nil {
		places.CDIDir, places.Sysfs = h.node.CDIDir, h.node.Sysfs
		return doctor.Gather(ctx, places, h.netnsGone), nil
	}
	data := h.file.File("node/live.json")
	if data == nil {
		return nil, nil
	}
	l := new(doctor.Live)
	if err := json.Unmarshal(data, l); err != nil {
		return nil, blind(fmt.Errorf("--host: %s: node/live.json: %w", h.captured, err), "capture the host again: devinfoctl capture -o FILE.txtar")
	}
	return l, nil
}

// checkedNetworks are the network configurations, with all that is wrong in them.
func checkedNetworks(l *doctor.Live) (list []doctor.Network) {
	if l == nil {
		return nil
	}
	checker := verify.Checker{Plugin: pluginName, Versions: func(plugin string) []string { return l.Plugins[plugin].CNIVersions }}
	for _, c := range l.Networks {
		n := doctor.Network{Path: c.Path}
		report, err := checker.Check(c.Text, verify.CNIConfig)
		if err != nil { // the kind is given
			continue
		}
		for _, f := range report.Findings {
			n.Findings = append(n.Findings, doctor.Finding{Text: findingText(f), Warning: f.Warning})
		}
		list = append(list, n)
	}
	return list
}
