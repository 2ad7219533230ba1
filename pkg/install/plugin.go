package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Name is the plugin's: "type" in network configurations.
const Name = "devinfo"

// What came of a file.
const (
	Installed    = "installed"
	Replaced     = "replaced"
	AlreadyThere = "already there"
	Higher       = "a higher version is there" // of Place only: it stays
)

// Installation is what has been done about the plugin.
type Installation struct {
	Path    string      `json:"path"`
	State   string      `json:"state"`         // "" = it was refused, or failed
	Old     *Executable `json:"old,omitempty"` // nil = there was none
	New     Executable  `json:"new"`
	Warning error       `json:"-"` // the label of the directory could not be given
}

// Place puts the plugin into the directory once, by the rules of an agent, for people and
// for who wants any devinfo that is new enough: a higher version stays, which is no error.
// A file that is no devinfo, or does not say its version, is put there without rules: who
// names it wants it. It is not marked as an agent's.
func (p *Plugin) Place(ctx context.Context) (*Installation, error) {
	done, err := p.examine(ctx)
	if err == nil && done.New.JournalFormat > 0 {
		err = p.permit(done)
	}
	if higher := (*higherError)(nil); errors.As(err, &higher) {
		done.State = Higher
		return done, nil
	}
	if err != nil {
		return nil, err
	}
	return done, p.replace(done)
}

// higherError says that a higher version is there.
type higherError struct{ text string }

func (e *higherError) Error() string { return e.text }

// Plugin keeps the plugin in a directory. A lower version does not replace a higher one,
// nor anything a file that is not devinfo, unless that is allowed. A journal with entries
// that the plugin could not read always stops it: it would take what is there for free.
type Plugin struct {
	From string // the file to install, of a devinfo that says its version
	Dir  string // where the runtime looks for plugins; it must exist

	AllowDowngrade bool
	ReplaceForeign bool
	NewestFormat   func() (int, error) // of the journal's entries: [journal.Journal.NewestFormat]

	from, to memo
}

func (p *Plugin) at() file { return file(filepath.Join(p.Dir, Name)) }

// Keep sees to it that the plugin is there. It may be called often: what has not changed
// is not looked at again. With an error come the executables, as far as they are known.
func (p *Plugin) Keep(ctx context.Context) (*Installation, error) {
	done, err := p.examine(ctx)
	if err != nil {
		return done, err
	}
	if err := p.permit(done); err != nil {
		return done, err
	}
	if err := p.at().adopt(done.New.SHA256); err != nil {
		return done, err
	}
	if err := p.replace(done); err != nil {
		return done, err
	}
	if done.State == AlreadyThere {
		done.Warning = p.relabel()
	}
	return done, nil
}

// examine looks at what there is, and what is to be there.
func (p *Plugin) examine(ctx context.Context) (*Installation, error) {
	done := &Installation{Path: string(p.at())}
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
	return done, err
}

// permit says why the plugin must not be put there.
func (p *Plugin) permit(done *Installation) error {
	old, now := done.Old, &done.New
	if !now.Ours || now.JournalFormat == 0 {
		return fmt.Errorf("%s is not a devinfo plugin that knows --version: take agent and plugin from one build", p.From)
	}
	if same(old, now) {
		return nil
	}
	if old != nil && !old.Ours && !p.at().marked() && !p.ReplaceForeign {
		return fmt.Errorf("%s is not a devinfo plugin: remove it, or give --replace-foreign to replace it", p.at())
	}
	if old != nil && old.Ours && !p.AllowDowngrade {
		if n, ok := compare(now.Version, old.Version); ok && n < 0 {
			return &higherError{fmt.Sprintf("%s is %s, higher than %s: a lower version is only installed with --allow-downgrade", p.at(), old.Version, now.Version)}
		}
	}
	newest, err := p.NewestFormat()
	if err != nil {
		return fmt.Errorf("whether the journal has entries that devinfo %s cannot read: %w", now.Version, err)
	}
	if newest > now.JournalFormat {
		return fmt.Errorf("the journal has entries of format %d, and devinfo %s knows formats up to %d: delete the pods that a newer devinfo has attached, or install that one",
			newest, now.Version, now.JournalFormat)
	}
	return nil
}

func same(old, now *Executable) bool {
	return old != nil && old.SHA256 == now.SHA256 && old.Problem == ""
}

// replace puts the new plugin in the place of the old one, unless that is the same.
func (p *Plugin) replace(done *Installation) error {
	if same(done.Old, &done.New) && (done.Old.usable || p.to.settled) {
		done.State = AlreadyThere
		return nil
	}
	from, err := os.Open(p.From)
	if err != nil {
		return err
	}
	defer from.Close()
	if done.Warning, err = p.at().put(from, done.New.SHA256, 0o755); err != nil {
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
		return false, gone(p.at().remove())
	case err != nil:
		return false, err
	case !e.Ours && e.SHA256 != p.at().sum():
		return false, nil
	}
	return true, p.at().remove()
}

// gone makes success of a directory that is not there: nothing can be in it.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// memo is what is known of an executable, until its file changes.
type memo struct {
	stamp   stamp
	known   *Executable
	settled bool // it has just been put there: better it does not get
}

// stamp changes with a file, its content and its rights.
type stamp struct {
	dev, ino     uint64
	size         int64
	mode         uint32
	mtime, ctime syscall.Timespec
}

func stampOf(path string) (stamp, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	s, ok := stat.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}, fmt.Errorf("%s: stat says too little", path)
	}
	return stamp{s.Dev, s.Ino, s.Size, s.Mode, s.Mtim, s.Ctim}, nil
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
		*m = memo{now, e, false}
	}
	return e, err
}

func (m *memo) settle(path string, e Executable) {
	*m = memo{}
	if now, err := stampOf(path); err == nil {
		*m = memo{now, &e, true}
	}
}
