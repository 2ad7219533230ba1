// Package validate checks texts that people and programs wrote against the formats that devinfo
// reads and writes: device-info files (Device Information Specification 1.1.0, section 3), CNI
// configurations that contain our plugin, DRA parameters, and node settings. It reports all errors of a text,
// each with its path, value and rule.
//
// [Parse] splits a text into documents, and [Checker.Check] checks them. The package reads no
// files; [Checker] has functions that ask which plugins the node has. A program that only needs
// a valid device-info file calls devinfo.ReadFile.
package validate

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
)

type Kind string

// The formats, by the names that --kind takes.
const (
	DeviceInfo Kind = "device-info"
	CNIConfig  Kind = "cni-config"
	DRA        Kind = "dra"
	Settings   Kind = "settings"
)

var Kinds = []string{string(DeviceInfo), string(CNIConfig), string(DRA), string(Settings)}

// NoKind is the reason for skipping a document of an unknown kind.
const NoKind = "nothing in it is for validate"

// Plugin is the type of our plugin in CNI configurations.
const Plugin = "devinfo"

// noPlugin is the reason for skipping a network.
const noPlugin = `it has no plugin of type "` + Plugin + `"`

// The objects of Kubernetes that are checked.
const (
	definition    = "NetworkAttachmentDefinition"
	deviceClass   = "DeviceClass"
	claimKind     = "ResourceClaim"
	claimTemplate = "ResourceClaimTemplate"
	configMap     = "ConfigMap"
)

// recognize returns the kind of a document; "" = none of ours.
func (d *Document) recognize() Kind {
	object := config.Object(d.data)
	has := func(key string) bool { return object[key] != nil }
	switch {
	case d.isSettings(object):
		return Settings
	case has("apiVersion") && makers[d.object.Kind] != "":
		return CNIConfig
	case has("apiVersion"): // Helm charts have it too, with name, type and version
		return map[string]Kind{definition: CNIConfig, deviceClass: DRA, claimKind: DRA, claimTemplate: DRA}[d.object.Kind]
	case (has("type") || has("plugins")) && (has("cniVersion") || has("name")):
		return CNIConfig
	case has("type") && has("version"):
		return DeviceInfo
	}
	return ""
}

type Checker struct {
	// Find looks for a plugin in CNI_PATH; nil = there is no CNI_PATH.
	Find func(plugin string) error

	// Versions returns the CNI versions that a plugin of the node supports. It returns none if they are unknown. A
	// nil Versions means that the node's plugins cannot be queried.
	Versions func(plugin string) []string

	// ClaimTypes are the plugins that cni-dra-driver's --allow-claim-config allows; nil = unknown.
	ClaimTypes []string

	classes classes // DeviceClasses among the documents
}

// Check checks documents of a kind; "" = recognize the kind of each. It adds the findings to
// the documents. A claim is checked with its DeviceClasses, and a pod with its networks, if they are among the documents.
func (c Checker) Check(docs []Document, kind Kind) {
	c.classes = classesIn(docs)
	resources := resourcesIn(docs)
	for n := range docs {
		d := &docs[n]
		if d.Kind = kind; kind == "" {
			d.Kind = d.recognize()
		}
		is := d.data
		if d.Kind != "" && d.object.Kind == "" && d.yaml != nil { // runtimes, plugins and the agent take JSON only
			is = d.yaml
		}
		if d.data == nil || !d.readJSON("", is) {
			continue
		}
		switch d.Kind {
		case DeviceInfo:
			d.deviceInfo()
		case CNIConfig:
			c.network(d)
		case DRA:
			c.parameters(d)
		case Settings:
			d.settings()
		default:
			if !checkWorkload(d, resources) {
				d.Skipped = NoKind
			}
		}
	}
}

func (d *Document) deviceInfo() {
	info, err := devinfo.Parse(d.data)
	if version, newer := errors.AsType[*devinfo.VersionError](err); newer {
		d.wrong("version", config.Encode(version.Version), "must be a version 1.x (Device Information Specification, section 3.1.2)")
		return
	} else if err != nil {
		d.wrong("", d.data, "%v", err)
		return
	}
	for _, v := range info.Validate() {
		d.violation("", v)
	}
	object := config.Object(d.data)
	d.unknown("", object, devinfo.Keys(""), strings.EqualFold) // info.Validate has reported keys in the wrong case
	for _, key := range devinfo.Keys("") {
		if known := devinfo.Keys(devinfo.Type(key)); known != nil {
			d.unknown(key, config.Object(object[key]), known, strings.EqualFold)
		}
	}
}

func (d *Document) violation(path string, v devinfo.Violation) {
	d.add(Finding{Path: path + strings.TrimPrefix(v.Path, "$"), Value: v.Value, Rule: v.Rule, Warning: v.Warning})
}

// unknown warns of an object's keys that are the same as no known one.
func (d *Document) unknown(path string, object map[string]json.RawMessage, known []string, same func(a, b string) bool) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.ContainsFunc(known, func(k string) bool { return same(k, key) }) {
			d.find("unknown-key", path+"."+key, object[key], "nearest", config.NearestKnown(config.Nearest(key, known)))
		}
	}
}
