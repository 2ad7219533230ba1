package inject

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/host/store"
)

// stage is the directory with the files that containers mount:
//
//	<sandbox>/netns -> /var/run/netns/...   the sandbox has ended when this namespace no longer exists
//	<sandbox>/devinfo/                      mounted by the containers of the sandbox
//	.*.devinfo                              temporary files
//
// Files in devinfo are always complete, because each one is written in the root directory and then renamed.
// A sandbox directory without netns is incomplete, and no container has mounted it.
type stage struct {
	root  string
	label string // SELinux label of the files; "" = set none
}

const (
	netnsLink = "netns"
	mounted   = "devinfo"

	forAll fs.FileMode = 0o755 // mode of directories; containers read them
)

// open creates the directory, removes the temporary files of killed writers, and sets the label.
func (s *stage) open() error {
	kinds, err := os.ReadFile("/proc/filesystems") // it lists selinuxfs only if SELinux is enabled (init_sel_fs in security/selinux/selinuxfs.c)
	if bytes.Contains(kinds, []byte("\tselinuxfs\n")) {
		s.label = containerLabel
	}
	if err = cmp.Or(err, os.MkdirAll(s.root, forAll)); err == nil {
		err = os.Chmod(s.root, forAll) // Mkdir applies the umask
	}
	if err != nil {
		return err
	}
	return store.Private(s.root).Sweep(func(string) {})
}

// dir returns the directory that the containers of a sandbox mount.
func (s stage) dir(sandbox string) string { return filepath.Join(s.root, sandbox, mounted) }

// has reports whether put was called for a sandbox before.
func (s stage) has(sandbox string) bool {
	_, err := os.Stat(s.dir(sandbox))
	return err == nil
}

// put writes the files of a sandbox, and an empty file for each missing mount point. It writes
// network-info.json after the other files and then removes old files. A reader of network-info.json therefore
// finds the file of each interface in it. put keeps empty files, because containers may have mounts on them.
func (s stage) put(sandbox, netns string, files map[string][]byte, points []string) error {
	if err := s.make(sandbox, netns); err != nil {
		return err
	}
	dir := s.dir(sandbox)
	names := slices.DeleteFunc(slices.Collect(maps.Keys(files)), func(name string) bool { return name == networkInfoFile })
	for _, name := range append(names, networkInfoFile) {
		if err := s.write(dir, name, files[name]); err != nil {
			return err
		}
	}
	for _, name := range points {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			continue
		}
		if err := s.write(dir, name, nil); err != nil {
			return err
		}
	}
	return prune(dir, files)
}

func (s stage) make(sandbox, netns string) error {
	if sandbox == "" || sandbox[0] == '.' || strings.ContainsRune(sandbox, '/') {
		return fmt.Errorf("sandbox %q: its ID is not valid as a directory name", sandbox)
	}
	if netns == "" {
		return fmt.Errorf("sandbox %s: the container runtime reported no path of its network namespace", sandbox)
	}
	err := s.mkdir(filepath.Join(s.root, sandbox))
	if errors.Is(err, fs.ErrNotExist) { // the root was removed after open
		if err = s.open(); err == nil {
			err = s.mkdir(filepath.Join(s.root, sandbox))
		}
	}
	if err != nil {
		return err
	}
	err = os.Symlink(netns, filepath.Join(s.root, sandbox, netnsLink))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return s.mkdir(s.dir(sandbox))
}

// mkdir creates a directory that all users can read. It sets the mode and label of an existing directory too,
// because a killed agent may have left it without them.
func (s stage) mkdir(path string) error {
	if err := os.Mkdir(path, forAll); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return cmp.Or(os.Chmod(path, forAll), s.setLabel(path)) // Mkdir applies the umask
}

// write atomically writes data to the file, unless the file contains it already. Replacing a file also
// detaches the mounts that containers have on it, whose content is older.
func (s stage) write(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, data) {
		return nil
	}
	f, err := store.Replace(s.root, path, func(temp *os.File) error {
		_, err := temp.Write(data)
		return cmp.Or(err, temp.Chmod(0o444), s.setLabel(temp.Name()))
	})
	if err != nil {
		return err
	}
	return f.Close()
}

// recall uses the staged copy for each device-info file that is missing or unusable. A program that rewrites a
// file in place leaves it empty for a moment. The information in containers must not disappear then.
func (s stage) recall(sandbox string, nics []nic) {
	for n := range nics {
		if nics[n].gone == nil {
			continue
		}
		copied, err := os.ReadFile(filepath.Join(s.dir(sandbox), filepath.Base(cdispec.InfoFile(nics[n].Interface))))
		if err == nil && len(copied) > 0 {
			nics[n].DeviceInfo = copied
		}
	}
}

// prune removes the files in dir that are not in files, except empty ones.
func prune(dir string, files map[string][]byte) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if _, wanted := files[e.Name()]; wanted {
			continue
		}
		stat, statErr := e.Info()
		if statErr == nil && stat.Size() > 0 {
			statErr = os.Remove(filepath.Join(dir, e.Name()))
		}
		err = errors.Join(err, statErr)
	}
	return err
}

func (s stage) sandboxes() (ids []string, err error) {
	entries, err := os.ReadDir(s.root)
	for _, e := range entries {
		if e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// netns returns the path of a sandbox's network namespace, or "" if the directory is incomplete.
func (s stage) netns(sandbox string) (string, error) {
	netns, err := os.Readlink(filepath.Join(s.root, sandbox, netnsLink))
	return netns, store.UnlessGone(err)
}

// containerLabel is the SELinux label that containers of all categories may read.
const containerLabel = "system_u:object_r:container_file_t:s0"

func (s stage) setLabel(path string) error {
	if s.label == "" {
		return nil
	}
	if err := unix.Lsetxattr(path, "security.selinux", append([]byte(s.label), 0), 0); err != nil {
		return fmt.Errorf("%s: cannot set SELinux label %s: %w: run the agent privileged, or with a type that may relabel to it", path, s.label, err)
	}
	return nil
}
