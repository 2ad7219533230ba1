// Package validator reads from the configuration files of a container runtime whether its
// NRI default validator is on: the part of a runtime that refuses containers while a
// plugin is away which they require. See docs/NRI.md of containerd (2.2 and later) and
// crio.conf(5), table crio.nri.default_validator. A runtime that was not restarted since
// may do otherwise than its files say, and one that was told of other files does.
package validator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"k8s.io/apimachinery/pkg/util/version"
)

// State is whether the validator is on.
type State string

// The states.
const (
	On      State = "on"
	Off     State = "off"
	Unknown State = "unknown" // the runtime's files are not where they usually are, or it is another one
)

// States are all of them.
func States() []State { return []State{On, Off, Unknown} }

// Of reads the files of the runtime that NRI names so, below root, where the host's root
// directory is; "" = it is our own. With an error the state is Unknown.
func Of(root, runtime, release string) (State, error) {
	c := config{root: root}
	var err error
	switch {
	case strings.Contains(runtime, "containerd"):
		if v, parseErr := version.ParseGeneric(release); parseErr == nil && v.LessThan(version.MustParseGeneric("2.2")) {
			return Off, nil // it has none
		}
		err = c.containerd("/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml")
	case strings.Contains(runtime, "cri-o"):
		err = errors.Join(c.readAll("/etc/crio/crio.conf"), c.readAll("/etc/crio/crio.conf.d/*"))
	}
	switch {
	case err != nil || c.files == 0:
		return Unknown, err
	case c.on:
		return On, nil
	}
	return Off, nil
}

// config is what the files have said so far: of the same key the last one counts.
type config struct {
	root  string
	files int
	on    bool
}

// file are the parts of a configuration that matter.
type file struct {
	Imports *[]string `toml:"imports"`
	Plugins struct {
		NRI struct {
			Validator struct {
				Enable *bool `toml:"enable"`
			} `toml:"default_validator"`
		} `toml:"io.containerd.nri.v1.nri"`
	} `toml:"plugins"`
	CRIO struct {
		NRI struct {
			Validator struct {
				Enable *bool `toml:"nri_enable_default_validator"`
			} `toml:"default_validator"`
		} `toml:"nri"`
	} `toml:"crio"`
}

// containerd reads a file, and then what it imports, or what is imported by default.
func (c *config) containerd(path, imports string) error {
	f, err := c.read(filepath.Join(c.root, path))
	if err != nil {
		return err
	}
	patterns := []string{imports}
	if f.Imports != nil {
		patterns = *f.Imports
	}
	for _, pattern := range patterns {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		if err := c.readAll(pattern); err != nil {
			return err
		}
	}
	return nil
}

// readAll reads the files of a pattern in the order of their names.
func (c *config) readAll(pattern string) error {
	paths, err := filepath.Glob(filepath.Join(c.root, pattern))
	if err != nil {
		return fmt.Errorf("%s: %w", pattern, err)
	}
	for _, path := range paths {
		if _, err := c.read(path); err != nil {
			return err
		}
	}
	return nil
}

// read takes in what a file says; one that is missing says nothing.
func (c *config) read(path string) (f file, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if err := toml.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("%s: %w", strings.TrimPrefix(path, c.root), err)
	}
	c.files++
	for _, enable := range []*bool{f.Plugins.NRI.Validator.Enable, f.CRIO.NRI.Validator.Enable} {
		if enable != nil {
			c.on = *enable
		}
	}
	return f, nil
}
