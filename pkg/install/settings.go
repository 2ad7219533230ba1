package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"devinfo-cni.io/pkg/config"
)

// fallback has the settings of the nodes that have no file of their own.
const fallback = "default.json"

// Settings keeps the node's settings as a directory has them, that of a mounted ConfigMap
// say: in <Node>.json or, where there is none, in default.json.
type Settings struct {
	Dir  string
	Node string // the node's name
	To   string // where the plugin looks for its settings

	OverwriteForeign bool // settings that no agent has put there
}

// Arrangement is what has been done about the settings.
type Arrangement struct {
	From    string // the file of Dir that counts; "" = there is none for this node
	State   string // as of [Installation], or "removed"; "" = nothing
	Warning error  // the label of the directory could not be given
}

// Removed is the state of settings that were an agent's, and that Dir has no longer.
const Removed = "removed"

// Keep sees to it that the settings are there. Settings with which the plugin would refuse
// ADD are refused, and those that are there stay.
func (s *Settings) Keep() (done Arrangement, err error) {
	data, from, err := s.wanted()
	if err != nil {
		return done, err
	}
	done.From = from
	if from == "" {
		removed, err := s.Remove()
		if removed {
			done.State = Removed
		}
		return done, err
	}
	if _, err := config.ParseNode(data, from); err != nil {
		return done, fmt.Errorf("%w; the settings were not installed", err)
	}
	return done, s.put(&done, data)
}

func (s *Settings) put(done *Arrangement, data []byte) error {
	to, sum := file(s.To), checksum(data)
	has, err := config.ReadFile(s.To)
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case err == nil && bytes.Equal(has, data):
		done.State = AlreadyThere
		return to.mark(sum)
	case !absent && !to.marked() && !s.OverwriteForeign:
		return fmt.Errorf("%s was not installed by an agent: remove it, or overwrite it with --overwrite-foreign", s.To)
	}
	err = os.Mkdir(to.dir(), 0o755) // #nosec G301 -- settings are no secret
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := to.mark(sum); err != nil {
		return err
	}
	if done.Warning, err = to.put(data, 0o644); err != nil {
		return err
	}
	done.State = Replaced
	if absent {
		done.State = Installed
	}
	return nil
}

// Wanted returns the settings that Keep would install.
func (s *Settings) Wanted() (config.Node, error) {
	data, from, err := s.wanted()
	if err != nil || from == "" {
		return config.DefaultNode(), err
	}
	return config.ParseNode(data, from)
}

// wanted is what the settings should be, and the file that says so, if there is one.
func (s *Settings) wanted() (data []byte, from string, err error) {
	if _, err := os.Stat(s.Dir); err != nil { // else nothing would seem to be wanted
		return nil, "", fmt.Errorf("--settings-dir: %w", err)
	}
	for _, name := range []string{s.Node + ".json", fallback} {
		from = filepath.Join(s.Dir, name)
		data, err = config.ReadFile(from)
		if !errors.Is(err, fs.ErrNotExist) {
			return data, from, err
		}
	}
	return nil, "", nil
}

// Remove removes the settings if they are as an agent has put them there; else they are
// left alone, and removed is false.
func (s *Settings) Remove() (removed bool, err error) {
	to := file(s.To)
	sum := to.sum()
	if sum == "" {
		return false, nil
	}
	has, err := config.ReadFile(s.To)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, to.remove()
	case err != nil:
		return false, err
	case checksum(has) != sum:
		return false, nil
	}
	return true, to.remove()
}
