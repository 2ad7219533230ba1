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
	notes = append(files.notes, notes...)
	if denied > 0 {
		notes = append(notes, fmt.Sprintf("%d attributes in /sys may be read by root only", denied))
	}
	var entries []txtar.File
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		entries = append(entries, txtar.File{Name: "netlink/" + name, Data: parts[name]})
	}
	entries = append(entries, encoded(itself, h.State))
	for _, name := range slices.Sorted(maps.Keys(h.Facts)) {
		entries = append(entries, encoded("node/"+name+".json", h.Facts[name]))
	}
	entries, about := slices.Concat(entries, files.entries, sys), h.Title+"\n"
	for _, n := range notes {
		about += "Missing: " + strings.ReplaceAll(n, "\n", " ") + "\n"
	}
	if s != nil {
		s.scrub(&about, entries)
	}
	text, err = format(h.Name+": "+about, entries)
	return text, notes, err
}

// itself is the entry of a capture that describes the capture.
const itself = "node/node.json"

// encoded returns an entry in JSON. It is empty if the value cannot be encoded, which format finds.
func encoded(name string, value any) txtar.File {
	data, _ := json.MarshalIndent(value, "", "  ")
	return txtar.File{Name: name, Data: append(data, '\n')}
}

func format(comment string, entries []txtar.File) ([]byte, error) {
	for n := range entries {
		f := &entries[n]
		if strings.HasPrefix(f.Name, "root/") && !strings.Contains(f.Name, toTarget) && !plain(f.Data) {
			f.Name += " base64"
			f.Data = []byte(base64.StdEncoding.EncodeToString(f.Data) + "\n")
		}
	}
	text := txtar.Format(&txtar.Archive{Comment: []byte(comment), Files: entries})
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

// StateOf returns a capture's own state. A capture without one has the default settings.
func StateOf(h *capturefile.Host) (State, error) {
	s := State{Settings: config.DefaultNode()}
	if data := h.File(itself); data != nil {
		if err := json.Unmarshal(data, &s); err != nil {
			return s, fmt.Errorf("%s: %w", itself, err)
		}
	}
	return s, nil
}

// Described splits the first line of a capture: "node1: a NIC, Linux 6.12".
func Described(h *capturefile.Host) (name, note, release string) {
	first, _, _ := strings.Cut(h.Comment, "\n")
	name, note, _ = strings.Cut(first, ": ")
	note, release, _ = strings.Cut(note, ", Linux ")
	return name, note, release
}
