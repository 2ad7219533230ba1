// Package capture writes a host as one text file for package capturefile: the network devices
// in /sys, what netlink says of them, and the files by which the plugin knows its
// attachments. It only reads, and needs no other program.
//
// A capture is attached to bug reports: of the records of plugin and driver it has only the fields
// that commands read, and [Source.Scrub] renames what identifies the machine's owner.
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

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/capturefile"
	"devinfo-cni.io/pkg/config"
)

// A Source is what is to be captured.
type Source struct {
	Title string // the first line, without the name: "ConnectX-6 with 8 VFs, Linux 6.12.1"
	Name  string // of the machine, or what to call it: lower-case letters, digits and "-"
	Sys   fs.FS  // the tree below /sys
	Root  string // where the host's / is; "" = /
	State State
	Live  any // node/live.json, which devinfoctl doctor reads; nil = none

	// Parts returns the parts below netlink/ by name, such as "ip-link.json". They include the
	// interfaces of the network namespaces at the given paths.
	Parts func(netns []string) (parts map[string][]byte, notes []string, err error)

	Scrub   bool     // rename what identifies the machine's owner
	Secrets []string // what else to rename then, such as serial numbers
}

// State is node/node.json: the settings that the plugin uses on the host, its boot, and the
// program that captured it.
type State struct {
	BootID   string      `json:"bootID"`
	Time     time.Time   `json:"time"` // of the capture
	Settings config.Node `json:"settings"`
	Build    build.Info  `json:"build,omitzero"`     // of the program that captured
	ClaimDir string      `json:"claimDir,omitempty"` // of cni-dra-driver's records
}

// Take captures the host as a text. The same host gives the same text. The notes, which are in the
// text too, say what is missing: what we lack permission to read, and corrupt records. Anything
// else that cannot be read is an error.
func Take(h Source) (text []byte, notes []string, err error) {
	var s *scrubber
	if h.Scrub {
		s = newScrubber(h.Secrets)
	}
	files := &files{root: h.Root, scrub: s, seen: map[string]bool{}}
	files.capture(h.State.ClaimDir, h.State.Settings)
	parts, notes, err := h.Parts(files.netns)
	if err != nil {
		return nil, nil, err
	}
	a := &archive{title: h.Title, notes: append(files.notes, notes...)}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		a.add("netlink/"+name, parts[name])
	}
	err = a.addJSON(itself, h.State)
	if h.Live != nil {
		err = cmp.Or(err, a.addJSON("node/live.json", h.Live))
	}
	if err != nil {
		return nil, nil, err
	}
	a.entries = append(a.entries, files.entries...)
	sys, denied, err := Sys(h.Sys)
	if err != nil {
		return nil, nil, err
	}
	if denied > 0 {
		a.notes = append(a.notes, fmt.Sprintf("%d attributes in /sys may be read by root only", denied))
	}
	a.entries = append(a.entries, sys...)
	if s != nil {
		a.scrub(s)
	}
	text, err = a.text(h.Name)
	return text, a.notes, err
}

// itself is what a capture says of itself.
const itself = "node/node.json"

// archive is a captured host before it is text.
type archive struct {
	title   string
	notes   []string     // what is missing, and why
	entries []txtar.File // that of a link is "name -> target"; data may be anything
}

func (a *archive) add(name string, data []byte) {
	a.entries = append(a.entries, txtar.File{Name: name, Data: data})
}

func (a *archive) addJSON(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	a.add(name, append(data, '\n'))
	return nil
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
		if strings.HasPrefix(f.Name, "root/") && !isLink(f) && !plain(f.Data) {
			f.Name += " base64"
			f.Data = []byte(base64.StdEncoding.EncodeToString(f.Data) + "\n")
		}
		ar.Files = append(ar.Files, f)
	}
	text := txtar.Format(ar)
	if _, err := capturefile.Parse(text); err != nil {
		return nil, fmt.Errorf("the capture cannot be read again: %w", err)
	}
	return text, nil
}

func isLink(f txtar.File) bool { return strings.Contains(f.Name, toTarget) }

// plain reports whether an archive gives data back unchanged: text of whole lines, none of
// which looks like the start of an entry.
func plain(data []byte) bool {
	return utf8.Valid(data) && bytes.HasSuffix(data, []byte("\n")) && !bytes.HasPrefix(data, []byte("-- ")) &&
		!bytes.Contains(data, []byte("\n-- ")) && !bytes.ContainsAny(data, "\r\x00")
}

// Machine gives this machine's name and its kernel's release.
func Machine() (name, release string) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "host", ""
	}
	return unix.ByteSliceToString(uts.Nodename[:]), unix.ByteSliceToString(uts.Release[:])
}

// notInNames matches what the name of a captured host must not contain: it is also a file's.
var notInNames = regexp.MustCompile(`[^a-z0-9-]+`)

// Name makes a Host.Name of what a machine is called.
func Name(machine string) string { return notInNames.ReplaceAllString(strings.ToLower(machine), "-") }

// Secrets are this machine's own names and numbers, its mainboard's and its chassis's, as far
// as we may read them, for [Source.Secrets]. The sysfs is where /sys is.
func Secrets(sysfs string) []string {
	name, _ := Machine()
	short, _, _ := strings.Cut(name, ".")
	secrets := []string{name, short}
	files := []string{"/etc/machine-id"}
	for _, file := range []string{"product_serial", "product_uuid", "board_serial", "chassis_serial"} {
		files = append(files, filepath.Join(sysfs, "class/dmi/id", file))
	}
	for _, file := range files {
		data, _ := os.ReadFile(file)
		secrets = append(secrets, strings.TrimSpace(string(data)))
	}
	return secrets
}

// State is what the capture says of itself; one that does not has the default settings.
func (c Captured) State() (State, error) {
	s := State{Settings: config.DefaultNode()}
	if data := c.Host.File(itself); data != nil {
		if err := json.Unmarshal(data, &s); err != nil {
			return s, fmt.Errorf("%s: %w", itself, err)
		}
	}
	return s, nil
}

// Described takes the first line of a captured host apart: "node1: a NIC, Linux 6.12".
func (c Captured) Described() (name, note, release string) {
	first, _, _ := strings.Cut(c.Host.Comment, "\n")
	name, note, _ = strings.Cut(first, ": ")
	note, release, _ = strings.Cut(note, ", Linux ")
	return name, note, release
}
