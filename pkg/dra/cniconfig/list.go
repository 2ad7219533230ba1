package cniconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
)

// maxName limits the name of a network, in bytes: with a sandbox ID and an interface
// name it is part of file names, which have at most 255.
const maxName = 128

// list makes a configuration list of the key "config" of decoded parameters, or returns all that is
// wrong. Bytes is the list without white space; a single plugin becomes the one entry of a list.
func list(config json.RawMessage) (*libcni.NetworkConfigList, refusals) {
	var wrong refusals
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(config, &fields) // it is an object: see decode
	_, single := fields["type"]
	_, many := fields["plugins"]
	const remedy = "give a plugin, or a list of plugins"
	switch {
	case single && many:
		wrong.add("config", `config has both "type" and "plugins"`, remedy)
		return nil, wrong
	case single:
		wrapped := map[string]any{"plugins": []json.RawMessage{config}}
		for _, key := range []string{"cniVersion", "name"} {
			if v, ok := fields[key]; ok {
				wrapped[key] = v
			}
		}
		config, _ = json.Marshal(wrapped)
	case !many:
		wrong.add("config", `config has neither "type" nor "plugins"`, remedy)
		return nil, wrong
	}
	var text bytes.Buffer
	_ = json.Compact(&text, config)
	l, err := libcni.ConfListFromBytes(text.Bytes())
	if err != nil {
		wrong.add("config", fmt.Sprintf("config: %v", err), "write it as CNI SPEC.md section 1 has it; in YAML, quote versions")
		return nil, wrong
	}
	// What libcni lets pass, and ADD or DEL would fail with.
	if err := utils.ValidateNetworkName(l.Name); err != nil || len(l.Name) > maxName {
		wrong.add("config.name", fmt.Sprintf("config.name %s is not a network name", quote(l.Name)),
			fmt.Sprintf(`use letters, digits, "_", "." and "-", at most %d, with a letter or digit first`, maxName))
	}
	if known := version.All.SupportedVersions(); !slices.Contains(known, l.CNIVersion) {
		wrong.add("config.cniVersion", fmt.Sprintf("config.cniVersion %s is not known", quote(l.CNIVersion)), "use one of "+strings.Join(known, ", "))
	}
	for n, plugin := range l.Plugins {
		if name := plugin.Network.Type; name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			at := fmt.Sprintf("config.plugins[%d].type", n)
			wrong.add(at, fmt.Sprintf("%s %s is not a file name", at, quote(name)), "name a CNI plugin, without a directory")
		}
	}
	return l, wrong
}

// maxIfName is IFNAMSIZ without the NUL (include/uapi/linux/if.h), in bytes.
const maxIfName = 15

// indexMark is the part of an ifName that stands for a number: see [numbering].
const indexMark = "{index}"

// numbering counts the interfaces of a claim by ifName with indexMark. The requests of a claim are counted
// together, because the scheduler makes one request, of the same class, for each container with a limit of
// an extended resource, and nobody can give these requests an ifName of their own.
type numbering map[string]int

// next returns the name of the next interface with this ifName. The first one has number 0.
func (n numbering) next(ifName string) string {
	number := n[ifName]
	n[ifName]++
	return numbered(ifName, number)
}

// numbered returns the name of the interface with number n.
func numbered(ifName string, n int) string {
	return strings.ReplaceAll(ifName, indexMark, strconv.Itoa(n))
}

// checkIfName refuses what is no name for an interface that the driver makes: what the
// kernel does not take (dev_valid_name in net/core/dev.c; "%" is its template for
// numbers), what a pod has already, and what cannot be shown.
func checkIfName(name string) *Refusal {
	var why string
	switch {
	case name == "":
		return refuse("ifName", "no ifName, neither from the claim nor from the DeviceClass", `add ifName: net1 to the parameters in the claim`)
	case len(name) > maxIfName:
		why = fmt.Sprintf("an interface name has at most %d bytes, this one has %d", maxIfName, len(name))
	case name == "eth0" || name == "lo":
		why = "each pod has it already"
	case name == "." || name == "..":
		why = "the kernel does not take it"
	case strings.ContainsAny(name, "/:%{}"): // {index} has been replaced
		why = `an interface name must not hold "/", ":", "%" or, but for {index}, braces`
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		why = "an interface name must not hold white space or what cannot be printed"
	default:
		return nil
	}
	return refuse("ifName", fmt.Sprintf("ifName %s: %s", quote(name), why), `name an interface, such as "net1"`)
}

