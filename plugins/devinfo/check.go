package plugin

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"

	"devinfo-cni.io/devinfo"
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
	e, err := c.entry(c.key)
	if err != nil {
		return err
	}
	journaled := e != nil
	if !journaled {
		e = c.reconstruct(args)
	}
	e.Netns = args.Netns
	if err := c.cni.check(e, runtimeConf(e)); err != nil {
		return err
	}
	if name == "" {
		name = e.File
	}
	var recorded *devinfo.Info
	if name != "" && (e.Wrote || !journaled) { // else ADD found nothing to write
		if recorded, err = c.recorded(name); err != nil {
			return err
		}
	}
	return c.compare(recorded, e)
}

const renew = "DEL and ADD the attachment to have the file anew"

// recorded reads the file that ADD wrote.
func (c *call) recorded(name string) (*devinfo.Info, error) {
	info, err := c.Infos.Info(name)
	if notThere(err) {
		return nil, fail(codeFileMissing, fmt.Errorf("device-info file %s is gone", c.Infos.Path(name)), renew)
	} else if err != nil {
		return nil, fail(codeOf(err), err, renew)
	}
	violations := info.Validate()
	for _, v := range violations.Warnings() {
		c.log.Warn(v.String())
	}
	if err := violations.Err(); err != nil {
		return nil, fail(codeInvalidInfo, fmt.Errorf("device-info file %s: %w", c.Infos.Path(name), err), renew)
	}
	return info, nil
}

// compare finds the device anew, with the file, if there must be one, as one of the
// sources: a file that names another device is a conflict of sources.
func (c *call) compare(recorded *devinfo.Info, e *journal.Entry) error {
	declared, _, err := c.att.Declared(c.cfg)
	if err != nil {
		return err
	}
	if declared != nil && recorded != nil && declared.Type != "" && declared.Type != recorded.Type {
		return fail(codeMismatch, fmt.Errorf("the device-info file has type %q, deviceInfo declares %q", recorded.Type, declared.Type), renew)
	}
	if recorded != nil && e.Device.Type != "" && string(recorded.Type) != e.Device.Type {
		return fail(codeMismatch, fmt.Errorf("the device-info file has type %q, but ADD found the %s device %s", recorded.Type, e.Device.Type, e.Device.ID), renew)
	}
	if id := discovery.Identity(recorded); recorded != nil && isDevice(recorded.Type) && e.Device.ID != "" && id != e.Device.ID {
		return fail(codeMismatch, fmt.Errorf("the device-info file names %s, but ADD found %s", id, e.Device.ID), renew)
	}
	res, _ := result.Parse(c.cfg.PrevResult, c.cfg.CNIVersion) // one that is none says nothing of the device
	prev, _ := res.Find(c.att.IfName, c.att.Netns)
	device, err := c.Finder.Find(discovery.Target{
		Declared: declared, DeviceID: c.cfg.DeviceID, DeviceIDKey: c.cfg.DeviceIDKey, Existing: recorded,
		PCIID: prev.PCIID, SocketPath: prev.SocketPath,
		Netns: c.att.Netns, IfName: c.att.IfName,
		FollowLower: c.cfg.FollowLower, SubfunctionParent: c.cfg.SubfunctionParent,
	})
	if err != nil {
		return err
	}
	for _, w := range device.Warnings {
		c.log.Warn(w)
	}
	if recorded != nil && as[*discovery.MissingError](device.Problem) { // before its interface, which went with it
		return fail(codeNotFound, device.Problem, "it was there at ADD; DEL succeeds without it")
	}
	if e.InNetns && !device.InNetns {
		return fail(codeNotFound, fmt.Errorf("interface %s is no longer in %s, where ADD found it", c.att.IfName, c.att.Netns), "DEL and ADD the attachment")
	}
	if recorded == nil {
		return nil
	}
	if device.Problem != nil {
		c.log.Warn(device.Problem.Error())
	}
	c.warnOfChanges(recorded, declared, device)
	return nil
}

// isDevice says whether a device of that type is identified by what the kernel calls
// it, and not by a path.
func isDevice(t devinfo.Type) bool { return t == devinfo.TypePCI || t == devinfo.TypeVDPA }

// warnOfChanges tells of facts that the kernel states otherwise than the file,
// where the configuration does not overrule it.
func (c *call) warnOfChanges(recorded, declared *devinfo.Info, device *discovery.Device) {
	said, overruled := optionalFacts(recorded), optionalFacts(declared)
	for _, f := range device.Facts {
		if old, optional := said[f.Key]; optional && old != f.Value && overruled[f.Key] == "" {
			c.log.Warn("changed since ADD", "key", f.Key, "file", old, "now", f.Value, "source", f.Source)
		}
	}
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
