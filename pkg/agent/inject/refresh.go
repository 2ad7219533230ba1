package inject

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// everything is the interval between complete refreshes. Rewriting a file in place does not change the
// modification time of its directory, so only a complete refresh notices it.
const everything = time.Minute

// tick is longer than the clock of modification times stands still (jiffies, at most 10 ms).
const tick = 20 * time.Millisecond

// keep refreshes the staged copies until ctx ends.
func (p *Plugin) keep(ctx context.Context) {
	var seen state
	for {
		seen = p.refresh(seen)
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.Interval):
		}
	}
}

// state is the input of a refresh.
type state struct {
	journal, files time.Time // times of the last change, which differ for other directories too
	at             time.Time // time of the last complete refresh; zero = refresh all sandboxes next time
}

// refresh removes the directories of sandboxes that have ended. If the input differs from seen, or a complete
// refresh is due, it updates the copies of the remaining sandboxes. It returns the new input.
func (p *Plugin) refresh(seen state) state {
	settings, err := p.Node()
	p.warn("settings", err)
	now, changed := state{}, false
	if err == nil {
		now, changed = p.look(settings, seen)
	}
	p.mu.Lock()
	ended := p.ended
	p.ended = map[string]bool{}
	p.mu.Unlock()
	var l listing
	if changed {
		l, err = p.list(settings, new(atomic.Bool))
		if p.warn("attachments", err); err != nil {
			now.at, changed = time.Time{}, false
		}
	}
	ids, err := p.stage.sandboxes()
	if p.warn(p.StageDir, err); err != nil {
		now.at = time.Time{}
	}
	left := 0
	for _, id := range ids {
		netns, gone, err := p.removeEnded(id, ended[id])
		if err == nil && !gone && changed {
			err = p.restage(settings, l, id, netns)
		}
		if p.warn(id, err); err != nil {
			now.at = time.Time{}
		}
		if !gone {
			left++
		}
	}
	p.Metrics.Staged(left)
	return now
}

// warn logs an error once, until it changes or ends. Its source is a sandbox, a directory, the settings or the attachments.
func (p *Plugin) warn(of string, err error) {
	if err == nil {
		delete(p.warned, of)
		return
	}
	if p.warned[of] != err.Error() {
		p.warned[of] = err.Error()
		p.Log.Warn("device information in containers may be outdated", "source", of, "error", err)
	}
}

// look returns the present state, and whether the copies must be refreshed.
func (p *Plugin) look(settings config.Node, seen state) (state, bool) {
	now := state{at: seen.at}
	var err error
	now.journal, err = journal.Open(settings.StateDir, p.BootID).Changed()
	p.warn(settings.StateDir, err)
	stat, err := os.Stat(settings.DeviceInfoDir)
	if err == nil {
		now.files = stat.ModTime()
	}
	p.warn(settings.DeviceInfoDir, store.UnlessGone(err))
	if now == seen && !seen.at.IsZero() && time.Since(seen.at) < everything {
		return seen, false
	}
	if now.at = time.Now(); now.at.Sub(now.journal) < tick || now.at.Sub(now.files) < tick {
		now.at = time.Time{} // the next change may get the same time
	}
	return now, true
}

// removeEnded removes the directory of a sandbox that the runtime removed or whose network namespace, netns, no longer exists.
// If the path of the namespace contains a process ID, which another process may have now, the runtime's list decides. A
// directory without a netns link is removed too.
func (p *Plugin) removeEnded(id string, ended bool) (netns string, gone bool, err error) {
	p.staging.Lock() // a directory that is being created has no netns link yet
	defer p.staging.Unlock()
	netns, err = p.stage.netns(id)
	if err != nil {
		return "", false, err
	}
	gone = ended || netns == "" || p.Orphaned(id, time.Time{}) && link.NetnsNamesProcess(netns)
	if !gone {
		if gone, err = p.NetnsGone(netns); err != nil {
			p.Log.Debug("cannot determine whether the sandbox has ended", "sandbox", id, "error", err)
			return netns, false, nil
		}
	}
	if !gone {
		return netns, false, nil
	}
	delete(p.staged, id)
	return "", true, os.RemoveAll(filepath.Join(p.stage.root, id))
}

// RemoveEnded removes the directories of sandboxes that have ended. free is true if the journal has no
// attachments. A sandbox without device-info files then counts as ended, because its DEL has run and the
// runtime is about to remove its network namespace.
func (p *Plugin) RemoveEnded(node config.Node, free bool) error {
	ids, err := p.stage.sandboxes()
	errs := []error{store.UnlessGone(err)}
	for _, id := range ids {
		found := map[string]nic{}
		l, err := p.list(node, new(atomic.Bool), id)
		if err == nil {
			err = l.named(id, found)
		}
		_, _, left := p.removeEnded(id, free && err == nil && len(found) == 0)
		errs = append(errs, err, left)
	}
	return errors.Join(errs...)
}

// restage updates the directory of a sandbox. It returns an error if a device-info file is missing, because ADD
// may be about to write the file. The next refresh then retries.
func (p *Plugin) restage(settings config.Node, l listing, id, netns string) error {
	nics, staged, err := p.prepare(settings, l, id, netns, nil)
	errs := []error{err, staged}
	for _, n := range nics {
		errs = append(errs, n.gone)
	}
	return errors.Join(errs...)
}
