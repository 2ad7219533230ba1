// Package capture writes a host as one text file for package hosttxt: the network devices
// in /sys, what netlink says of them, and the files by which the plugin knows its
// attachments. It only reads, and needs no other program.
//
// A capture is meant to be shown to others: Scrub removes what identifies the machine's
// owner.
package capture

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/hosttxt"
)

// A Source is what is to be captured.
type Source struct {
	Title string // the first line, without the name: "ConnectX-6 with 8 VFs, Linux 6.12.1"
	Name  string // of the machine: lower-case letters, digits and "-"
	Sys   fs.FS  // the tree below /sys
	Links Links
	Root  string // where the host's / is; "" = /
	State State
	Live  []byte // node/live.json, which devinfoctl doctor reads; nil = none
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

// An Archive is a captured host before it is text.
type Archive struct {
	name, title string
	claims      string       // the directory of claims' records, as an entry has it; "" = none
	notes       []string     // what is missing, and why
	entries     []txtar.File // that of a link is "name -> target"; data may be anything
}

// Take captures the host. What we lack permission to read is left out with a note; anything
// else that cannot be read is an error.
func Take(h Source) (*Archive, error) {
	a := &Archive{name: h.Name, title: h.Title}
	if h.State.ClaimDir != "" {
		a.claims = inArchive(h.State.ClaimDir)
	}
	files := a.files(h)
	parts, notes, err := h.Links.Parts(files.netns)
	if err != nil {
		return nil, err
	}
	a.notes = append(a.notes, notes...)
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		a.add("netlink/"+name, parts[name])
	}
	state, err := json.MarshalIndent(h.State, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", itself, err)
	}
	a.add(itself, append(state, '\n'))
	if h.Live != nil {
		a.add(live, h.Live)
	}
	a.entries = append(a.entries, files.entries...)
	sys, denied, err := Sys(h.Sys)
	if err != nil {
		return nil, err
	}
	if denied > 0 {
		a.note("%d attributes in /sys may be read by root only", denied)
	}
	a.entries = append(a.entries, sys...)
	return a, nil
}

// The parts of a capture that are not the kernel's: what it says of itself, and what only the node
// could tell.
const (
	itself = "node/node.json"
	live   = "node/live.json"
)

func (a *Archive) add(name string, data []byte) {
	a.entries = append(a.entries, txtar.File{Name: name, Data: data})
}

func (a *Archive) note(format string, args ...any) {
	a.notes = append(a.notes, fmt.Sprintf(format, args...))
}

// Notes says what is missing from the capture.
func (a *Archive) Notes() []string { return a.notes }

// Text returns the file's content. The same host gives the same text.
func (a *Archive) Text() ([]byte, error) {
	comment := a.name + ": " + a.title + "\n"
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
	if _, err := hosttxt.Parse(text); err != nil {
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
