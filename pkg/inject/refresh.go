package inject

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
)

// everything is after which time all sandboxes are looked at, be nothing new to be seen: a
// file that is written over in its place changes no directory.
const everything = time.Minute

// keep keeps the staged files as the journal has them, until ctx ends.
func (a *Plugin) keep(ctx context.Context) {
	var seen state
	for {
		seen = a.refresh(seen)
		select {
		case <-ctx.Done():
			return
		case <-a.woken:
		case <-time.After(a.Interval):
		}
	}
}

type state struct {
	journal, files time.Time // of the last change
	settings       [2]string // the two directories
	at             time.Time // when all was looked at; zero = something must be looked at again
}

// refresh removes the directories of sandboxes that have ended, and, where there is something
// new, makes the others as they should be.
func (a *Plugin) refresh(seen state) state {
	settings, err := a.Node()
	a.warn("settings", err)
	now, changed := state{}, false
	if err == nil {
		now, changed = a.look(settings, seen)
	}
	a.mu.Lock()
	ended := a.ended
	a.ended = map[string]bool{}
	a.mu.Unlock()
	ids, err := a.stage.sandboxes()
	a.warn(a.StageDir, err)
	left := 0
	for _, id := range ids {
		gone, err := a.removeEnded(id, ended[id])
		if err == nil && !gone && changed {
			err = a.restage(settings, id)
		}
		if a.warn(id, err); err != nil {
			now.at = time.Time{}
		}
		if !gone {
			left++
		}
	}
	a.Metrics.Staged(left)
	return now
}

// warn tells once of what is wrong with a sandbox, or with what all of them need.
func (a *Plugin) warn(of string, err error) {
	if err == nil {
		delete(a.warned, of)
		return
	}
	if a.warned[of] != err.Error() {
		a.warned[of] = err.Error()
		a.Log.Warn("device information in containers may be outdated", "source", of, "error", err)
	}
}

// look says what there is to see now, and whether that is another thing than was seen.
func (a *Plugin) look(settings config.Node, seen state) (state, bool) {
	now := state{settings: [2]string{settings.StateDir, settings.DeviceInfoDir}, at: seen.at}
	var err error
	now.journal, err = journal.Open(settings.StateDir, a.BootID).Changed()
	a.warn(settings.StateDir, err)
	stat, err := os.Stat(settings.DeviceInfoDir)
	switch {
	case err == nil:
		now.files = stat.ModTime()
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	a.warn(settings.DeviceInfoDir, err)
	if now == seen && !seen.at.IsZero() && time.Since(seen.at) < everything {
		return seen, false
	}
	now.at = time.Now()
	return now, true
}

// removeEnded removes the directory of a sandbox that has ended. Its network namespace tells, but
// for one that is named by a process, whose number may be another's by now: of that the runtime's
// list does.
func (a *Plugin) removeEnded(id string, ended bool) (gone bool, err error) {
	a.staging.Lock() // one that is being made has no netns either
	defer a.staging.Unlock()
	netns, err := a.stage.netns(id)
	if err != nil {
		return false, err
	}
	gone = ended || netns == "" || a.Orphaned(id, time.Time{}) && link.NetnsNamesProcess(netns)
	if !gone {
		if gone, err = a.NetnsGone(netns); err != nil {
			a.Log.Debug("cannot tell whether the sandbox has ended", "sandbox", id, "error", err)
			return false, nil
		}
	}
	if !gone {
		return false, nil
	}
	return true, os.RemoveAll(filepath.Join(a.stage.root, id))
}

// RemoveEnded removes the directories of sandboxes that have ended, as Run does all the time.
// If free, no attachment is on record: a sandbox without a device-info file has had its DEL
// then, and its namespace is about to go.
func (a *Plugin) RemoveEnded(node config.Node, free bool) error {
	ids, err := a.stage.sandboxes()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, id := range ids {
		found := map[string]nic{}
		err := a.named(node, id, found)
		_, left := a.removeEnded(id, free && err == nil && len(found) == 0)
		errs = append(errs, err, left)
	}
	return errors.Join(errs...)
}

// restage makes a sandbox's directory as it should be. An error is also a file that is gone:
// it may be that it is being written.
func (a *Plugin) restage(settings config.Node, id string) error {
	a.staging.Lock()
	defer a.staging.Unlock()
	netns, err := a.stage.netns(id)
	if err != nil {
		return err
	}
	nics, err := a.attachments(settings, id, netns)
	if err != nil {
		return err
	}
	a.stage.recall(id, nics)
	errs := []error{a.stage.put(id, netns, files(nics), nil)}
	for _, n := range nics {
		errs = append(errs, n.gone)
	}
	return errors.Join(errs...)
}
