package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
	cniplugin "devinfo-cni.io/plugins/devinfo"
)

// verdict is what came of the comparison of one fact; checkHelp says what each means.
type verdict string

const (
	verdictSame        verdict = "same"
	verdictChanged     verdict = "changed"
	verdictDiffers     verdict = "differs"
	verdictGone        verdict = "gone"
	verdictNotStated   verdict = "not stated"
	verdictNotRecorded verdict = "not recorded"
	verdictUnknown     verdict = "unknown"
)

// comparison is what check prints of one attachment.
type comparison struct {
	Attachment  string     `json:"attachment"`
	State       state      `json:"state"`
	File        string     `json:"file,omitempty"` // path of the device-info file; "" = ADD wrote none
	Facts       []compared `json:"facts"`
	Problem     string     `json:"problem,omitempty"` // what CHECK fails with
	Remedy      string     `json:"remedy,omitempty"`
	Warnings    []string   `json:"warnings,omitempty"` // what CHECK warns of
	NotCompared []string   `json:"notCompared,omitempty"`
}

// compared is one fact.
type compared struct {
	Fact    string  `json:"fact"`
	Journal string  `json:"journal,omitempty"`
	File    string  `json:"file,omitempty"`
	Now     string  `json:"now,omitempty"`
	Source  string  `json:"source,omitempty"` // of Now
	Verdict verdict `json:"verdict"`
}

// comparing is the comparison of one attachment on its way.
type comparing struct {
	*host
	*comparison
	entry    *journal.Entry
	recorded *devinfo.Info     // the file; nil = none that can be read
	device   *discovery.Device // as it is now; nil = not found
	seen     *discovery.Device // the same, as the interface alone tells; nil = it does not
}

// compare does what CHECK does, with what the journal knows.
func (h *host) compare(a attachment) comparison {
	c := &comparing{host: h, comparison: &comparison{Attachment: a.String(), State: a.State, File: a.File, Facts: []compared{}}, entry: a.entry}
	switch a.State {
	case stateOrphan, stateNetnsGone:
		c.Problem, c.Remedy = a.Why, "devinfoctl gc removes what is left of it, as the runtime's DEL or GC would"
	case stateCorrupt:
		c.Problem, c.Remedy = a.Why, "DEL removes it; so does the runtime's GC"
	case stateAdding:
		c.Warnings = append(c.Warnings, a.Why)
	default:
		c.file()
		c.find()
		c.spec()
		c.facts()
		c.limits()
	}
	return *c.comparison
}

// fail keeps the first problem: it is the one that CHECK would fail with.
func (c *comparing) fail(err error) {
	if err != nil && c.Problem == "" {
		c.Problem, c.Remedy = c.text(err), cniplugin.Remedy(err)
	}
}

func (c *comparing) row(f compared) { c.Facts = append(c.Facts, f) }

func (c *comparing) file() {
	e := c.entry
	if !e.Wrote {
		return
	}
	row := compared{Fact: "device-info file", Journal: "written", File: "there", Verdict: verdictSame}
	info, warnings, err := cniplugin.Recorded(c.infosIn(e.Dir), e.File)
	c.recorded = info
	for _, w := range warnings {
		c.Warnings = append(c.Warnings, w.String())
	}
	switch {
	case errors.Is(err, errPermission):
		row.File, row.Verdict = "not readable", verdictUnknown
	case err != nil && c.fileThere(e.Path()):
		row.File, row.Verdict = "not valid", verdictDiffers
		c.fail(err)
	case err != nil:
		row.File, row.Verdict = "gone", verdictGone
		c.fail(err)
	}
	c.row(row)
}

