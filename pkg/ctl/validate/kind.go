package validate

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
)

// Kind is a format.
type Kind string

// The formats. Each is also what --kind is called on a command line.
const (
	DeviceInfo    Kind = "device-info"
	NetworkStatus Kind = "network-status"
	CNIConfig     Kind = "cni-config"
	DRA           Kind = "dra"
)

// Kinds are all formats.
var Kinds = []Kind{DeviceInfo, NetworkStatus, CNIConfig, DRA}

// ErrKind is the error, to be matched by errors.Is, for a text whose kind is not recognized.
var ErrKind = errors.New("neither a device-info map, nor a network-status list, nor a CNI configuration, nor a DeviceClass or ResourceClaim")

// tells are the keys that an object has together if it is of a kind. Those of CNI's list go
// first: "type" and "version" are also device information's.
var tells = []struct {
	kind Kind
	keys []string
}{
	{CNIConfig, []string{"cniVersion"}}, {CNIConfig, []string{"delegates"}}, {CNIConfig, []string{"prevResult"}}, {CNIConfig, []string{"plugins", "name"}},
	{NetworkStatus, []string{"device-info"}}, {NetworkStatus, []string{"interface"}}, {NetworkStatus, []string{"ips"}},
	{DeviceInfo, []string{string(devinfo.TypePCI)}}, {DeviceInfo, []string{string(devinfo.TypeVDPA)}},
	{DeviceInfo, []string{string(devinfo.TypeVhostUser)}}, {DeviceInfo, []string{string(devinfo.TypeMemif)}},
	{CNIConfig, []string{"type", "name"}}, {CNIConfig, []string{"type", "capabilities"}}, {DeviceInfo, []string{"type", "version"}},
}

// guess recognizes the kind of a JSON value, and says what decided.
func guess(data json.RawMessage) (Kind, string) {
	var list []json.RawMessage
	if json.Unmarshal(data, &list) == nil && slices.ContainsFunc(list, isStatus) {
		return NetworkStatus, "it is a list of network statuses"
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		return "", ""
	}
	if object["apiVersion"] == nil { // which Kubernetes and Helm have
		return told(object)
	}
	switch kind := text(object["kind"]); kind {
	case "Pod":
		return NetworkStatus, "it is a Pod"
	case definition:
		return CNIConfig, "it is a " + definition
	case deviceClass, claimKind, claimTemplate:
		return DRA, "it is a " + kind
	}
	return "", ""
}

// isStatus recognizes the status of a network: lists of anything else have names too.
func isStatus(data json.RawMessage) bool {
	var object map[string]json.RawMessage
	kind := Kind("")
	if json.Unmarshal(data, &object) == nil {
		kind, _ = told(object)
	}
	return kind == NetworkStatus
}

// told recognizes an object by its keys.
func told(object map[string]json.RawMessage) (Kind, string) {
	for _, tell := range tells {
		if slices.ContainsFunc(tell.keys, func(key string) bool { return object[key] == nil }) {
			continue
		}
		if len(tell.keys) == 1 {
			return tell.kind, `it has the key "` + tell.keys[0] + `"`
		}
		return tell.kind, `it has the keys "` + strings.Join(tell.keys, `" and "`) + `"`
	}
	return "", ""
}
