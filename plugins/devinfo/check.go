package plugin

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/result"
)

// Check compares what ADD left with what is there now: the delegates' own CHECK,
// the file, the device's identity, the interface. Optional facts that have changed
// are warnings.
func (p *Plugin) Check(args *skel.CmdArgs) error {
	cfg, err := p.parse(args)
	if err != nil {
		return err
	}
	if err := p.strict(cfg); err != nil {
		return err
	}
	c, err := p.open(cfg, args)
	if err != nil {
		return err
	}
	if c.nested() {
		return nil
	}
	name, err := c.fileName()
	if err != nil {
		return err
	}
	recorded, _, err := c.entry()
	if err != nil {
		return err
	}
	journaled := recorded != nil
	if !journaled {
		if recorded, err = c.reconstruct(args, false); err != nil {
			return err
		}
	}
	now := *recorded
	e := &now
	e.Netns = args.Netns
	if err := c.cni.check(e, runtimeConf(e)); err != nil {
		return err
	}
	if name == "" {
		name = e.File
	}
	return c.compareAll(e, name, journaled)
}

// compareAll compares the file of that name, the device, the interface and the CDI
// spec with what they were.
func (c *call) compareAll(e *journal.Entry, name string, journaled bool) error {
	var recorded *devinfo.Info
	if name != "" && (e.Wrote || !journaled) { // else ADD found nothing to write
		var err error
		if recorded, err = c.recorded(name); err != nil {
			return err
		}
	}
	if err := c.compare(recorded, e); err != nil {
		return err
	}
	return SpecRecorded(store.Open(e.CDI.Dir), e)
}

const renew = "DEL and ADD the attachment to have the file anew"

// recorded reads the file that ADD wrote.
func (c *call) recorded(name string) (*devinfo.Info, error) {
	info, warnings, err := Recorded(c.Infos, name)
	for _, v := range warnings {
		c.log.Warn(v.String())
	}
	return info, err
}

// Recorded reads the device-info file that an ADD wrote. The error is CHECK's; the
// violations are the warnings that remain.
func Recorded(infos *store.Dir, name string) (*devinfo.Info, devinfo.Violations, error) {
	info, err := infos.Info(name)
	if notThere(err) {
		return nil, nil, fail(codeFileMissing, fmt.Errorf("device-info file %s is gone", infos.Path(name)), renew)
	} else if err != nil {
		return nil, nil, fail(codeOf(err), err, renew)
	}
	violations := info.Validate()
	if err := violations.Err(); err != nil {
		return nil, violations.Warnings(), fail(codeInvalidInfo, fmt.Errorf("device-info file %s: %w", infos.Path(name), err), renew)
	}
	return info, violations.Warnings(), nil
}

// SpecRecorded says whether the CDI spec that an ADD wrote, if it did, is there.
func SpecRecorded(specs *store.Dir, e *journal.Entry) error {
	if e.CDI.File == "" {
		return nil
	}
	text, err := ourSpec(specs, e.CDI.File)
	if err == nil && len(text) == 0 {
		return fail(codeFileMissing, fmt.Errorf("CDI spec %s is gone", specs.Path(e.CDI.File)), renew)
	}
	return err
}

// compare looks for the device anew, with what the configuration says of it.
func (c *call) compare(recorded *devinfo.Info, e *journal.Entry) error {
	declared, _, err := c.att.Declared(c.cfg)
	if err != nil {
		return err
	}
	res, _ := result.Parse(c.cfg.PrevResult, c.cfg.CNIVersion) // one that is none says nothing of the device
	prev, _ := res.Find(c.att.IfName, c.att.Netns)
	device, err := Compare(&c.Finder, e, discovery.Target{
		Declared: declared, DeviceIDs: c.cfg.DeviceIDs, Existing: recorded,
		PCIID: prev.PCIID, SocketPath: prev.SocketPath,
		Netns: c.att.Netns, IfName: c.att.IfName,
		FollowLower: c.cfg.FollowLower, SubfunctionParent: c.cfg.SubfunctionParent,
	})
	if device != nil {
		for _, w := range device.Warnings {
			c.log.Warn(w)
		}
	}
	if err != nil || recorded == nil {
		return err
	}
	if device.Problem != nil {
		c.log.Warn(device.Problem.Error())
	}
	for _, change := range Changes(recorded, declared, device) {
		c.log.Warn("changed since ADD", "key", change.Key, "file", change.File, "now", change.Now, "source", change.Source)
	}
	return nil
}

