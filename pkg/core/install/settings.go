package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/host/store"
)

// fallback is the file with the settings of nodes without a file of their own.
const fallback = "default.json"

// Settings is the installation of the node's settings from a directory, such as a mounted ConfigMap. The
// settings are in <Node>.json or, if that does not exist, in default.json.
type Settings struct {
	Dir  string
	Node string // the node's name
	To   string // the file that the plugin reads

	OverwriteForeign bool // replace settings that no agent has installed
}

// Arrangement is the result of installing the settings.
type Arrangement struct {
	From    string // the file in Dir that applies; "" if Dir has no settings for this node
	State   string // Installed, Replaced, AlreadyThere or Removed; "" if nothing was done
	Warning error  // the error of setting the SELinux label
	Ignored error  // names the files in Dir if none of them applies; nil = one applies, or Dir is empty
}

// Removed is the state if an agent had installed settings that Dir no longer has.
const Removed = "removed"

// Keep installs the settings. If Dir has no settings for the node, Keep removes the settings that an agent has
// installed. If the plugin would refuse the new settings, Keep returns an error and leaves the existing ones.
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
		done.Ignored = s.ignored()
		return done, err
	}
	if _, err := config.ParseNode(data, from); err != nil {
		return done, fmt.Errorf("%w; the settings were not installed", err)
	}
	err = os.Mkdir(filepath.Dir(s.To), 0o755) // #nosec G301 -- settings are public
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return done, err
	}
	done.State, done.Warning, err = file(s.To).keep(data, 0o644, s.OverwriteForeign)
	if errors.Is(err, errForeign) {
		err = fmt.Errorf("%s %w: remove it, or overwrite it with --overwrite-foreign", s.To, err)
	}
	return done, err
}

// Wanted returns the settings that Keep would install.
func (s *Settings) Wanted() (config.Node, error) {
	data, from, err := s.wanted()
	if err != nil || from == "" {
		return config.DefaultNode(), err
	}
	return config.ParseNode(data, from)
}

// wanted returns the content of the node's settings and the path of their file in Dir. Both are empty if
// Dir has no settings for the node.
func (s *Settings) wanted() (data []byte, from string, err error) {
	if _, err := os.Stat(s.Dir); err != nil { // a missing directory must not look like one without settings
		return nil, "", fmt.Errorf("--settings-dir: %w", err)
	}
	for _, name := range []string{s.Node + ".json", fallback} {
		from = filepath.Join(s.Dir, name)
		data, err = store.ReadFile(from, config.MaxFile)
		if !errors.Is(err, fs.ErrNotExist) {
			return data, from, err
		}
	}
	return nil, "", nil
}

// ignored returns an error that lists the files of Dir. The caller has found no settings for the node among them.
func (s *Settings) ignored() error {
	entries, err := os.ReadDir(s.Dir)
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") { // a mounted ConfigMap has hidden directories
			names = append(names, e.Name())
		}
	}
	if names == nil {
		return err
	}
	return fmt.Errorf("%s has no settings for this node, %s.json or %s, but has %s: rename the file that is for all nodes to %[3]s, or add a %[3]s with {} for the defaults",
		s.Dir, s.Node, fallback, clierr.Few(names, 3))
}

// Remove removes the settings if an agent has installed them and they have not changed since. Otherwise it
// leaves them, and removed is false.
func (s *Settings) Remove() (removed bool, err error) {
	to := file(s.To)
	return to.removeUnchanged(to.agentMark())
}
