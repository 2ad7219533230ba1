package dra

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"devinfo-cni.io/devinfo/store"
)

// metadataSpecs keeps the CDI specs that mount metadata into containers. kubeletplugin writes them only once,
// in Prepare, but the directory of CDI specs may be cleared at any time.
type metadataSpecs struct {
	dir   string
	mu    sync.Mutex
	files map[string][]byte // by path
}

// load reads the specs that an earlier process wrote. It reports the files that it could not read.
func (m *metadataSpecs) load(driver string) error {
	m.files = map[string][]byte{}
	paths, err := filepath.Glob(filepath.Join(m.dir, driver+"_metadata_*.json"))
	for _, path := range paths {
		data, one := store.Open(m.dir).Read(filepath.Base(path))
		if one == nil {
			m.files[path] = data
		}
		err = errors.Join(err, one)
	}
	return err
}

// write replaces a file without syncing it, because kubeletplugin writes each file twice. After a power failure
// the kubelet prepares all claims again, so lost files are rewritten.
func (m *metadataSpecs) write(path string, data []byte, _ os.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := store.Open(filepath.Dir(path)).Write(filepath.Base(path), data)
	if err == nil && filepath.Dir(path) == filepath.Clean(m.dir) {
		m.files[path] = data
	}
	return err
}

// glob returns the specs that match a pattern, and stops keeping them. kubeletplugin then removes them.
func (m *metadataSpecs) glob(pattern string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.files, func(path string, _ []byte) bool {
		matches, _ := filepath.Match(pattern, path)
		return matches
	})
	return filepath.Glob(pattern)
}

// repair rewrites missing specs.
func (m *metadataSpecs) repair() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, data := range m.files {
		if _, missing := os.Lstat(path); errors.Is(missing, fs.ErrNotExist) {
			err = errors.Join(err, store.Open(m.dir).Write(filepath.Base(path), data))
		}
	}
	return err
}
