package devinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"devinfo-cni.io/devinfo"
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
	cdi      *config.CDI // cdi of the configuration; nil = no spec
	spec     journal.CDI
	result   *result.Result // the CNI result so far: the prevResult, or the last delegate's result; nil = none

	output json.RawMessage // the text of the last delegate's result; nil = none

	// last is the attachment's entry in the journal, locked: of a former, live ADD, or what this ADD has recorded for its
	// delegates; nil = none.
	last *journal.Entry
}

// read reads the arguments of ADD, cleans up after a former ADD of the attachment, and reads the device-info file. It
// returns an error if ADD cannot succeed.
func (c *Call) read(done *undo) (r request, err error) {
	r.c = c
	if err := c.delegatesProblem(); err != nil {
		return r, err
	}
	if err := checkNetns(c.Args); err != nil {
		return r, err
	}
	doubts, err := attachment.Vet(c.Config)
	if err != nil {
		return r, err
	}
	var warnings devinfo.Violations
	if r.declared, warnings, err = c.Attachment.Declared(c.Config); err != nil {
		return r, err
	}
	for _, w := range slices.Concat(doubts, warnings) {
		c.Log.Warn("deviceInfo: " + w.String())
	}
	name, err := c.wantedFile()
	if err != nil {
		return r, err
	}
	if r.cdi, r.spec, err = c.wantedSpec(); err != nil {
		return r, err
	}
	if r.result, err = c.prevResult(); err != nil {
		return r, err
	}
	var former infoFile
	if r.last, former, err = c.takeOver(name, done); err != nil {
		return r, err
	}
	if r.file, err = c.readInfoFile(name, former); err != nil {
		return r, err
	}
	return r, r.refuse()
}

// refuse returns an error if neither the file nor the configuration leads to a device, if they have different types, or if
// the CDI spec belongs to another attachment or program.
func (r request) refuse() error {
	if r.file.external == nil && attachment.LeadsToNoDevice(r.c.Config, r.declared) {
		return failure.New(failure.Config, errors.New("the configuration gives devinfo nothing to do"),
			`chain it after the plugin that creates the interface and passes a prevResult, or list child plugins ("delegates": [{"type": …}]), `+
				`or name the device ("deviceID": "0000:01:00.2", or "deviceInfo": {"type": …})`)
	}
	if err := r.checkType(); err != nil || r.cdi == nil {
		return err
	}
	return r.c.refuseOwned(r.spec)
}

// checkType returns an error if the declared type differs from the file's, because ADD changes neither.
func (r request) checkType() error {
	declared, file := r.declared, r.file.external
	if declared == nil || file == nil || declared.Type == "" || file.Type == "" || declared.Type == file.Type {
		return nil
	}
	return failure.New(failure.Mismatch, fmt.Errorf("deviceInfo declares type %q, but the device-info file %s has type %q", declared.Type, r.c.Attachment.Path, file.Type),
		"correct deviceInfo, or the device plugin that wrote the file")
}

// wantedFile returns the name of the device-info file. Without a path it logs a warning, or fails if strict is set.
func (c *Call) wantedFile() (string, error) {
	name, err := c.infoFileName()
	if err != nil || name != "" {
		return name, err
	}
	err = errors.New("the runtime passed no runtimeConfig.CNIDeviceInfoFile: no device-info file is written")
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
	return "", err
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
// takeOver returns what the former ADD wrote to the device-info file of this name, and what another program had written
// before. It returns neither if another program has replaced the content, or after a cleanup, except that of a killed ADD.
func (c *Call) takeOver(file string, done *undo) (_ *journal.Entry, f infoFile, err error) {
	former, err := c.cleaner().LockAnyway(c.Key)
	if err != nil || former == nil {
		return nil, f, err
	}
	done.entry = former
	if former.Lost() { // only the leases and this configuration show what to clean up
		former.Netns = c.Args.Netns
		c.reconstruct(former)
		former.Result = nil // prevResult is the input of ADD
	}
	ended, unfinished := c.cleaner().Removal(former), false
	switch {
	case former.Lost():
	case c.cleaner().Stale(former):
		c.Log.Warn("cleaning up a stale attachment", "since", former.Time)
		ended.Netns = "" // its path may now lead to another pod's namespace
	case len(former.Delegates) == 0:
		f, _, err = c.formerContent(former, file)
		return former, f, err
	case former.Complete:
		remedy := "run DEL first: adding it again would tear down the network that its delegates made"
		if c.Config.PrevResult != nil && (len(c.Config.Delegates) == 0 || former.PrevResult == nil) {
			remedy = "devinfo appears twice in this chain: remove one of the two"
		}
		return nil, f, failure.New(failure.Config, fmt.Errorf("attachment %s exists, since %s", c.Key, former.Time.Format("2006-01-02 15:04:05 MST")), remedy)
	default:
		c.Log.Warn("cleaning up after an unfinished ADD", "since", former.Time)
		unfinished = true
	}
	f, external, err := c.formerContent(former, file)
	if external {
		ended.File = "" // this ADD reads a file of another program
	}
	if err == nil {
		err = ended.Run()
	}
	if err != nil {
		return nil, f, fmt.Errorf("clean up after an earlier ADD: %w", err)
	}
	former.Unlock()
	if !unfinished {
		f = infoFile{}
	}
	return nil, f, nil
}

// formerContent returns the content of the device-info file if a former ADD wrote it, with what that replaced. external is
// true if another program, such as a delegate or the runtime, wrote the content before that ADD or since.
func (c *Call) formerContent(former *journal.Entry, file string) (f infoFile, external bool, err error) {
	if former.File == "" || former.File != file {
		return f, false, nil
	}
	dir := store.Open(former.Dir)
	_, info, err := c.readInfo(dir, former.File)
	if err != nil || info == nil {
		return f, false, err
	}
	if former.Kept || !sameInfo(former.Info, info) {
		return f, true, nil
	}
	f.own = info
	if former.Original != nil {
		f.original = former.Original
		f.external, err = parseInfo(dir, former.File, former.Original, c.Log)
	}
	return f, false, err
}
