package inject

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/devinfo/atomicfile"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/safefile"
)

// stage is the directory of what containers mount:
//
//	<sandbox>/netns -> /var/run/netns/...   the sandbox lives as long as that is there
//	<sandbox>/devinfo/                      what its containers mount
//	.*.devinfo                              files that are being written
//
// A file appears in devinfo at once and whole, and nothing else ever does: what is half
// written is outside. A sandbox without a netns was not finished, and no container has it.
type stage struct {
	root  string
	label string // SELinux; "" = none is set
}

const (
	netnsLink = "netns"
	mounted   = "devinfo"

	forAll fs.FileMode = 0o755 // of directories: containers read them
)

// open makes the directory, and removes what a writer has left that was killed. Without a label
// it takes the default.
func (s *stage) open() (err error) {
	if s.label == "" {
		if s.label, err = defaultLabel(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(s.root, forAll); err != nil {
		return err
	}
	if err := os.Chmod(s.root, forAll); err != nil { // whatever the umask
		return err
	}
	entries, err := os.ReadDir(s.root)
	return errors.Join(err, atomicfile.SweepLeftovers(safefile.Files(s.root), entries, func(string) {}))
}

// dir is what the containers of a sandbox mount.
func (s stage) dir(sandbox string) string { return filepath.Join(s.root, sandbox, mounted) }

// put makes the directory of a sandbox hold the files and, where there is none, an empty
// file for each mount point. An empty file stays: a container may have something mounted
// on it. The file of all networks comes last: who reads it finds the files of those that it
// names. What it no longer names is pruned after it.
func (s stage) put(sandbox, netns string, files map[string][]byte, points []string) error {
	if err := s.make(sandbox, netns); err != nil {
		return err
	}
	dir := s.dir(sandbox)
	for name, data := range files {
		if name == networkInfoFile {
			continue
		}
		if err := s.write(dir, name, data); err != nil {
			return err
		}
	}
	if err := s.write(dir, networkInfoFile, files[networkInfoFile]); err != nil {
		return err
	}
	for _, name := range points {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := s.write(dir, name, nil); err != nil {
			return err
		}
	}
	return prune(dir, files)
}

// make makes the directory of a sandbox.
func (s stage) make(sandbox, netns string) error {
	if sandbox == "" || sandbox[0] == '.' || strings.ContainsRune(sandbox, '/') {
		return fmt.Errorf("sandbox %q: its ID is not valid as a directory name", sandbox)
	}
	if netns == "" {
		return fmt.Errorf("sandbox %s: the container runtime reported no path of its network namespace", sandbox)
	}
	if err := s.mkdir(filepath.Join(s.root, sandbox)); err != nil {
		return err
	}
	err := os.Symlink(netns, filepath.Join(s.root, sandbox, netnsLink))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return s.mkdir(s.dir(sandbox))
}

// mkdir makes one that everyone may read. One that is there may have been left half made.
func (s stage) mkdir(path string) error {
	if err := os.Mkdir(path, forAll); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(path, forAll); err != nil { // whatever the umask
		return err
	}
	return s.setLabel(path)
}

// write makes a file hold data, at once, unless it does. What was there loses what
// containers have mounted on it: the file is newer than what that tells of.
func (s stage) write(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, data) {
		return nil
	}
	f, err := atomicfile.Replace(outside{safefile.Files(s.root), dir}, name, func(temp *os.File) error {
		if _, err := temp.Write(data); err != nil {
			return err
		}
		if err := temp.Chmod(0o444); err != nil {
			return err
		}
		return s.setLabel(temp.Name())
	})
	if err != nil {
		return err
	}
	return f.Close()
}

// outside are files that are written in another directory than that where they appear.
type outside struct {
	safefile.Files
	dir string
}

func (o outside) Rename(from, to string) error {
	return os.Rename(filepath.Join(string(o.Files), from), filepath.Join(o.dir, to))
}

// recall takes the copies for the files that are gone: who writes a file over in its place
// makes it nothing for a moment, and what has been told a container is not taken back.
func (s stage) recall(sandbox string, nics []nic) {
	for n := range nics {
		if nics[n].gone == nil {
			continue
		}
		copied, err := os.ReadFile(filepath.Join(s.dir(sandbox), filepath.Base(cdispec.InfoFile(nics[n].ifName))))
		if err == nil && len(copied) > 0 {
			nics[n].file = copied
		}
	}
}

// prune removes the files that are not among those given, but for empty ones.
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

// sandboxes lists those that have a directory. One that cannot be listed has none.
func (s stage) sandboxes() (ids []string, err error) {
	entries, err := os.ReadDir(s.root)
	for _, e := range entries {
		if e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// netns is the path of a sandbox's network namespace; "" = it was not finished.
func (s stage) netns(sandbox string) (string, error) {
	netns, err := os.Readlink(filepath.Join(s.root, sandbox, netnsLink))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return netns, err
}

// containerLabel is what every container may read, whatever its categories.
const containerLabel = "system_u:object_r:container_file_t:s0"

// defaultLabel is containerLabel where the kernel has SELinux on, which registers its file
// system then (security/selinux/selinuxfs.c, init_sel_fs).
func defaultLabel() (string, error) {
	kinds, err := os.ReadFile("/proc/filesystems")
	if err != nil || !bytes.Contains(kinds, []byte("\tselinuxfs\n")) {
		return "", err
	}
	return containerLabel, nil
}

func (s stage) setLabel(path string) error {
	if s.label == "" {
		return nil
	}
	if err := unix.Lsetxattr(path, "security.selinux", append([]byte(s.label), 0), 0); err != nil {
		return fmt.Errorf("%s: cannot set SELinux label %s: %w: run the agent privileged, or with a type that may relabel to it", path, s.label, err)
	}
	return nil
}
