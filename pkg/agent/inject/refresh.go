package inject

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
)

// everything is the interval between complete refreshes. Rewriting a file in place does not change the
// modification time of its directory, so only a complete refresh notices it.
const everything = time.Minute

// keep refreshes the staged copies until ctx ends.
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

// state is the input of a refresh.
type state struct {
	journal, files time.Time // times of the last change
	settings       [2]string // stateDir and deviceInfoDir
	at             time.Time // time of the last complete refresh; zero = refresh all sandboxes next time
}

// refresh removes the directories of sandboxes that have ended. If the input differs from seen, or a complete
// refresh is due, it updates the copies of the remaining sandboxes. It returns the new input.
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

// warn logs an error of a source once, until the error changes or ends. A source is a sandbox, a directory
// or the settings.
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

// look returns the present state, and whether the copies must be refreshed.
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

// removeEnded removes the directory of a sandbox that has ended. A sandbox has ended if the runtime removed
// it or its network namespace no longer exists. If the path of the namespace contains a process ID, another
// process may have that ID now. Such a sandbox has ended if it is missing from the runtime's list. A directory
// without a netns link is removed too.
func (a *Plugin) removeEnded(id string, ended bool) (gone bool, err error) {
	a.staging.Lock() // a directory that is being created has no netns link yet
	defer a.staging.Unlock()
	netns, err := a.stage.netns(id)
	if err != nil {
		return false, err
	}
	gone = ended || netns == "" || a.Orphaned(id, time.Time{}) && link.NetnsNamesProcess(netns)
	if !gone {
		if gone, err = a.NetnsGone(netns); err != nil {
			a.Log.Debug("cannot determine whether the sandbox has ended", "sandbox", id, "error", err)
			return false, nil
		}
	}
	if !gone {
		return false, nil
	}
	return true, os.RemoveAll(filepath.Join(a.stage.root, id))
}

// RemoveEnded removes the directories of sandboxes that have ended. free is true if the journal has no
// attachments. A sandbox without device-info files then counts as ended, because its DEL has run and the
// runtime is about to remove its network namespace.
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

// restage updates the directory of a sandbox. It returns an error if a device-info file is missing, because ADD
// may be about to write the file. The next refresh then retries.
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
