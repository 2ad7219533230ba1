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
	kjson "sigs.k8s.io/json"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/state"
)

// maxName limits the length of a network's name, in bytes. File names, which have at most 255 bytes, contain it
// together with a sandbox ID and an interface name.
const maxName = 128

// list converts the configuration of decoded parameters into a configuration list without white space. A single
// plugin becomes a list with one entry. It adds all mistakes to wrong, and returns nil if libcni cannot parse it.
func list(raw json.RawMessage, wrong *refusals) *libcni.NetworkConfigList {
	fields := config.Object(raw) // decode has checked that it is one
	for _, key := range []string{"cniVersion", "name"} {
		if v := fields[key]; v != nil && v[0] != '"' {
			wrong.add("config."+key, fmt.Sprintf("config.%s %.80s is not a string", key, v), "write it in quotes")
			return nil
		}
	}
	_, single := fields["type"]
	_, many := fields["plugins"]
	const remedy = "give a plugin, or a list of plugins"
	switch {
	case single && many:
		wrong.add("config", `config has both "type" and "plugins"`, remedy)
		return nil
	case single:
		maps.DeleteFunc(fields, func(key string, _ json.RawMessage) bool { return key != "cniVersion" && key != "name" })
		fields["plugins"] = config.Encode([]json.RawMessage{raw})
		raw = config.Encode(fields)
	case !many:
		wrong.add("config", `config must have the key "type" or "plugins"`, remedy)
		return nil
	}
	var text bytes.Buffer
	_ = json.Compact(&text, raw)
	l, err := libcni.ConfListFromBytes(text.Bytes())
	if err != nil {
		wrong.add("config", fmt.Sprintf("config: %v", config.InWords(err)), "write it as CNI SPEC.md section 1 defines; in YAML, quote versions")
		return nil
	}
	// libcni accepts these mistakes, but ADD or DEL would fail.
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
			wrong.add(at, fmt.Sprintf("%s %s is not a file name", at, quote(name)), "give the type of a CNI plugin, without a directory")
		}
	}
	return l
}

// maxIfName is the length of the longest interface name, in bytes: IFNAMSIZ (include/uapi/linux/if.h) less the NUL.
const maxIfName = 15

// indexMark is the placeholder for a number in an ifName: see [numbering].
const indexMark = "{index}"

// numbering counts the interfaces of a claim for each ifName that contains indexMark. It counts over all requests of
// the claim: for an extended resource, the scheduler creates one request of the same class for each container, and
// its user cannot give each request a different ifName.
type numbering map[string]int

// next returns the name of the next interface with this ifName. The first has number 0.
func (n numbering) next(ifName string) string {
	number := n[ifName]
	n[ifName]++
	return strings.ReplaceAll(ifName, indexMark, strconv.Itoa(number))
}

// checkIfName refuses names that a new interface of a pod cannot have: names that the kernel rejects (dev_valid_name in
// net/core/dev.c; "%" would be a template for numbers), that each pod already uses, or that cannot be printed.
func checkIfName(name string) *Refusal {
	var why string
	switch {
	case name == "":
		return refuse("ifName", "ifName is missing from both the claim and the DeviceClass", `add ifName: net1 to the parameters in the claim`)
	case len(name) > maxIfName:
		why = fmt.Sprintf("an interface name has at most %d bytes, not %d", maxIfName, len(name))
	case name == "eth0" || name == "lo":
		why = "each pod already has an interface with this name"
	case name == "." || name == ".." || name == "all" || name == "default": // sysctl_dev_name_is_allowed in include/linux/inetdevice.h
		why = "the kernel does not accept this name"
	case strings.ContainsAny(name, "/:%{}"): // {index} is already replaced
		why = `an interface name must not contain "/", ":", "%" or braces, except for {index}`
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		why = "an interface name must not contain white space or unprintable characters"
	default:
		return nil
	}
	return refuse("ifName", fmt.Sprintf("ifName %s: %s", quote(name), why), `give an interface name such as "net1"`)
}

// Distinct refuses an interface name that two networks have, or that a network shares with another claim of the pod.
// taken maps the interface names of the pod's other claims to their users, such as "claim default/a, request b".
func Distinct(networks []state.Attachment, taken map[string]string) *Refusal {
	holders := map[string]string{}
	maps.Copy(holders, taken)
	for _, n := range networks {
		if n.Bare() {
			continue
		}
		if holder, ok := holders[n.IfName]; ok {
			remedy := "give each request a different ifName, by parameters in the claim that apply to this request only"
			if taken[n.IfName] == "" {
				remedy += `, or set it to "net` + indexMark + `" in the DeviceClass`
			}
			return &Refusal{Request: n.Request, Rule: fmt.Sprintf("%s already uses ifName %q", holder, n.IfName), Remedy: remedy}
		}
		holders[n.IfName] = fmt.Sprintf("request %q", n.Request)
	}
	return nil
}

// A named value is the value of a key "type". Two keys may have the same path.
type named struct {
	path  string // "config.plugins[0].ipam.type"
	value any
}

// A scanner looks at all keys of decoded parameters.
type scanner struct {
	types []named
	wrong refusals
}

// scan collects the values of all keys "type". It refuses ambiguous keys, which a plugin may read differently:
// duplicate keys, keys that differ only by letter case, and other spellings of "type" and of the keys that contain
// plugins. It also refuses keys that only the runtime may set.
func (s *scanner) scan(raw []byte) error {
	var tree any
	repeated, err := kjson.UnmarshalStrict(raw, &tree)
	for _, r := range repeated {
		at := r.(kjson.FieldError).FieldPath()
		s.wrong.add(at, fmt.Sprintf("the key %s occurs twice", quote(at)), "remove one of them")
	}
	s.value("", tree)
	return err
}

func (s *scanner) value(path string, value any) {
	if strings.HasSuffix(path, ".type") {
		s.types = append(s.types, named{path, value})
	}
	switch value := value.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(value))
		for n, key := range keys {
			at := strings.TrimPrefix(path+"."+key, ".")
			s.checkKey(key, at, keys[:n])
			s.value(at, value[key])
		}
	case []any:
		for n := range value {
			s.value(fmt.Sprintf("%s[%d]", path, n), value[n])
		}
	}
}

func (s *scanner) checkKey(key, at string, before []string) {
	wrong := func(what, remedy string) { s.wrong.add(at, fmt.Sprintf("the key %s %s", quote(at), what), remedy) }
	alike := func(other string) bool { return strings.EqualFold(other, key) }
	if n := slices.IndexFunc(before, alike); n >= 0 {
		wrong(fmt.Sprintf("differs from %s by letter case only", quote(before[n])), "remove one of them")
		return
	}
	for _, word := range []string{"type", "ipam", "plugins", "delegates"} {
		if key != word && strings.EqualFold(key, word) {
			wrong(fmt.Sprintf("is another spelling of %q", word), fmt.Sprintf("write %q", word))
		}
	}
	if strings.EqualFold(key, "prevResult") || strings.EqualFold(key, "runtimeConfig") || strings.HasPrefix(strings.ToLower(key), "cni.dev/") {
		wrong("may only be set by the runtime (CNI SPEC.md section 1, reserved keys)", "remove it")
	}
}
