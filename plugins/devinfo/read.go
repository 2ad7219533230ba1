package devinfo

import (
	"errors"
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/result"
	"devinfo-cni.io/pkg/host/store"
)

// A request is what ADD has read: from the call, the journal and the device-info file, and then from the delegates.
type request struct {
	c        *Call
	declared *devinfo.Info // deviceInfo of the configuration, with placeholders expanded
	file     infoFile
	cdi      *config.CDI    // cdi of the configuration; nil = no spec
	result   *result.Result // the CNI result so far: the prevResult, or the last delegate's result; nil = none

	// last is the attachment's entry in the journal, locked: of a former, live ADD, or what this ADD has recorded for its
	// delegates; nil = none.
	last *journal.Entry
}

// asked returns what the configuration asks ADD for, with warnings, or an error if ADD cannot succeed for the attachment. It
// reads and writes no file.
func (c *Call) asked() (r *request, warnings devinfo.Violations, err error) {
	r = &request{c: c}
	doubts, err := attachment.Vet(c.Config)
	if err != nil {
		return nil, nil, err
	}
	if r.declared, warnings, err = c.Attachment.Declared(c.Config); err != nil {
		return nil, nil, err
	}
	if r.cdi, err = c.Attachment.CDI(c.Config); err != nil {
		return nil, nil, err
	}
	if r.file.name, err = c.infoFileName(); err != nil {
		return nil, nil, err
	}
	r.result, err = c.prevResult()
	return r, append(doubts, warnings...), err
}

// read reads the arguments of ADD, cleans up after a former ADD of the attachment, and reads the device-info file. It
// returns an error if ADD cannot succeed: among others if neither the file nor the configuration leads to a device, or if
// the CDI spec belongs to another attachment or program.
func (c *Call) read(done *undo) (*request, error) {
	if err := c.delegatesProblem(); err != nil {
		return nil, err
	}
	if err := checkNetns(c.Attachment.Args); err != nil {
		return nil, err
	}
	r, warnings, err := c.asked()
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		c.Log.Warn("deviceInfo: " + w.String())
	}
	if err := r.warnWithoutFile(); err != nil {
		return nil, err
	}
	if r.last, err = c.takeOver(r.file.name, done); err != nil {
		return nil, err
	}
	if r.file, err = c.readInfoFile(r.file.name, r.last); err != nil {
		return nil, err
	}
	if r.file.external == nil && attachment.LeadsToNoDevice(c.Config, r.declared) {
		return nil, failure.New(failure.Config, errors.New("the configuration gives devinfo nothing to do"),
			`chain it after the plugin that creates the interface and passes a prevResult, or list child plugins ("delegates": [{"type": …}]), `+
				`or name the device ("deviceID": "0000:01:00.2", or "deviceInfo": {"type": …})`)
	}
	return r, c.refuseOwned(c.specOf(r.cdi))
}

// warnWithoutFile logs a warning if the runtime passed no path of a device-info file, or fails if strict is set.
func (r *request) warnWithoutFile() error {
	c := r.c
	if r.file.name != "" {
		return nil
	}
	err := errors.New("the runtime passed no runtimeConfig.CNIDeviceInfoFile: no device-info file is written")
	if len(c.Config.Unknown) > 0 { // it may be a misspelt deviceInfoFile or capabilities
		err = fmt.Errorf("%w; %s", err, c.Config.Unknown[0])
	}
	remedy := `set "deviceInfoFile": "auto"`
	switch {
	case !c.Config.Capabilities["CNIDeviceInfoFile"]:
		remedy = `declare "capabilities": {"CNIDeviceInfoFile": true} if the network has a k8s.v1.cni.cncf.io/resourceName, else ` + remedy
	case c.Config.DeviceID == "":
		remedy = `give the network the annotation k8s.v1.cni.cncf.io/resourceName (Multus passes the path only if the network has a device), or ` + remedy
	}
	_, err = c.unlessStrict(failure.New(failure.Config, err, remedy))
	return err
}

// prevResult parses the prevResult. It fails if devinfo could not pass the result on.
func (c *Call) prevResult() (*result.Result, error) {
	if c.Config.PrevResult == nil {
		return nil, nil
	}
	res, err := result.Parse(c.Config.PrevResult, c.Config.CNIVersion)
	if err != nil {
		return nil, failure.New(failure.Decoding, fmt.Errorf("prevResult: %w", err), "the plugin before devinfo, or the runtime, must pass a CNI result of version 1.1.0 or earlier")
	}
	return res, nil
}

// takeOver handles a former ADD of this attachment that had no DEL:
//
//   - If it is live and has no delegates, takeOver returns its entry, locked, which this ADD replaces.
//   - If it was killed while its delegates ran, belongs to an earlier boot, has lost its network namespace, or has
//     a corrupt entry, it is cleaned up as by DEL.
//   - If its delegates have created a pod's network, takeOver fails.
//
// The cleanup spares the device-info file of this name if this ADD is to read it, because another program has written it.
func (c *Call) takeOver(file string, done *undo) (*journal.Entry, error) {
	former, err := c.LockAnyway(c.Key)
	if err != nil || former == nil {
		return nil, err
	}
	done.entry = former
	if former.Lost() { // only the leases and this configuration show what to clean up
		former.Netns = c.Attachment.Netns
		c.reconstruct(former)
		former.Result = nil // prevResult is the input of ADD
	}
	ended, killed := c.Removal(former), false
	switch {
	case former.Lost():
	case c.Stale(former):
		c.Log.Warn("cleaning up a stale attachment", "since", former.Time)
		ended.Netns = "" // its path may now lead to another pod's namespace
	case len(former.Delegates) == 0:
		return former, nil
	case former.Complete:
		remedy := "run DEL first: adding it again would tear down the network that its delegates made"
		if c.Config.PrevResult != nil && (len(c.Config.Delegates) == 0 || former.PrevResult == nil) {
			remedy = "devinfo appears twice in this chain: remove one of the two"
		}
		return nil, failure.New(failure.Config, fmt.Errorf("attachment %s exists, since %s", c.Key, former.Time.Format("2006-01-02 15:04:05 MST")), remedy)
	default:
		c.Log.Warn("cleaning up after an unfinished ADD", "since", former.Time)
		killed = true
	}
	if file != "" && file == former.File {
		err = c.spareFile(ended, killed)
	}
	if err == nil {
		err = ended.Run()
	}
	if err != nil {
		return nil, fmt.Errorf("clean up after an earlier ADD: %w", err)
	}
	return nil, nil
}

// spareFile keeps a device-info file that another program, such as a delegate or the runtime, wrote before the former ADD or
// since. What a killed ADD has replaced comes back.
func (c *Call) spareFile(ended *cleanup.Removal, killed bool) error {
	dir, former := store.Open(ended.Dir), ended.Entry
	text, info, err := c.readInfo(dir, ended.File)
	if err != nil || info == nil {
		return err
	}
	own := sameInfo(text, ownInfo(former))
	if own && killed {
		err = setContent(dir, former.File, former.Original)
	}
	if !own || killed {
		ended.File = ""
	}
	return err
}
