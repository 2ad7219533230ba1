package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/host/store"
)

// Name is the plugin's file name and its "type" in network configurations.
const Name = "devinfo"

const (
	Installed    = "installed"
	Replaced     = "replaced"
	AlreadyThere = "already there"
)

// Installation is the result of installing the plugin.
type Installation struct {
	Path    string      `json:"path"`
	State   string      `json:"state"`         // "" if the installation was refused or failed
	Old     *Executable `json:"old,omitempty"` // nil if the plugin did not exist
	New     Executable  `json:"new"`
	Warning error       `json:"-"` // the error of setting the SELinux label
}

// Place installs the plugin once. It does not mark the file for an agent, so an agent does not restore it. With
// ForDriver it marks each file that it installs or replaces, or that an agent keeps, for [PluginFile.RemovePlaced].
func (p *PluginFile) Place(ctx context.Context) (*Installation, error) {
	done, err := p.examine(ctx)
	if err == nil && p.ForDriver {
		var kept bool
		kept, err = p.Kept()
		if err == nil && (kept || !same(done.Old, &done.New)) { // another identical file may be an administrator's
			err = p.at().mark(p.at().driverMark(), done.New.SHA256)
		}
	}
	if err != nil {
		return nil, err
	}
	return done, p.replace(done)
}

// PluginFile is the installation of the plugin in a directory. It replaces any version of devinfo, newer or
// older. It replaces another file only if OverwriteForeign is set or the file is marked. It never installs
// a plugin that cannot read all entries of the journal, because that plugin would treat devices in use as
// free.
type PluginFile struct {
	From string // the plugin binary to install, a devinfo that supports --version
	Dir  string // existing directory where the runtime looks for plugins

	OverwriteForeign bool
	ForDriver        bool                                      // see Place
	Newer            func(than int) (pods []string, err error) // [journal.Journal.Newer]

	from, to memo
}

func (p *PluginFile) at() file { return file(filepath.Join(p.Dir, Name)) }

func (p *PluginFile) IsThere() bool {
	_, err := os.Lstat(string(p.at()))
	return !errors.Is(err, fs.ErrNotExist)
}

// Kept reports whether [PluginFile.Keep] has installed the plugin.
func (p *PluginFile) Kept() (bool, error) { return p.at().marked() }

// Placed reports whether cni-dra-driver needs the plugin, because [PluginFile.Place] has marked it for the driver.
func (p *PluginFile) Placed() (bool, error) {
	sum, err := p.at().driverMark().sum()
	return sum != "", err
}

// Keep installs the plugin if it is missing or differs from From. It may be called often, because it
// examines unchanged files only once. The Installation is never nil: if there is an error, it contains the
// executables as far as they are known.
func (p *PluginFile) Keep(ctx context.Context) (*Installation, error) {
	done, err := p.examine(ctx)
	if err == nil {
		err = p.at().mark(p.at().agentMark(), done.New.SHA256)
	}
	if err == nil {
		err = p.replace(done)
	}
	if done.State == AlreadyThere {
		done.Warning = p.relabel()
	}
	return done, err
}

