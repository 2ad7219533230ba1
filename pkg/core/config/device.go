package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A DeviceKey is a value in a delegate's configuration that names a device of the node.
type DeviceKey struct {
	Key   string // its path: "delegates[0].runtimeConfig.deviceID"
	As    As
	Value string
}

// As is how a delegate reads the name of a device.
type As string

// Each kind of name is a key of host-device, in lower case. Most plugins use only AsID.
const (
	AsID         As = "deviceid"   // also pciBusID: a PCI address, or the name of an auxiliary or vDPA device
	AsInterface  As = "device"     // an interface in the plugin's network namespace, or its alternative name
	AsMAC        As = "hwaddr"     // the MAC address of such an interface
	AsKernelPath As = "kernelpath" // a directory of sysfs with interfaces
)

// DelegateDevices returns the devices that a delegate's configuration and the runtimeConfig for it name, also in the
// configurations of the delegate's own delegates. Keys match in any letter case, as in encoding/json. The problem is not
// nil if other parsers could read another device: if two keys of one object, at any depth, differ only in letter case, or
// if a name is also a path. Equal keys are no problem, because libcni passes on only the last.
func DelegateDevices(key string, raw json.RawMessage, runtime map[string]json.RawMessage) ([]DeviceKey, *Problem) {
	s := scan{text: raw, path: []string{key}}
	if json.Valid(raw) { // Parse has read the text, but an entry of the journal may be damaged
		s.value("", inDelegates)
	}
	for key, value := range runtime {
		if text := ""; strings.EqualFold(key, "deviceID") && json.Unmarshal(value, &text) == nil { // for a delegate with the capability
			s.add(DeviceKey{"runtimeConfig." + key, AsID, text})
		}
	}
	return s.devices, s.problem
}

// Problem returns the problem of a name that is not as wanted.
func (d DeviceKey) Problem(want string) *Problem {
	return &Problem{d.Key, clip(fmt.Appendf(nil, "%q", d.Value)), want}
}

// Ambiguous returns the problem of a name that a delegate could read as another one, or nil.
func (d DeviceKey) Ambiguous() *Problem {
	want := ""
	switch {
	case d.As == AsKernelPath && (strings.ContainsFunc(d.Value, unicode.IsControl) || !strings.HasPrefix(path.Clean(d.Value), "/sys/")):
		want = "the directory of a device below /sys/devices"
	case d.As != AsKernelPath && (d.Value == "." || d.Value == ".." || strings.Contains(d.Value, "/") || strings.ContainsFunc(d.Value, blank)):
		want = `a name without "/", blanks and control characters`
	default:
		return nil
	}
	return d.Problem(want)
}

func blank(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// A scan reads the tokens of a delegate's configuration, which is valid JSON. [json.Decoder] takes ten times as long, and
// a configuration may have megabytes.
type scan struct {
	text    []byte
	pos     int      // of the next token
	path    []string // keys around the current value
	devices []DeviceKey
	problem *Problem // the first one
}

type place int

const (
	elsewhere   place = iota
	inDelegates       // the configuration of a plugin, or a list of them
	inRuntime         // its runtimeConfig
)

// below returns the place of the value of a folded key, and how a text there names a device; "" = it does not.
func (p place) below(key string) (place, As) {
	if p == elsewhere {
		return elsewhere, ""
	}
	switch key = strings.ToLower(key); {
	case key == "deviceid", key == "pcibusid" && p == inDelegates:
		return elsewhere, AsID
	case p == inRuntime:
	case key == "runtimeconfig":
		return inRuntime, ""
	case key == "delegate", key == "delegates", key == "plugins":
		return inDelegates, ""
	case key == string(AsInterface), key == string(AsMAC), key == string(AsKernelPath):
		return elsewhere, As(key)
	}
	return elsewhere, ""
}

func (s *scan) key() string { return clip([]byte(strings.Join(s.path, "."))) }

func (s *scan) add(d DeviceKey) {
	if d.Value == "" {
		return
	}
	s.devices = append(s.devices, d)
	if s.problem == nil {
		s.problem = d.Ambiguous()
	}
}

func (s *scan) value(as As, at place) {
	s.more(0)
	switch s.text[s.pos] {
	case '{':
		s.pos++
		s.object(at)
	case '[':
		s.pos++
		for s.more(']') {
			s.value("", at)
		}
	case '"':
		if text := s.quoted(); as != "" {
			s.add(DeviceKey{s.key(), as, unquoted(text)})
		}
	default:
		for s.pos < len(s.text) && strings.IndexByte(blanks+"]}", s.text[s.pos]) < 0 {
			s.pos++
		}
	}
}

func (s *scan) object(at place) {
	seen := map[string]string{}
	for s.more('}') {
		key := unquoted(s.quoted())
		s.path = append(s.path, key)
		folded := fold(key)
		if other, ok := seen[folded]; ok && other != key && s.problem == nil {
			s.problem = &Problem{s.key(), fmt.Sprintf("beside %q", clip([]byte(other))), "one of the two keys: other parsers ignore the letter case"}
		}
		seen[folded] = key
		below, as := at.below(folded)
		s.value(as, below)
		s.path = s.path[:len(s.path)-1]
	}
}

const blanks = " \t\r\n,:" // between tokens

// more skips what is between tokens, and end. It returns false for end.
func (s *scan) more(end byte) bool {
	for strings.IndexByte(blanks, s.text[s.pos]) >= 0 {
		s.pos++
	}
	if s.text[s.pos] != end {
		return true
	}
	s.pos++
	return false
}

// quoted skips a string and returns it with its quotes.
func (s *scan) quoted() []byte {
	_, end := NextString(s.text[s.pos:])
	s.pos += end
	return s.text[s.pos-end : s.pos]
}

func unquoted(text []byte) (s string) {
	if inside := text[1 : len(text)-1]; bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return string(inside)
	}
	_ = json.Unmarshal(text, &s) // is valid
	return s
}

// fold returns the same text for all keys that encoding/json takes for the same field.
func fold(key string) string {
	return strings.Map(func(r rune) rune {
		for next := unicode.SimpleFold(r); ; next = unicode.SimpleFold(r) {
			if next <= r {
				return next
			}
			r = next
		}
	}, key)
}