// Distinct refuses interface names that are there twice: among the networks, or in
// taken, which maps the names that the pod's other claims have to who has them, such as
// "claim default/a, request b".
func Distinct(networks []Network, taken map[string]string) *Refusal {
	holders := map[string]string{}
	maps.Copy(holders, taken)
	for _, n := range networks {
		if n.Bare() {
			continue
		}
		if holder, ok := holders[n.IfName]; ok {
			remedy := "give each request an ifName of its own, by parameters in the claim for this request alone"
			if taken[n.IfName] == "" {
				remedy += `, or have the DeviceClass write "net` + indexMark + `"`
			}
			return &Refusal{Request: n.Request, Rule: fmt.Sprintf("ifName %q is that of %s too", n.IfName, holder), Remedy: remedy}
		}
		holders[n.IfName] = fmt.Sprintf("request %q", n.Request)
	}
	return nil
}

// A named value is one of the key "type".
type named struct {
	path   string // "config.plugins[0].ipam.type"
	value  string
	isText bool // else value is ""
}

// A scanner goes once through a valid JSON text.
type scanner struct {
	dec   *json.Decoder
	types []named // all, in the order of the text
	wrong refusals
}

// scan finds all values of the key "type". It refuses what two readers of JSON could understand in
// two ways: keys that are given twice, keys that differ by letter case only, other spellings of
// "type" and of the keys that plugins stand below. It also refuses keys that only the runtime may set.
func scan(raw []byte) *scanner {
	s := &scanner{dec: json.NewDecoder(bytes.NewReader(raw))}
	s.dec.UseNumber()
	s.value("")
	return s
}

// value scans one value, which is at path. In a valid text no token is an error.
func (s *scanner) value(path string) {
	token, _ := s.dec.Token()
	if path == "type" || strings.HasSuffix(path, ".type") {
		text, isText := token.(string)
		s.types = append(s.types, named{path, text, isText})
	}
	var keys []string
	switch token {
	case json.Delim('{'):
		for s.dec.More() {
			token, _ := s.dec.Token()
			key, _ := token.(string)
			at := strings.TrimPrefix(path+"."+key, ".")
			s.checkKey(key, at, keys)
			keys = append(keys, key)
			s.value(at)
		}
	case json.Delim('['):
		for n := 0; s.dec.More(); n++ {
			s.value(fmt.Sprintf("%s[%d]", path, n))
		}
	default:
		return
	}
	_, _ = s.dec.Token() // the closing delimiter
}

func (s *scanner) checkKey(key, at string, before []string) {
	wrong := func(what, remedy string) { s.wrong.add(at, fmt.Sprintf("the key %s %s", quote(at), what), remedy) }
	for _, other := range before {
		if other == key {
			wrong("is given twice", "leave one of them out")
			return
		} else if strings.EqualFold(other, key) {
			wrong(fmt.Sprintf("differs from %s by letter case only", quote(other)), "leave one of them out")
			return
		}
	}
	for _, word := range []string{"type", "ipam", "plugins", "delegates"} {
		if key != word && strings.EqualFold(key, word) {
			wrong(fmt.Sprintf("is another spelling of %q", word), fmt.Sprintf("write %q", word))
		}
	}
	if strings.EqualFold(key, "prevResult") || strings.EqualFold(key, "runtimeConfig") || strings.HasPrefix(strings.ToLower(key), "cni.dev/") {
		wrong("is the runtime's to set (CNI SPEC.md section 1, reserved keys)", "leave it out")
	}
}
