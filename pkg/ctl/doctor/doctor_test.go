package doctor_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/finding"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// vf returns a VF without a holder.
func vf(function string, s settings.VF) doctor.VF {
	pf := settings.VFRecord{PF: "0000:03:00.0", PFName: "ens1", VF: s}
	return doctor.VF{Address: "0000:03:00." + function, PFDriver: "ice", VFRecord: pf}
}

func live(change func(l *doctor.Live)) *doctor.Live {
	build := build.Info{Revision: "0123456789abcdef"}
	l := &doctor.Live{NRI: true, Plugins: map[string]doctor.Plugin{"devinfo": {Path: "/opt/cni/bin/devinfo", Build: build}}, PluginDirs: []string{"/opt/cni/bin"}, Networks: []doctor.Network{{Path: "/etc/cni/net.d/10.conflist"}}}
	if change != nil {
		change(l)
	}
	return l
}

// evidence is the input of doctor in an archive, with what commands do not print of attachments and claims.
type evidence struct {
	doctor.Evidence
	OfferError string
	Devices    []struct {
		hostdev.Device
		Parent string // name of a device above
	}
	Attachments []struct {
		node.Attachment
		Has     []string
		Verdict node.Comparison
	}
	Unrecorded []struct {
		node.ClaimLeases
		Has                  []string
		Netns, Driver, Aside string
	}
}

// parsed reads evidence. A node differs from a healthy one by the live facts that the text has.
func parsed(t *testing.T, text []byte) *doctor.Evidence {
	t.Helper()
	e := evidence{Evidence: doctor.Evidence{Live: live(nil)}}
	difftest.Must(t, yaml.UnmarshalStrict(text, &e))
	if e.Live == nil {
		e.Live = doctor.NoLive()
	}
	if e.OfferError != "" {
		e.Evidence.OfferError = errors.New(e.OfferError)
	}
	at := map[string]*hostdev.Device{}
	for n := range e.Devices {
		d := &e.Devices[n].Device
		d.At, d.Parent = d.Place(), at[e.Devices[n].Parent]
		at[d.At.Name] = d
		e.Evidence.Devices = append(e.Evidence.Devices, d)
	}
	for _, v := range e.VFs {
		if at[v.Address] == nil {
			d := &hostdev.Device{Ref: hostdev.Ref{Kind: hostdev.VF, PCI: v.Address}, Driver: "vfio-pci"}
			d.At = d.Place()
			e.Evidence.Devices = append(e.Evidence.Devices, d)
		}
	}
	for _, a := range e.Attachments {
		a.Attachment.Has, a.Attachment.Verdict = a.Has, &a.Verdict
		e.Evidence.Attachments = append(e.Evidence.Attachments, a.Attachment)
	}
	for _, c := range e.Unrecorded {
		c.ClaimLeases.Has, c.ClaimLeases.Driver, c.ClaimLeases.Aside, c.Of = c.Has, c.Driver, c.Aside, &journal.Claim{UID: "u1", Netns: c.Netns}
		e.Evidence.Unrecorded = append(e.Evidence.Unrecorded, c.ClaimLeases)
	}
	return &e.Evidence
}

func TestDefectsAreReportedWithRemedy(t *testing.T) {
	goldentest.Archives(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		healthy := map[string]string{} // the finding of each check on the first node
		for pair := range slices.Chunk(archive.Files, 2) {
			var text strings.Builder
			silent := maps.Clone(healthy)
			e := parsed(t, pair[0].Data)
			for _, f := range doctor.Diagnose(e) {
				delete(silent, f.Check)
				line := fmt.Sprintf("%s %s: %s\n", f.Level, f.Check, f.Text)
				if f.Remedy != "" {
					line += "  Remedy: " + f.Remedy + "\n"
				} else if f.Level == finding.Error || f.Level == finding.Warning {
					t.Errorf("%s: no remedy for %q", pair[0].Name, f.Text)
				}
				if healthy[f.Check] != line {
					text.WriteString(line)
				}
				if pair[0].Name == archive.Files[0].Name {
					healthy[f.Check] = line
				}
			}
			for _, check := range slices.Sorted(maps.Keys(silent)) {
				text.WriteString("nothing of " + check + "\n")
			}
			for _, d := range e.Devices {
				for _, why := range e.Unusable(d.At.Name) {
					fmt.Fprintf(&text, "inspect %s: %s\n", d.At.Name, why)
				}
			}
			goldentest.Section(t, &pair[1], text.String())
		}
	})
}
