package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/remedy"
)

const captureHelp = `Writes this host to one text file that devinfoctl --host and the tests read: its
network devices in /sys, what netlink says of them and of the pods' interfaces, the
journal, the device-info files and the CDI specs of attachments, the records of
cni-dra-driver, and what doctor asks: settings of VFs, devices of pods, the versions of
the CNI plugins, and the parts of network configurations that concern devinfo. Only root
sees all of it; standard error and the file say what is missing.

Of the journal and of the records of cni-dra-driver the file has the fields that the
commands read: no configuration of a delegate, which may hold keys, and nothing of a
corrupt record. It shows hardware and IP addresses, and names of pods. --scrub renames
hardware addresses (wherever and however they are written), IP addresses, names,
namespaces and UIDs of pods, names of claims, the host's name and serial numbers, all of
them consistently. Names of networks, interfaces and paths stay: look through the file
before you publish it.

With --host it writes an earlier capture anew, for example to scrub it.`

func captureCommand(t *tool) *cobra.Command {
	var c captureFlags
	cmd := &cobra.Command{
		Use:   "capture -o FILE.txtar",
		Short: "write the host into a file, for a problem report",
		Long:  captureHelp,
		Example: `  devinfoctl capture --scrub -o node.txtar
  devinfoctl capture --name rack7 --note 'ConnectX-6, 8 VFs, switchdev' -o rack7.txtar
  devinfoctl --host rack7.txtar capture --scrub -o public.txtar
  devinfoctl capture -o - | less`,
		Args: commandline.Args(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.output == "" {
				return remedy.Misuse("name the file, or - for standard output", "capture: -o is missing")
			}
			return t.capture(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVarP(&c.output, "output", "o", "", "the `file` to write; - is standard output")
	cmd.Flags().BoolVar(&c.scrub, "scrub", false, "rename addresses, pods, serial numbers and the host")
	cmd.Flags().StringVar(&c.name, "name", "", "what to call the machine (default: its host name, with --scrub \"host\")")
	cmd.Flags().StringVar(&c.note, "note", "", "what the machine is, for the first line")
	t.placeFlags(cmd, &c.places)
	_ = cmd.MarkFlagFilename("output", "txtar")
	return cmd
}

type captureFlags struct {
	output, name, note string
	scrub              bool
	places             doctor.Places
}

func (t *tool) capture(ctx context.Context, c captureFlags) error {
	h, err := t.host()
	if err != nil {
		return err
	}
	source := h.captureSource(c)
	live, err := t.live(ctx, h, c.places)
	if err != nil {
		return err
	}
	if live != nil {
		for _, note := range live.Notes {
			t.warn("missing: %s", note.Text)
		}
		if source.Live, err = json.MarshalIndent(live, "", "  "); err != nil {
			return fmt.Errorf("capture: %w", err)
		}
		source.Live = append(source.Live, '\n')
	}
	text, notes, err := capture.Take(source)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	for _, note := range notes {
		t.warn("missing: %s", note)
	}
	return t.save(c.output, text)
}

func (h *host) captureSource(c captureFlags) capture.Source {
	name, release := capture.Machine()
	note := "captured by devinfoctl"
	source := capture.Source{
		Sys:   h.Sys.Files(),
		Root:  h.Root,
		Parts: capture.KernelParts,
		State: capture.State{BootID: h.BootID, Time: h.now.UTC(), Settings: h.Settings, ClaimDir: h.ClaimDir, Build: h.build},
		Scrub: c.scrub,
	}
	if h.file == nil {
		source.Secrets = capture.Secrets(h.Settings.Sysfs)
	} else {
		captured := capture.Captured{Host: h.file}
		source.Parts = captured.Parts
		name, note, release = captured.Described()
		source.Secrets = []string{name} // no text of a captured host has others
	}
	if c.scrub {
		name = "host"
	}
	source.Name = capture.Name(cmp.Or(c.name, name))
	source.Title = strings.ReplaceAll(cmp.Or(c.note, note), "\n", " ")
	if release != "" {
		source.Title += ", Linux " + release
	}
	return source
}

// save writes a file that only its owner may read, all of it or nothing.
func (t *tool) save(name string, text []byte) error {
	if name == "-" {
		_, err := t.stdout.Write(text)
		return err
	}
	if stat, err := os.Stat(name); err == nil && !stat.Mode().IsRegular() {
		return remedy.Misuse("name a file", "capture: %s exists and is not a file", name)
	}
	temp, err := os.CreateTemp(filepath.Dir(name), ".devinfoctl-*")
	if err != nil {
		return remedy.For(fmt.Errorf("capture: %w", err), "name a file in a directory that exists and that you may write to")
	}
	defer os.Remove(temp.Name()) // it is gone when all went well
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}
