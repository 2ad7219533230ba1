// Package capture writes a description of a host as one text file for package capturefile: the network devices
// in /sys, their netlink attributes, and the files in which the plugin records its attachments. It only reads,
// and runs no other program.
//
// A capture is attached to bug reports. It contains only the fields of records that commands read, and
// [Source.Scrub] renames data that identifies the owner of the machine.
package capture

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/host/capturefile"
)

// A Source describes the host to capture.
type Source struct {
	Title string // the first line, without the name: "ConnectX-6 with 8 VFs, Linux 6.12.1"
	Name  string // name of the machine: lower-case letters, digits and "-"
	Sys   fs.FS  // the tree below /sys
	Root  string // root directory of the host; "" = /
	State State
	Facts map[string]any // node/NAME.json by NAME, such as live, which devinfoctl doctor reads

	// Parts returns the content of the files below netlink/ by name, such as "ip-link.json". They include the
	// interfaces of the network namespaces at the given paths.
	Parts func(netns []string) (parts map[string][]byte, notes []string, err error)

	Scrub   bool     // rename what identifies the machine's owner
	Secrets []string // further texts to rename, such as serial numbers
}

// State is node/node.json: the node settings, the boot, and the program that captured.
type State struct {
	BootID   string      `json:"bootID"`
	Time     time.Time   `json:"time"` // time of the capture
	Settings config.Node `json:"settings"`
	Build    build.Info  `json:"build,omitzero"`     // build of the program that captured
	ClaimDir string      `json:"claimDir,omitempty"` // directory of cni-dra-driver's records
}

// Take captures a host. An unchanged host gives the same text again. What the user may not read, and records that are
// corrupt, are missing from the text and listed in the notes, which are in the text too; any other error of a read ends
// the capture.
func Take(h Source) (text []byte, notes []string, err error) {
	var s *scrubber
	if h.Scrub {
		s = newScrubber(h.Secrets)
	}
	files := &files{root: h.Root, scrub: s, netns: map[string]bool{}, seen: map[string]bool{}}
	files.capture(h.State.ClaimDir, h.State.Settings)
	parts, notes, err := h.Parts(slices.Sorted(maps.Keys(files.netns)))
	sys, denied, sysErr := Sys(h.Sys)
	if err = cmp.Or(err, sysErr); err != nil {
		return nil, nil, err
	}
	a := &archive{title: h.Title, notes: append(files.notes, notes...)}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		a.add("netlink/"+name, parts[name])
	}
	a.addJSON(itself, h.State)
	for _, name := range slices.Sorted(maps.Keys(h.Facts)) {
		a.addJSON("node/"+name+".json", h.Facts[name])
	}
	if denied > 0 {
		a.notes = append(a.notes, fmt.Sprintf("%d attributes in /sys may be read by root only", denied))
	}
	a.entries = slices.Concat(a.entries, files.entries, sys)
	if s != nil {
		a.scrub(s)
	}
	text, err = a.text(h.Name)
	return text, a.notes, err
}

// itself is the entry of a capture that describes the capture.
const itself = "node/node.json"

// archive is the content of a capture before it is formatted as text.
type archive struct {
	title   string
	notes   []string     // missing data, with reasons
	entries []txtar.File // the name of a link is "name -> target"
}

func (a *archive) add(name string, data []byte) {
	a.entries = append(a.entries, txtar.File{Name: name, Data: data})
}

// addJSON adds an entry that is empty if it cannot be encoded, which text finds.
func (a *archive) addJSON(name string, value any) {
	data, _ := json.MarshalIndent(value, "", "  ")
	a.add(name, append(data, '\n'))
}

func (a *archive) scrub(s *scrubber) {
	all, contents := []*string{&a.title}, make([]string, len(a.entries))
	for n := range a.notes {
		all = append(all, &a.notes[n])
	}
	for n := range a.entries {
		contents[n] = string(a.entries[n].Data)
		all = append(all, &a.entries[n].Name, &contents[n])
	}
	s.scrub(all)
	for n := range a.entries {
		a.entries[n].Data = []byte(contents[n])
	}
	slices.SortStableFunc(a.entries, byName)
}

func (a *archive) text(name string) ([]byte, error) {
	comment := name + ": " + a.title + "\n"
	for _, n := range a.notes {
		comment += "Missing: " + strings.ReplaceAll(n, "\n", " ") + "\n"
	}
	ar := &txtar.Archive{Comment: []byte(comment)}
	for _, f := range a.entries {
		if strings.HasPrefix(f.Name, "root/") && !strings.Contains(f.Name, toTarget) && !plain(f.Data) {
			f.Name += " base64"
			f.Data = []byte(base64.StdEncoding.EncodeToString(f.Data) + "\n")
		}
		ar.Files = append(ar.Files, f)
	}
	text := txtar.Format(ar)
	if _, err := capturefile.Parse(text); err != nil {
		return nil, fmt.Errorf("cannot read back the capture just made: %w", err)
	}
	return text, nil
}

// plain reports whether txtar preserves data. The data must be text without carriage returns and NUL bytes that
// ends in a newline, and no line may begin like the header of an entry.
func plain(data []byte) bool {
	return utf8.Valid(data) && bytes.HasSuffix(data, []byte("\n")) && !bytes.HasPrefix(data, []byte("-- ")) &&
		!bytes.Contains(data, []byte("\n-- ")) && !bytes.ContainsAny(data, "\r\x00")
}

func Machine() (name, release string) {
	var uts unix.Utsname
	_ = unix.Uname(&uts) // it fails only for a wrong address
	return unix.ByteSliceToString(uts.Nodename[:]), unix.ByteSliceToString(uts.Release[:])
}

// notInNames matches characters that the name of a captured host must not contain, because a file has this name.
var notInNames = regexp.MustCompile(`[^a-z0-9-]+`)

// Name converts a machine's name to a Host.Name.
func Name(machine string) string { return notInNames.ReplaceAllString(strings.ToLower(machine), "-") }

// Secrets returns the names and serial numbers of this machine, its mainboard and its chassis, as far as they
// are readable, for [Source.Secrets].
func Secrets(sysfs string) []string {
	name, _ := Machine()
	short, _, _ := strings.Cut(name, ".")
	secrets, dmi := []string{name, short}, filepath.Join(sysfs, "class/dmi/id")
	for _, file := range []string{"/etc/machine-id", dmi + "/product_serial", dmi + "/product_uuid", dmi + "/board_serial", dmi + "/chassis_serial"} {
		data, _ := os.ReadFile(file)
		secrets = append(secrets, strings.TrimSpace(string(data)))
	}
	return secrets
}

// State returns the capture's own state. A capture without one has the default settings.
func (c Captured) State() (State, error) {
	s := State{Settings: config.DefaultNode()}
	if data := c.Host.File(itself); data != nil {
		if err := json.Unmarshal(data, &s); err != nil {
			return s, fmt.Errorf("%s: %w", itself, err)
		}
	}
	return s, nil
}

// Described splits the first line of a capture: "node1: a NIC, Linux 6.12".
func (c Captured) Described() (name, note, release string) {
	first, _, _ := strings.Cut(c.Host.Comment, "\n")
	name, note, _ = strings.Cut(first, ": ")
	note, release, _ = strings.Cut(note, ", Linux ")
	return name, note, release
}
