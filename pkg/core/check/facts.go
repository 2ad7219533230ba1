package check

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
)

// known holds the device's facts from the journal, the device-info file, the configuration and the kernel, with
// discovery's keys.
type known struct {
	journal, file, declared map[string]string
	now                     map[string]discovery.Fact
	identity                string // the key that names the device
	recorded                bool   // a readable device-info file exists
	found, missing          bool   // whether the device was found, or is known to be missing
}

func (r *Report) facts(e *journal.Entry, t discovery.Target, device, alone *discovery.Device) {
	k := known{
		journal: journalFacts(e), file: factsOf(t.Existing), declared: factsOf(t.Declared), now: kernelFacts(device, alone),
		recorded: t.Existing != nil, found: device != nil,
		missing: device != nil && errors.As(device.Problem, new(*discovery.MissingError)),
	}
	k.identity = cmp.Or(identityKey(k.file), identityKey(k.journal), identityKey(k.now))
	if k.recorded {
		row := Item{Fact: "type", Journal: e.Device.Type, File: string(t.Existing.Type), Verdict: Same}
		if device != nil && device.Info != nil {
			row.Now = string(device.Info.Type)
		}
		if differ(row.Fact, row.Journal, row.File, row.Now) {
			row.Verdict = Differs
		}
		r.Facts = append(r.Facts, row)
	}
	for _, key := range k.keys() {
		r.Facts = append(r.Facts, k.row(key))
	}
}

func (k *known) keys() (keys []string) {
	for _, key := range slices.Concat(slices.Sorted(maps.Keys(k.file)), slices.Sorted(maps.Keys(k.now)), slices.Sorted(maps.Keys(k.journal))) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (k *known) row(key string) Item {
	f := Item{Fact: key, Journal: k.journal[key], File: k.file[key], Now: k.now[key].Value, Source: k.now[key].Source}
	if key == k.identity && k.missing {
		f.Now, f.Source, f.Verdict = "", "", Gone
		return f
	}
	f.Verdict = k.verdict(f)
	return f
}

func (k *known) verdict(f Item) Verdict {
	device, _, _ := strings.Cut(k.identity, ".")
	switch {
	case f.Fact == k.identity && named(devinfo.Type(device)) && differ(f.Fact, f.Journal, f.File, f.Now):
		return Differs
	case f.Now == "" && k.recorded && f.Journal != "" && (f.File == "" || differ(f.Fact, f.Journal, f.File)):
		return Changed
	case f.Now == "":
		return NotStated
	case f.File == "" && k.recorded && k.found:
		return Changed
	case f.File == "":
		return NotRecorded
	case !differ(f.Fact, f.File, f.Now):
		return Same
	case !k.found:
		return Differs
	case k.declared[f.Fact] != "":
		return Declared
	}
	return Changed
}

// kernelFacts returns the kernel's facts. If the device was found, the search without the file only adds better
// sources.
func kernelFacts(device, alone *discovery.Device) map[string]discovery.Fact {
	now := map[string]discovery.Fact{}
	if device != nil {
		for _, f := range device.Facts {
			now[f.Key] = withSysfsSource(f)
		}
	}
	if alone != nil {
		for _, f := range alone.Facts {
			if device == nil || now[f.Key].Value == f.Value {
				now[f.Key] = withSysfsSource(f)
			}
		}
	}
	return now
}

// withSysfsSource replaces the source of the device's name by its sysfs directory, which shows that the device exists.
func withSysfsSource(f discovery.Fact) discovery.Fact {
	bus, key, _ := strings.Cut(f.Key, ".")
	identity := f.Key == "pci.pci-address" || key == "parent-device"
	if identity && !strings.HasPrefix(f.Source, "interface ") {
		f.Source = "/sys/bus/" + bus + "/devices/" + f.Value
	}
	return f
}

// identityKey returns the key of the fact that names the device, see [discovery.Identity].
func identityKey[T any](facts map[string]T) string {
	for _, key := range []string{"vdpa.parent-device", "pci.pci-address", "vdpa.pci-address", "vhost-user.path", "memif.path"} {
		if _, there := facts[key]; there {
			return key
		}
	}
	return ""
}

func differ(key string, values ...string) bool {
	first := ""
	for _, v := range values {
		if strings.HasSuffix(key, "pci-address") { // hexadecimal
			v = strings.ToLower(v)
		}
		switch {
		case v == "":
		case first == "":
			first = v
		case v != first:
			return true
		}
	}
	return false
}

func journalFacts(e *journal.Entry) map[string]string {
	if info, err := devinfo.Parse(e.Info); err == nil {
		return factsOf(info)
	}
	key := e.Device.Type + ".path"
	switch _, err := pci.Parse(e.Device.ID); {
	case e.Device.ID == "":
		return nil
	case err == nil:
		key = e.Device.Type + ".pci-address"
	case e.Device.Type == string(devinfo.TypeVDPA):
		key = "vdpa.parent-device"
	}
	return map[string]string{key: e.Device.ID}
}

func factsOf(info *devinfo.Info) map[string]string {
	facts := map[string]string{}
	for key, value := range info.Texts() {
		facts[string(info.Type)+"."+key] = value
	}
	return facts
}
