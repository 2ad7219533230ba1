package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/state"
)

// attach attaches a pod's claims in order, or none of them. ctx limits how long it waits
// for their turn, not the work.
func (a *Agent) attach(ctx context.Context, sb sandbox, claims []*claim, try *attempt) (err error) {
	if err := take(ctx, claims...); err != nil {
		return err
	}
	defer give(claims...)
	a.trying(claims, try)
	defer a.trying(claims, nil)
	if n := slices.IndexFunc(claims, func(c *claim) bool { return c.gone }); n >= 0 {
		return fmt.Errorf("claim %s: unprepared meanwhile", claims[n].ref)
	}
	stale := func(at *state.Attachment) bool { return at.Sandbox != sb.id || at.Phase != state.Added }
	if err := a.detachAll(claims, stale, ""); err != nil {
		return fmt.Errorf("detach an earlier sandbox first: %w", err)
	}
	done := false
	defer func() {
		if !done {
			a.undo(claims, sb, err)
		}
	}()
	for _, c := range claims {
		if err := a.attachClaim(c, sb, try); err != nil {
			return err
		}
	}
	for _, c := range claims {
		if try.isGivenUp() {
			return errTooLate
		}
		if err := a.open(ctx, c); err != nil {
			return fmt.Errorf("claim %s: %w", c.ref, err)
		}
	}
	if !try.commit() {
		return errTooLate
	}
	done = true
	a.report(claims...)
	return nil
}

// trying notes which attempt the claims are in.
func (a *Agent) trying(claims []*claim, try *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range claims {
		c.attempt = try
	}
}

// attachClaim adds each attachment of a claim that is not there yet.
func (a *Agent) attachClaim(c *claim, sb sandbox, try *attempt) error {
	for n := range c.record.Attachments {
		at := &c.record.Attachments[n]
		if at.Phase == state.Added {
			continue
		}
		if try.isGivenUp() {
			return errTooLate
		}
		if err := a.add(c, at, sb); err != nil {
			at.Error = err.Error()
			return fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err)
		}
	}
	return nil
}

// add runs ADD, which is on record before and after.
func (a *Agent) add(c *claim, at *state.Attachment, sb sandbox) error {
	before := *at
	at.Phase, at.Error = state.Adding, ""
	at.Execution = state.Execution{
		Sandbox: sb.id, Netns: sb.netns, BootID: a.BootID, Args: cniArgs(sb),
		InfoFile: a.infos.Path(attachment.FileName(at.Network, sb.id, at.IfName)),
	}
	if err := a.save(c, "adding"); err != nil {
		*at = before // nothing was run
		return &execError{ReasonNode, err}
	}
	began := time.Now()
	err := a.run(c, at)
	a.executed("ADD", began, err)
	if err != nil {
		return err
	}
	at.Phase = state.Added
	at.Ready.Set(metav1.ConditionTrue, time.Now())
	c.record.StatusOwed = true
	return a.save(c, "added")
}

// run runs ADD and takes in what it gives.
func (a *Agent) run(c *claim, at *state.Attachment) (err error) {
	at.Result, err = a.cni.add(key(c, at), at)
	a.step("exec ADD")
	if err != nil {
		return err
	}
	info, err := a.readInfo(at)
	if err != nil {
		return &execError{ReasonInfo, err}
	}
	at.Metadata, err = a.describe(at, info)
	return err
}

// readInfo reads the device-info file, if a plugin has written one. One that makes no
// sense fails the ADD: the pod would not find its device. One of another major version
// is the pod's to read.
func (a *Agent) readInfo(at *state.Attachment) (*devinfo.Info, error) {
	name, err := a.infos.Name(at.InfoFile)
	if err != nil {
		return nil, err
	}
	data, err := a.infos.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("device-info file of network %s: %w", at.Network, err)
	}
	info, err := a.infos.Parse(name, data)
	var version *devinfo.VersionError
	switch {
	case errors.As(err, &version):
		a.Log.Warn("device-info file not understood", "network", at.Network, "error", err)
		info = nil
	case err != nil:
		return nil, fmt.Errorf("device-info file of network %s: %w: correct the CNI plugin that wrote it", at.Network, err)
	}
	at.Info = data
	return info, nil
}

// describe is what the pod's metadata file says of a device.
func (a *Agent) describe(at *state.Attachment, info *devinfo.Info) (*state.Metadata, error) {
	data, warnings, err := metadata.NetworkData(at.Result, at.IfName, at.Netns)
	if err != nil {
		return nil, &execError{ReasonOutput, fmt.Errorf("network %s: %w", at.Network, err)}
	}
	_, more := metadata.Data(at.Result) // as the status will have it
	a.leftOut(at, append(warnings, more...))
	m := &state.Metadata{NetworkData: data}
	if info != nil && a.Attributes != nil {
		m.Attributes = a.Attributes(info)
	}
	return m, nil
}

func (a *Agent) leftOut(at *state.Attachment, warnings []string) {
	for _, w := range warnings {
		a.Log.Warn(w, "network", at.Network, "sandbox", at.Sandbox, "ifName", at.IfName)
	}
}

// undo detaches what an attempt has attached, and says why.
func (a *Agent) undo(claims []*claim, sb sandbox, why error) {
	ours := func(at *state.Attachment) bool { return at.Sandbox == sb.id }
	if err := a.detachAll(claims, ours, why.Error()); err != nil {
		a.Log.Error("what was attached is not detached yet", "pod", sb.pod, "sandbox", sb.id, "error", err)
	}
	for _, c := range claims {
		for n := range c.record.Attachments {
			at := &c.record.Attachments[n]
			if at.Error == "" {
				at.Error = why.Error()
			}
			at.Ready.Set(metav1.ConditionFalse, time.Now())
		}
		c.record.StatusOwed = true
		if err := a.save(c, "undone"); err != nil {
			a.Log.Error("record of a failure", "claim", c.ref, "error", err)
		}
	}
	a.report(claims...)
}

// key names the directory of an attachment.
func key(c *claim, at *state.Attachment) string { return string(c.ref.UID) + "@" + at.IfName }

// executed counts one run of a CNI network.
func (a *Agent) executed(verb string, began time.Time, err error) {
	if a.Metrics.Exec != nil {
		a.Metrics.Exec(verb, time.Since(began), reasonOf(err))
	}
}
