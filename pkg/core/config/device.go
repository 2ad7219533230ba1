package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode"
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
	s := scan{Decoder: json.NewDecoder(bytes.NewReader(raw)), path: []string{key}}
	s.UseNumber()
	s.value("", inDelegates)
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

// problem returns the problem of a name that a delegate could read as another one.
func (d DeviceKey) problem() *Problem {
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

// A scan reads the tokens of a delegate's configuration.
type scan struct {
	*json.Decoder
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

// below returns the place of a key's value, and how a text there names a device; "" = it does not.
func (p place) below(key string) (place, As) {
	switch key = strings.ToLower(fold(key)); {
	case p == elsewhere:
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
		s.problem = d.problem()
	}
}

func (s *scan) value(as As, at place) {
	token, _ := s.Token() // Parse has read the text
	switch text, is := token.(string); {
	case token == json.Delim('{'):
		s.object(at)
	case token == json.Delim('['):
		for s.More() {
			s.value("", at)
		}
		_, _ = s.Token()
	case is && as != "":
		s.add(DeviceKey{s.key(), as, text})
	}
}

func (s *scan) object(at place) {
	seen := map[string]string{}
	for s.More() {
		token, _ := s.Token()
		key, _ := token.(string)
		s.path = append(s.path, key)
		folded := fold(key)
		if other, ok := seen[folded]; ok && other != key && s.problem == nil {
			s.problem = &Problem{s.key(), fmt.Sprintf("beside %q", clip([]byte(other))), "one of the two keys: other parsers ignore the letter case"}
		}
		seen[folded] = key
		below, as := at.below(key)
		s.value(as, below)
		s.path = s.path[:len(s.path)-1]
	}
	_, _ = s.Token()
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
