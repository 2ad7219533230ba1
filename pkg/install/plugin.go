package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Name is the plugin's: "type" in network configurations.
const Name = "devinfo"

// What came of a file.
const (
	Installed    = "installed"
	Replaced     = "replaced"
	AlreadyThere = "already there"
)

// Installation is what has been done about the plugin.
type Installation struct {
	Path    string      `json:"path"`
	State   string      `json:"state"`         // "" = it was refused, or failed
	Old     *Executable `json:"old,omitempty"` // nil = there was none
	New     Executable  `json:"new"`
	Warning error       `json:"-"` // the label of the directory could not be given
}

// Place puts the plugin into the directory once, for people and for who wants a devinfo of its
// build. All is as with Keep, but that a file that is no devinfo, or does not say its version, is
// put there without rules: who names it wants it. It is not marked as an agent's, which puts its
// own back.
func (p *Plugin) Place(ctx context.Context) (*Installation, error) {
	done, err := p.examine(ctx)
	if err == nil && done.New.JournalFormat > 0 {
		err = p.permit(done)
	}
	if err != nil {
		return nil, err
	}
	return done, p.replace(done)
}

// Plugin keeps the plugin in a directory, in the place of any other devinfo: to go back to an
// older version is as good as an update. It replaces no other file, unless that is allowed or
// an agent has once put the plugin there. A journal with entries that the plugin could not read
// always stops it: it would take what is there for free.
type Plugin struct {
	From string // the file to install, of a devinfo that says its version
	Dir  string // where the runtime looks for plugins; it must exist

	OverwriteForeign bool
	Newer            func(than int) (pods []string, err error) // [journal.Journal.Newer]

	from, to memo
}

func (p *Plugin) at() file { return file(filepath.Join(p.Dir, Name)) }

// IsThere says whether there is anything of the plugin's name.
func (p *Plugin) IsThere() bool {
	_, err := os.Lstat(string(p.at()))
	return !errors.Is(err, fs.ErrNotExist)
}

// Kept reports whether an agent has put the plugin there by [Plugin.Keep].
func (p *Plugin) Kept() bool { return p.at().marked() }

// Keep sees to it that the plugin is there. It may be called often: what has not changed
// is not looked at again. With an error come the executables, as far as they are known.
func (p *Plugin) Keep(ctx context.Context) (*Installation, error) {
	done, err := p.examine(ctx)
	if err == nil {
		err = p.permit(done)
	}
	if err == nil {
		err = p.at().mark(done.New.SHA256)
	}
	if err == nil {
		err = p.replace(done)
	}
	if done.State == AlreadyThere {
		done.Warning = p.relabel()
	}
	return done, err
}

// examine looks at what there is, and what is to be there.
func (p *Plugin) examine(ctx context.Context) (*Installation, error) {
	done := &Installation{Path: string(p.at())}
	if _, err := os.Stat(p.Dir); err != nil {
		return done, fmt.Errorf("--cni-bin-dir: %w: set it to the directory where the container runtime looks for plugins", err)
	}
	want, err := p.from.examine(ctx, p.From)
	if err != nil {
		return done, err
	}
	done.New = *want
	if want.Problem != "" {
		return done, fmt.Errorf("%s does not run here: %s; nothing was changed", p.From, want.Problem)
	}
	done.Old, err = p.to.examine(ctx, string(p.at()))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case errors.Is(err, errIrregular):
		err = fmt.Errorf("%w: move it away", err)
	}
	return done, p.at().denied(err)
}

// permit says why the plugin must not be put there.
func (p *Plugin) permit(done *Installation) error {
	old, now := done.Old, &done.New
	if !now.IsDevinfo || now.JournalFormat == 0 {
		return fmt.Errorf("%s is not a devinfo plugin with --version: use the agent and the plugin of one build", p.From)
	}
	if same(old, now) {
		return nil
	}
	if old != nil && !old.IsDevinfo && !p.at().marked() && !p.OverwriteForeign {
		return fmt.Errorf("%s is not a devinfo plugin: remove it, or overwrite it with --overwrite-foreign", p.at())
	}
	pods, err := p.Newer(now.JournalFormat)
	if err != nil {
		return fmt.Errorf("cannot check that devinfo %s can read the journal's entries: %w", now.Version, err)
	}
	if len(pods) > 0 {
		return fmt.Errorf("the journal has entries in a newer format than %d, the newest that devinfo %s reads: install the devinfo that wrote them, or delete these first: %s",
			now.JournalFormat, now.Version, Some(pods))
	}
	return nil
}

// Some joins the first 20 names, and counts the others.
func Some(names []string) string {
	const enough = 20
	if more := len(names) - enough; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:enough], ", "), more)
	}
	return strings.Join(names, ", ")
}

func same(old, now *Executable) bool {
	return old != nil && old.SHA256 == now.SHA256 && old.Problem == ""
}

// replace puts the new plugin in the place of the old one, unless that is the same.
func (p *Plugin) replace(done *Installation) error {
	if same(done.Old, &done.New) && done.Old.usable {
		done.State = AlreadyThere
		return nil
	}
	data, err := os.ReadFile(p.From)
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
	p.to.settle(string(p.at()), done.New)
	return nil
}

// relabel gives the file that is there the label of the directory, if it has another.
func (p *Plugin) relabel() error {
	f, err := os.Open(string(p.at()))
	if err != nil {
		return err
	}
	defer f.Close()
	return inherit(f, p.Dir)
}

// Remove removes the plugin if it is devinfo, or what an agent has put there; else it is
// left alone, and removed is false.
func (p *Plugin) Remove(ctx context.Context) (removed bool, err error) {
	e, err := Examine(ctx, string(p.at()))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, p.at().remove()
	case err != nil:
		return false, err
	case !e.IsDevinfo && e.SHA256 != p.at().sum():
		return false, nil
	}
	return true, p.at().remove()
}

// memo is what is known of an executable, until its file changes.
type memo struct {
	stamp syscall.Stat_t
	known *Executable
}

// stampOf changes with a file, its content and its rights, but not when it is read.
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
	if err != nil {
		return nil, err
	}
	e, err := Examine(ctx, path)
	if err == nil && ctx.Err() == nil {
		*m = memo{now, e}
	}
	return e, err
}

// settle notes what has just been put there: better it does not get.
func (m *memo) settle(path string, e Executable) {
	*m, e.usable = memo{}, true
	if now, err := stampOf(path); err == nil {
		*m = memo{now, &e}
	}
}