// Compare is CHECK's comparison of what the journal remembers, the file (t.Existing;
// nil = ADD wrote none) and the kernel. It finds the device anew, with the file as
// one of the sources: a file that names another device is a conflict of sources. The
// device is nil where the error came before it was found.
func Compare(finder *discovery.Finder, e *journal.Entry, t discovery.Target) (*discovery.Device, error) {
	recorded, declared := t.Existing, t.Declared
	if declared != nil && recorded != nil && declared.Type != "" && declared.Type != recorded.Type {
		return nil, fail(codeMismatch, fmt.Errorf("the device-info file has type %q, deviceInfo declares %q", recorded.Type, declared.Type), renew)
	}
	if recorded != nil && e.Device.Type != "" && string(recorded.Type) != e.Device.Type {
		return nil, fail(codeMismatch, fmt.Errorf("the device-info file has type %q, but ADD found the %s device %s", recorded.Type, e.Device.Type, e.Device.ID), renew)
	}
	if id := discovery.Identity(recorded); recorded != nil && isDevice(recorded.Type) && e.Device.ID != "" && id != e.Device.ID {
		return nil, fail(codeMismatch, fmt.Errorf("the device-info file names %s, but ADD found %s", id, e.Device.ID), renew)
	}
	device, err := finder.Find(t)
	if err != nil {
		return nil, err
	}
	if recorded != nil && as[*discovery.MissingError](device.Problem) { // before its interface, which went with it
		return device, fail(codeNotFound, device.Problem, "it was there at ADD; DEL succeeds without it")
	}
	if e.InNetns && !device.InNetns {
		return device, fail(codeNotFound, fmt.Errorf("interface %s is no longer in %s, where ADD found it", t.IfName, t.Netns), "DEL and ADD the attachment")
	}
	return device, nil
}

// Remedy says what to do about an error of this package; "" = the message does.
func Remedy(err error) string { return remedyOf(err) }

// isDevice says whether a device of that type is identified by what the kernel calls
// it, and not by a path.
func isDevice(t devinfo.Type) bool { return t == devinfo.TypePCI || t == devinfo.TypeVDPA }

// A Change is an optional fact that the kernel states otherwise than the file.
type Change struct{ Key, File, Now, Source string }

// Changes are the facts that have changed since ADD, where the configuration does
// not overrule the kernel.
func Changes(recorded, declared *devinfo.Info, device *discovery.Device) (list []Change) {
	said, overruled := optionalFacts(recorded), optionalFacts(declared)
	for _, f := range device.Facts {
		if old, optional := said[f.Key]; optional && old != f.Value && overruled[f.Key] == "" {
			list = append(list, Change{f.Key, old, f.Value, f.Source})
		}
	}
	return list
}

func optionalFacts(info *devinfo.Info) map[string]string {
	facts := map[string]string{}
	if info != nil && info.PCI != nil {
		p := info.PCI
		facts["pci.pf-pci-address"], facts["pci.rdma-device"], facts["pci.representor-device"] = p.PFAddress, p.RDMADevice, p.Representor
	}
	if info != nil && info.VDPA != nil {
		v := info.VDPA
		facts["vdpa.driver"], facts["vdpa.path"] = v.Driver, v.Path
		facts["vdpa.pf-pci-address"], facts["vdpa.representor-device"] = v.PFAddress, v.Representor
	}
	return facts
}
