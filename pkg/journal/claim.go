package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/private"
)

// Claims are the links files/<file> or cdi/<spec> to the entry of the attachment whose
// the file is. One counts while that entry is of this boot and names the file; until
// then, and from then on, whoever comes first may replace it. A link that is there is
// removed only by a caller that has locked the directory and read it since.
type claims struct {
	*Journal
	what string // "device-info file"
	dir  *private.Dir
	of   func(*Entry) []string // the files that an entry names
}

const toEntry = "../attachments/"

func (e *Entry) files() []string {
	return e.each(func(n Names) string { return n.File })
}

func (e *Entry) specs() []string {
	return e.each(func(n Names) string { return n.CDI.File })
}

func (e *Entry) socketDirs() []string {
	return e.each(func(n Names) string { return n.SocketDir })
}

func (e *Entry) each(of func(Names) string) (list []string) {
	for _, names := range e.All() {
		if name := of(names); name != "" {
			list = append(list, name)
		}
	}
	return list
}

// OwnedError says that a file or a directory is another attachment's.
type OwnedError struct {
	What  string // "device-info file", "CDI spec" or "socket directory"
	File  string // name in the device-info or the CDI directory, or the socket directory
	Owner Key
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("%s %s: belongs to attachment %s", e.What, e.File, e.Owner)
}

// Owner returns, in O(1), the owner of a file of the device-info directory. Attachments of
// another boot do not count, nor do those whose entry is gone or corrupt: entries are
// written atomically, so only a power failure tears them.
func (j *Journal) Owner(file string) (Key, bool, error) { return j.files.owner(file) }

// SpecOwner is Owner for the CDI specs.
func (j *Journal) SpecOwner(spec string) (Key, bool, error) { return j.specs.owner(spec) }

func (c claims) owner(file string) (Key, bool, error) {
	link, err := c.dir.Readlink(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, false, nil
	}
	if err != nil {
		return Key{}, false, c.wrap(file, err)
	}
	return c.linked(file, link)
}

// linked is the owner of a file by the link that is there. An entry of a newer build
// counts: what it names is not known.
func (c claims) linked(file, link string) (Key, bool, error) {
	k, ok := parseKey(strings.TrimPrefix(link, toEntry))
	if !ok {
		return Key{}, false, nil
	}
	live, err := c.live(k, func(e *Entry) bool { return slices.Contains(c.of(e), file) })
	if err != nil || !live {
		return Key{}, false, err
	}
	return k, true, nil
}

// live says whether an attachment's entry is of this boot and as names demands.
func (j *Journal) live(k Key, names func(*Entry) bool) (bool, error) {
	e, err := j.sound(k)
	if newer := new(FormatError); errors.As(err, &newer) {
		return true, nil
	}
	return e != nil && e.OfBoot(j.bootID) && names(e), err
}

// claim makes a file ours. It tells whether it made the link or found it.
func (c claims) claim(k Key, file string) (made bool, err error) {
	for {
		err := c.dir.Link(file, target(k))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return false, c.wrap(file, err)
		}
		switch owner, owned, err := c.settle(file); {
		case err != nil:
			return false, c.wrap(file, err)
		case owned && owner == k:
			return false, nil
		case owned:
			return false, &OwnedError{c.what, file, owner}
		}
	}
}

// settle is owner where a claim that counts for nothing is removed. Whoever finds its own
// asks here too: another may be about to remove what did not count a moment ago.
func (c claims) settle(file string) (owner Key, owned bool, err error) {
	err = c.dir.Alone(func() error {
		link, err := c.dir.Readlink(file)
		if errors.Is(err, fs.ErrNotExist) { // and the next moment somebody else's
			return nil
		}
		if err == nil {
			owner, owned, err = c.linked(file, link)
		}
		if err != nil || owned {
			return err
		}
		return c.dir.Unlink(file)
	})
	return owner, owned, err
}

// release removes the claim unless it is, by now, somebody else's. What no file can be
// named has no claim.
func (c claims) release(k Key, file string) error {
	ours, err := c.holds(k, file)
	if bad := new(store.NameError); errors.As(err, &bad) {
		return nil
	}
	if err != nil || !ours {
		return err
	}
	return c.wrap(file, c.dir.Alone(func() error {
		if ours, err := c.holds(k, file); err != nil || !ours {
			return err
		}
		return c.dir.Unlink(file)
	}))
}

// holds says whether the link is to the attachment's entry.
func (c claims) holds(k Key, file string) (bool, error) {
	link, err := c.dir.Readlink(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && link == target(k), c.wrap(file, err)
}

// all lists the files that the attachment claims.
func (c claims) all(k Key) (files []string, err error) {
	entries, err := c.dir.Entries()
	for _, e := range entries {
		if ours, err := c.holds(k, e.Name()); err != nil {
			return files, err
		} else if ours {
			files = append(files, e.Name())
		}
	}
	return files, err
}

func target(k Key) string {
	entry, _ := k.entry() // k was checked by Put or Forget
	return toEntry + entry
}

func (c claims) wrap(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("claim of %s %s: %w", c.what, file, err)
}

// Holds says whether the attachment has claimed a file of the device-info directory.
func (j *Journal) Holds(k Key, file string) (bool, error) { return j.files.holds(k, file) }

// Claims lists the device-info files that the attachment has claimed, for when its entry,
// which knows, cannot be read. It reads every claim of the node.
func (j *Journal) Claims(k Key) ([]string, error) { return j.files.all(k) }

// SpecClaims is Claims for CDI specs.
func (j *Journal) SpecClaims(k Key) ([]string, error) { return j.specs.all(k) }
