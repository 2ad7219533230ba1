package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"devinfo-cni.io/pkg/host/store"
)

// EnsureDir creates the state directory if it does not exist. It returns an error if it cannot, for example in a
// container that does not mount the directory. All and Newer would return no entries there, and no error.
func (j *Journal) EnsureDir() error {
	stat, err := os.Stat(j.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = j.entries.Make()
	case err == nil && !stat.IsDir():
		err = syscall.ENOTDIR
	}
	if err != nil {
		return fmt.Errorf("stateDir: %s does not exist and cannot be created: %v: mount it into the container at that path, or make it a directory that root can write to", j.dir, err)
	}
	return nil
}

// An ExposedError reports that users other than root and this process's can change the journal. Every method of [Journal]
// that reads records or leases returns it, because root runs and removes what these name.
type ExposedError struct{ Err error }

// OwnRemedy is the remedy that the text of an [ExposedError] ends with.
const OwnRemedy = "delete the directory, or chown it to root and chmod it to 0700 if you know all its files; or set stateDir in the node settings"

func (e *ExposedError) Error() string {
	return "state directory: " + e.Err.Error() + ": " + OwnRemedy
}

func (e *ExposedError) Unwrap() error { return e.Err }

// Own returns an [*ExposedError] if other users can change the journal.
func (j *Journal) Own() error {
	if err := store.Own(j.dir, entriesDir, claimsDir, Caches, "leases", "leases/device", "leases/file", SpecLeases, "leases/socket"); err != nil {
		return &ExposedError{err}
	}
	j.owned.Store(true)
	return nil
}

// readable is Own, but looks only until it has seen once that all is well, and not at all if the records are only shown.
func (j *Journal) readable() error {
	if j.Show || j.owned.Load() {
		return nil
	}
	return j.Own()
}

// Ignored returns a journal without records, for callers that must not believe those of j. It ignores no lock of
// sriov-cni.
func (j *Journal) Ignored() *Journal {
	none := Open("/dev/null/journal", j.bootID) // cannot exist
	none.Show = true
	none.SRIOVLocks, none.NetnsGone = j.SRIOVLocks, j.NetnsGone
	return none
}

// Writable returns an error if Put could not write to the disk. It changes nothing. The names are those of further
// directories that the caller needs: [SpecLeases] for a CDI spec, [Caches] for delegates.
func (j *Journal) Writable(names ...string) error {
	if err := store.Lockable(j.dir); err != nil {
		return err
	}
	// The entry, its temporary file, libcni's cache, and a directory and a link for each of up to six leases.
	files := uint64(16)
	for _, name := range append([]string{entriesDir, "leases", "leases/file", "leases/device"}, names...) {
		dir := store.Private(filepath.Join(j.dir, name))
		if err := dir.Writable(); err != nil {
			return err
		}
		if notThere(dir.Path("")) {
			files++
		}
	}
	return j.entries.Room(files)
}