// examine returns the executables, and the reason why the plugin must not be installed.
func (p *PluginFile) examine(ctx context.Context) (*Installation, error) {
	done := &Installation{Path: string(p.at())}
	if _, err := os.Stat(p.Dir); err != nil {
		return done, fmt.Errorf("--cni-bin-dir: %w: set it to the directory where the container runtime looks for plugins", err)
	}
	want, err := p.from.examine(ctx, p.From)
	if err != nil {
		return done, err
	}
	done.New = *want
	if want.Problem != "" || want.JournalFormat == 0 {
		p.from = memo{} // it may run the next time: the node was perhaps too busy
	}
	if want.Problem != "" {
		return done, fmt.Errorf("%s does not run here: %s; nothing was changed", p.From, want.Problem)
	}
	done.Old, err = p.to.examine(ctx, string(p.at()))
	switch {
	case errors.Is(err, errIrregular):
		return done, fmt.Errorf("%w: move it away", err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return done, p.at().denied(err)
	}
	return done, p.permit(done)
}

// permit returns the reason why the plugin must not be installed, or nil.
func (p *PluginFile) permit(done *Installation) error {
	old, now := done.Old, &done.New
	if !now.IsDevinfo || now.JournalFormat == 0 {
		return fmt.Errorf("%s is not a devinfo plugin with --version: use the agent and the plugin of one build", p.From)
	}
	if same(old, now) {
		return nil
	}
	if old != nil && !old.IsDevinfo && !p.OverwriteForeign {
		if marked, err := p.at().marked(); err != nil || !marked {
			return cmp.Or(err, fmt.Errorf("%s is not a devinfo plugin: remove it, or overwrite it with --overwrite-foreign", p.at()))
		}
	}
	pods, err := p.Newer(now.JournalFormat)
	if err != nil {
		return fmt.Errorf("cannot check that devinfo %s can read the journal's entries: %w", now.Version, err)
	}
	if len(pods) > 0 {
		return fmt.Errorf("the journal has entries in a newer format than %d, the newest that devinfo %s reads: install the devinfo that wrote them, or delete these first: %s",
			now.JournalFormat, now.Version, clierr.Few(pods, 20))
	}
	return nil
}

func same(old, now *Executable) bool {
	return old != nil && old.SHA256 == now.SHA256 && old.Problem == ""
}

func (p *PluginFile) replace(done *Installation) error {
	if same(done.Old, &done.New) && done.Old.usable {
		done.State = AlreadyThere
		return nil
	}
	data, err := store.ReadFile(p.From, largest)
	if err != nil {
		return err
	}
	if checksum(data) != done.New.SHA256 {
		return fmt.Errorf("%s: the source file changed while it was being copied", p.at())
	}
	if done.Warning, err = p.at().put(data, 0o755); err != nil {
		return err
	}
	done.State = Replaced
	if done.Old == nil {
		done.State = Installed
	}
	settled := done.New
	settled.usable = true // even if the owner or the mode is wrong, because another installation could not improve them
	if p.to.stamp, err = stampOf(string(p.at())); err == nil {
		p.to.known = &settled
	}
	return nil
}

func (p *PluginFile) relabel() error {
	f, err := os.OpenFile(string(p.at()), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return inherit(f, p.Dir)
}

// Remove removes the plugin if it is devinfo or a file that an agent has installed. It does not remove another file, and
// removed is false. It leaves a devinfo that cni-dra-driver needs too to [PluginFile.RemovePlaced].
func (p *PluginFile) Remove(ctx context.Context) (removed bool, err error) {
	placed, err := p.Placed()
	if err != nil {
		return false, err
	}
	e, err := Examine(ctx, string(p.at()))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, p.at().remove()
	case err != nil:
		return false, err
	case !e.IsDevinfo:
		if sum, err := p.at().agentMark().sum(); e.SHA256 != sum {
			return false, err
		}
	case placed:
		if err = p.at().mark(p.at().driverMark(), e.SHA256); err == nil { // the agent may have replaced it
			err = p.at().agentMark().remove()
		}
		return false, err
	}
	return true, p.at().remove()
}

// RemovePlaced removes the plugin if [PluginFile.Place] has installed it for cni-dra-driver, unless an agent keeps it or
// another program has replaced it. It always removes the mark of the driver.
func (p *PluginFile) RemovePlaced() (removed bool, err error) {
	at := p.at()
	kept, err := at.marked()
	if err == nil && !kept {
		removed, err = at.removeUnchanged(at.driverMark())
	}
	if err != nil {
		return false, err
	}
	return removed, at.driverMark().remove() // last, so that an interrupted removal can be repeated
}

// memo caches the description of an executable until its file changes.
type memo struct {
	stamp syscall.Stat_t
	known *Executable
}

// stampOf returns the attributes of a file without its access time. They change when the file is written or
// its mode or owner changes.
func stampOf(path string) (syscall.Stat_t, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return syscall.Stat_t{}, err
	}
	stamp := *stat.Sys().(*syscall.Stat_t)
	stamp.Atim = syscall.Timespec{}
	return stamp, nil
}

func (m *memo) examine(ctx context.Context, path string) (*Executable, error) {
	now, err := stampOf(path)
	if err == nil && m.known != nil && m.stamp == now {
		return m.known, nil
	}
	*m = memo{}
	e, err := Examine(ctx, path) // fails like stampOf
	if err == nil && ctx.Err() == nil {
		*m = memo{now, e}
	}
	return e, err
}
