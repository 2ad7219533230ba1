package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/store"
)

const captureHelp = `Writes a description of this machine, a capture, to one text file. devinfoctl --capture and
the project's tests read it. A capture contains

  - the network devices in /sys, their netlink attributes, and the interfaces of pods
  - the journal, the device-info files, the CDI specs and the records of cni-dra-driver
  - the input of doctor: settings of VFs, devices of pods, versions of the CNI plugins, and mistakes
    in network configurations, but not the configurations

Run it as root. Otherwise parts are missing; standard error and the file list them, and the exit
code is 3.

Journal entries and records of cni-dra-driver are reduced to the fields that the commands read.
Configurations of delegates, which may contain keys, and corrupt records are left out. A capture
contains hardware addresses, IP addresses and names of pods. --scrub renames hardware addresses
in any notation, IP addresses, names, namespaces and UIDs of pods, names of claims, the host's
name and serial numbers. It renames them consistently, also in the paths of sockets. It keeps the
names of networks and interfaces and all other paths, so read the file before you publish it.

An existing file is overwritten only if it is empty or a capture.

With --capture it writes that capture again, for example to scrub it.`

func captureCommand(t *tool) *cobra.Command {
	var source capture.Source
	var paths doctor.Paths
	var output string
	cmd := &cobra.Command{
		Use:   "capture -o FILE.txtar",
		Short: "write a description of the machine to a file, for a problem report",
		Long:  captureHelp,
		Example: `  devinfoctl capture --scrub -o node.txtar
  devinfoctl capture --name rack7 --note 'ConnectX-6, 8 VFs, switchdev' -o rack7.txtar
  devinfoctl --capture rack7.txtar capture --scrub -o public.txtar
  devinfoctl capture -o - | less`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "" {
				return clierr.Misuse("name the file, or - for standard output", "capture: -o is missing")
			}
			return t.capture(cmd.Context(), source, paths, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `file` to write; - is standard output")
	cmd.Flags().BoolVar(&source.Scrub, "scrub", false, "rename addresses, pods, serial numbers and the host")
	cmd.Flags().StringVar(&source.Name, "name", "", "name of the machine in the capture (default: its host name; with --scrub: host)")
	cmd.Flags().StringVar(&source.Title, "note", "", "description of the machine, for the first line of the capture")
	t.placeFlags(cmd, &paths)
	_ = cmd.MarkFlagFilename("output", "txtar")
	return cmd
}

func (t *tool) capture(ctx context.Context, source capture.Source, paths doctor.Paths, output string) error {
	h, err := t.host()
	if err != nil {
		return err
	}
	h.describe(&source)
	live, err := t.live(ctx, h, paths)
	if err != nil {
		return err
	}
	var missing []string
	if !live.None {
		source.Facts = map[string]any{"live": live}
	}
	for _, note := range live.Notes {
		missing = append(missing, note.Text)
	}
	text, notes, err := capture.Take(source)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	if missing = append(missing, notes...); h.file != nil { // the first capture lacks the same
		missing = nil
	}
	for _, note := range missing {
		t.warn("missing: %s", note)
	}
	if err := t.save(output, text); err != nil || len(missing) == 0 {
		return err
	}
	return clierr.For(fmt.Errorf("capture: %s could not be read, so the capture is incomplete", count(len(missing), "part")), "run it as root on the node itself")
}

// describe adds the machine's name and kernel to the flags.
func (h *host) describe(s *capture.Source) {
	name, release := capture.Machine()
	note := "captured by devinfoctl"
	s.Sys, s.Root, s.Parts = h.Finder.Sys.Files(), h.Root, capture.KernelParts
	s.State = capture.State{BootID: h.BootID, Time: h.now.UTC(), Settings: h.Settings, ClaimDir: h.ClaimDir, Build: h.build}
	if h.file == nil {
		s.Secrets = capture.Secrets(h.Settings.Sysfs)
	} else {
		s.Parts = func([]string) (map[string][]byte, []string, error) { return h.file.Netlink(), nil, nil }
		name, note, release = capture.Described(h.file)
		s.Secrets = []string{name} // serial numbers of this machine do not occur in a capture
	}
	if s.Scrub {
		name = "host"
	}
	s.Name = capture.Name(cmp.Or(s.Name, name))
	s.Title = strings.ReplaceAll(cmp.Or(s.Title, note), "\n", " ")
	if release != "" {
		s.Title += ", Linux " + release
	}
}

// save writes a file atomically, with permissions for its owner only.
func (t *tool) save(name string, text []byte) error {
	if name == "-" {
		_, err := t.raw.Write(text)
		return err
	}
	if stat, err := os.Stat(name); err == nil && (!stat.Mode().IsRegular() || stat.Size() > 0) {
		if _, err := capturefile.Load(name); err != nil {
			return clierr.Misuse("name another file", "capture: %s exists and is not a capture", name)
		}
	}
	file, err := store.Replace(filepath.Dir(name), name, func(temp *os.File) error {
		_, err := temp.Write(text)
		return err
	})
	if err != nil {
		return clierr.For(fmt.Errorf("capture: %w", err), "name a file in a directory that exists and that you may write to")
	}
	return file.Close()
}