// find looks for the device as CHECK does. The journal does not keep followLower and
// subfunctionParent: a conflict counts only if it is one whatever they are.
func (c *comparing) find() {
	e := *c.entry
	t := discovery.Target{Existing: c.recorded, Netns: e.Netns, IfName: e.IfName, FollowLower: true}
	asked := config.NamedID{Key: "runtimeConfig.deviceID"}
	_ = json.Unmarshal(e.CapabilityArgs["deviceID"], &asked.ID) // "" where it has none
	t.DeviceIDs = []config.NamedID{asked}
	device, err := cniplugin.Compare(c.finder, &e, t)
	if t.Netns != "" && (errors.Is(err, errPermission) || c.locked(t.Netns)) {
		c.row(compared{Fact: "interface", Journal: e.IfName, Source: e.Netns, Verdict: verdictUnknown})
		c.NotCompared = append(c.NotCompared, "the interface in "+e.Netns+": entering the network namespace takes root")
		t.Netns, e.InNetns = "", false
		device, err = cniplugin.Compare(c.finder, &e, t)
	}
	if other, ok := c.settled(&e, t, device, err); ok {
		device, err = other, nil
	}
	c.device = device
	c.fail(err)
	c.inNetns(&e)
	t.Existing = nil // now the kernel alone
	if seen, err := c.finder.Find(t); err == nil && seen.Info != nil {
		c.seen = seen
	}
}

// locked says that a captured host has the network namespace, but not what is in it.
func (c *comparing) locked(netns string) bool {
	there, err := c.netns(netns)
	return there && err != nil
}

// settled looks again with the settings that the journal does not keep, where what was
// found can be theirs.
func (c *comparing) settled(e *journal.Entry, t discovery.Target, device *discovery.Device, err error) (*discovery.Device, bool) {
	var conflict *discovery.ConflictError
	if !errors.As(err, &conflict) && (device == nil || !device.OnSF || device.Problem == nil) {
		return nil, false
	}
	for _, other := range []struct {
		setting                        string
		followLower, subfunctionParent bool
	}{
		{`"followLower": false`, false, false},
		{`"subfunctionParent": true`, true, true},
	} {
		t.FollowLower, t.SubfunctionParent = other.followLower, other.subfunctionParent
		if device, err := cniplugin.Compare(c.finder, e, t); err == nil && device.Problem == nil {
			c.NotCompared = append(c.NotCompared, "the setting "+other.setting+": the file is right with it, and wrong without")
			return device, true
		}
	}
	return nil, false
}

func (c *comparing) inNetns(e *journal.Entry) {
	if c.device == nil {
		return
	}
	c.Warnings = append(c.Warnings, c.device.Warnings...)
	if c.device.Problem != nil && c.Problem == "" && c.recorded != nil {
		c.Warnings = append(c.Warnings, c.device.Problem.Error())
	}
	if !e.InNetns && !c.device.InNetns {
		return
	}
	row := compared{Fact: "interface", Now: e.IfName, Source: e.Netns, Verdict: verdictSame}
	if e.InNetns {
		row.Journal = e.IfName
	}
	if !c.device.InNetns {
		row.Now, row.Verdict = "", verdictGone
	}
	c.row(row)
}

func (c *comparing) spec() {
	e := c.entry
	if e.CDI.File == "" {
		return
	}
	row := compared{Fact: "CDI spec", Journal: e.CDI.Device, File: "there", Source: filepath.Join(e.CDI.Dir, e.CDI.File), Verdict: verdictSame}
	if err := cniplugin.SpecRecorded(store.Open(c.path(e.CDI.Dir)), e); errors.Is(err, errPermission) {
		row.File, row.Verdict = "not readable", verdictUnknown
	} else if err != nil {
		row.File, row.Verdict = "gone", verdictGone
		c.fail(err)
	}
	c.row(row)
}

// limits says what CHECK knows more of than the journal.
func (c *comparing) limits() {
	const configured = "the network's configuration (deviceID, deviceInfo, resourceName): the journal does not keep it"
	c.NotCompared = append(c.NotCompared, configured)
	if names := delegateTypes(c.entry); len(names) > 0 {
		c.NotCompared = append(c.NotCompared, "what the delegates made ("+strings.Join(names, ", ")+"): their own CHECK says it")
	}
	if !c.entry.Wrote {
		c.NotCompared = append(c.NotCompared, "the device: ADD wrote no device-info file")
	}
}

// delegateTypes are the plugins that ADD ran, in that order.
func delegateTypes(e *journal.Entry) (names []string) {
	for _, raw := range e.Delegates {
		var child struct{ Type string }
		_ = json.Unmarshal(raw, &child) // ADD has run it
		names = append(names, child.Type)
	}
	return names
}
