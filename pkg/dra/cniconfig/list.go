package cniconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
)

// maxName is for the name of a network, in bytes: with a sandbox ID and an interface
// name it is part of file names, which have at most 255.
const maxName = 128

// list makes a configuration list of a CNI configuration, with its text as Bytes, or gives all
// that is wrong.
func list(config json.RawMessage) (*libcni.NetworkConfigList, []*Refusal) {
	raw, refusal := listed(config)
	if refusal != nil {
		return nil, []*Refusal{refusal}
	}
	parsed, err := libcni.ConfListFromBytes(raw)
	if err != nil {
		return nil, []*Refusal{refuse("config", fmt.Sprintf("config: %v", err), "write it as CNI SPEC.md section 1 has it; in YAML, quote versions")}
	}
	if wrong := check(parsed); wrong != nil {
		return nil, wrong
	}
	return parsed, nil
}

// listed gives the text of a list as it is, without white space; a single plugin
// becomes the one entry of a list.
func listed(config json.RawMessage) (json.RawMessage, *Refusal) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, refuse("config", fmt.Sprintf("config: %v", err), "give an object")
	}
	_, single := fields["type"]
	_, many := fields["plugins"]
	switch {
	case single && many:
		return nil, refuse("config", `config has both "type" and "plugins"`, "give a plugin, or a list of plugins")
	case many:
		var out bytes.Buffer
		if err := json.Compact(&out, config); err != nil {
			return nil, refuse("config", fmt.Sprintf("config: %v", err), "give an object")
		}
		return out.Bytes(), nil
	case !single:
		return nil, refuse("config", `config has neither "type" nor "plugins"`, "give a plugin, or a list of plugins")
	}
	wrapped := map[string]any{"plugins": []json.RawMessage{config}}
	for _, key := range []string{"cniVersion", "name"} {
		if v, ok := fields[key]; ok {
			wrapped[key] = v
		}
	}
	raw, err := json.Marshal(wrapped)
	if err != nil {
		return nil, refuse("config", fmt.Sprintf("config: %v", err), "give an object")
	}
	return raw, nil
}

// check refuses what libcni lets pass and ADD or DEL would fail with.
func check(l *libcni.NetworkConfigList) (wrong []*Refusal) {
	if err := utils.ValidateNetworkName(l.Name); err != nil || len(l.Name) > maxName {
		wrong = append(wrong, refuse("config.name", fmt.Sprintf("config.name %s is not a network name", quote(l.Name)),
			fmt.Sprintf(`use letters, digits, "_", "." and "-", at most %d, with a letter or digit first`, maxName)))
	}
	if known := version.All.SupportedVersions(); !slices.Contains(known, l.CNIVersion) {
		wrong = append(wrong, refuse("config.cniVersion", fmt.Sprintf("config.cniVersion %s is not known", quote(l.CNIVersion)), "use one of "+strings.Join(known, ", ")))
	}
	if len(l.Plugins) == 0 {
		wrong = append(wrong, refuse("config.plugins", "config.plugins has no plugin", "give at least one"))
	}
	for n, plugin := range l.Plugins {
		if name := plugin.Network.Type; name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			at := fmt.Sprintf("config.plugins[%d].type", n)
			wrong = append(wrong, refuse(at, fmt.Sprintf("%s %s is not a file name", at, quote(name)), "name a CNI plugin, without a directory"))
		}
	}
	return wrong
}

// maxIfName is IFNAMSIZ without the NUL (include/uapi/linux/if.h), in bytes.
const maxIfName = 15

// indexMark is where an ifName has the number of the device among those of its request.
const indexMark = "{index}"

// numbered is the name of the n-th interface, from 0.
func numbered(ifName string, n int) string {
	return strings.ReplaceAll(ifName, indexMark, strconv.Itoa(n))
}

// checkIfName refuses what is no name for an interface that the driver makes: what the
// kernel does not take (dev_valid_name in net/core/dev.c; "%" is its template for
// numbers), what a pod has already, and what cannot be shown.
func checkIfName(name string) *Refusal {
	bad := func(why string) *Refusal {
		return refuse("ifName", fmt.Sprintf("ifName %s: %s", quote(name), why), `name an interface, such as "net1"`)
	}
	switch {
	case name == "":
		return refuse("ifName", "no ifName, neither from the claim nor from the DeviceClass", `add ifName: net1 to the parameters in the claim`)
	case len(name) > maxIfName:
		return bad(fmt.Sprintf("an interface name has at most %d bytes, this one has %d", maxIfName, len(name)))
	case name == "eth0" || name == "lo":
		return bad("each pod has it already")
	case name == "." || name == "..":
		return bad("the kernel does not take it")
	case strings.ContainsAny(name, "/:%{}"): // {index} has been replaced
		return bad(`an interface name must not hold "/", ":", "%" or, but for {index}, braces`)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return bad("an interface name must not hold white space or what cannot be printed")
	}
	return nil
}

// Distinct refuses interface names that are there twice: among the networks, or in
// taken, which maps the names that the pod's other claims have to who has them, such as
// "claim default/a, request b".
func Distinct(networks []Network, taken map[string]string) error {
	seen := map[string]string{}
	for _, n := range networks {
		if n.Bare() {
			continue
		}
		holder, ok := taken[n.IfName]
		if !ok {
			holder, ok = seen[n.IfName]
		}
		if ok {
			return &Refusal{Request: n.Request, Rule: fmt.Sprintf("ifName %q is that of %s too", n.IfName, holder),
				Remedy: "give each request an ifName of its own, by parameters in the claim for this request alone"}
		}
		seen[n.IfName] = fmt.Sprintf("request %q", n.Request)
	}
	return nil
}
