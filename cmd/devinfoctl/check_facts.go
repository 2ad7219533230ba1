package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/discovery"
	cniplugin "devinfo-cni.io/plugins/devinfo"
)

// facts has a row for every fact of the file, and for those of the kernel that the
// file lacks.
func (c *comparing) facts() {
	said, now, changed := factsOf(c.recorded), c.stated(), map[string]bool{}
	if c.device != nil && c.recorded != nil {
		for _, change := range cniplugin.Changes(c.recorded, nil, c.device) {
			changed[change.Key] = true
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s has changed since ADD, from %q to %q", change.Key, change.File, change.Now))
		}
	}
	keys := slices.Sorted(maps.Keys(said))
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, there := said[key]; !there {
			keys = append(keys, key)
		}
	}
	c.typeRow()
	identity := identityKey(keys)
	for _, key := range keys {
		row := compared{Fact: key, File: said[key], Now: now[key].Value, Source: now[key].Source}
		if key == identity {
			row.Journal = c.entry.Device.ID
		}
		switch {
		case key == identity && c.missing():
			row.Now, row.Source, row.Verdict = "", "", verdictGone
		case key == identity && differ(row.Journal, row.File, row.Now):
			row.Verdict = verdictDiffers
		case changed[key]:
			row.Verdict = verdictChanged
		case row.Now == "":
			row.Verdict = verdictNotStated
		case row.File == "":
			row.Verdict = verdictNotRecorded
		case differ(row.File, row.Now):
			row.Verdict = verdictDiffers
		default:
			row.Verdict = verdictSame
		}
		c.row(row)
	}
}

func (c *comparing) typeRow() {
	if c.recorded == nil {
		return
	}
	row := compared{Fact: "type", Journal: c.entry.Device.Type, File: string(c.recorded.Type), Verdict: verdictSame}
	if c.device != nil && c.device.Info != nil {
		row.Now = string(c.device.Info.Type)
	}
	if differ(row.Journal, row.File, row.Now) {
		row.Verdict = verdictDiffers
	}
	c.row(row)
}

// stated are the facts that the kernel states. A device that only the file names is
// known to be there by its directory in sysfs.
func (c *comparing) stated() map[string]discovery.Fact {
	now := map[string]discovery.Fact{}
	for _, d := range []*discovery.Device{c.device, c.seen} {
		if d == nil {
			continue
		}
		for _, f := range d.Facts {
			if strings.HasPrefix(f.Source, "the device-info file") {
				bus, _, _ := strings.Cut(f.Key, ".")
				f.Source = "/sys/bus/" + bus + "/devices/" + f.Value
			}
			if c.device == nil || d == c.device || now[f.Key].Value == f.Value {
				now[f.Key] = f
			}
		}
	}
	return now
}

// missing says that the device that the file names is not on the node.
func (c *comparing) missing() bool {
	var missing *discovery.MissingError
	return c.device != nil && errors.As(c.device.Problem, &missing)
}

// identityKey is the one of the keys that names the device: see [discovery.Identity].
func identityKey(keys []string) string {
	for _, key := range []string{"vdpa.parent-device", "pci.pci-address", "vdpa.pci-address", "vhost-user.path", "memif.path"} {
		if slices.Contains(keys, key) {
			return key
		}
	}
	return ""
}

// differ says that two of the values that are there are not the same.
func differ(values ...string) bool {
	first := ""
	for _, v := range values {
		switch v = strings.ToLower(v); {
		case v == "":
		case first == "":
			first = v
		case v != first:
			return true
		}
	}
	return false
}

// factsOf are the facts of a file, by the keys that discovery gives them.
func factsOf(info *devinfo.Info) map[string]string {
	facts := map[string]string{}
	if info == nil {
		return facts
	}
	var all map[string]json.RawMessage
	_ = json.Unmarshal(info.Encode(), &all) // it has just been encoded
	var values map[string]json.RawMessage
	_ = json.Unmarshal(all[string(info.Type)], &values) // a type without its map has no facts
	for key, raw := range values {
		var value string
		if json.Unmarshal(raw, &value) == nil {
			facts[string(info.Type)+"."+key] = value
		}
	}
	return facts
}
