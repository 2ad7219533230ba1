package atomicfile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strings"
)

// The temporary file of a name. It begins with a dot, and names do not; it ends as those
// of other programs do not, since Sweep takes what has no writer for garbage.
const tempPrefix, tempSuffix = ".", ".devinfo"

// That of a long name has a part of it and its hash.
func temporary(name string) string {
	const part = 200
	if len(name) > maxName-len(tempPrefix)-len(tempSuffix) {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(name)) // never fails
		name = fmt.Sprintf("%s-%016x", name[:part], hash.Sum64())
	}
	return tempPrefix + name + tempSuffix
}

// final returns a name whose temporary file that is.
func final(temp string) (name string, ok bool) {
	name, prefixed := strings.CutPrefix(temp, tempPrefix)
	name, suffixed := strings.CutSuffix(name, tempSuffix)
	return name, prefixed && suffixed && name != ""
}

const maxName = 255 // the kernel's limit, in bytes

// CheckDir returns an error unless the directory's path is absolute.
func CheckDir(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("directory %q: must be an absolute path", path)
	}
	return nil
}

// CheckName returns an error unless the name is one path element that does not begin with a dot.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("a file name is missing")
	case strings.HasPrefix(name, tempPrefix):
		return errors.New("a file name must not begin with a dot")
	case strings.ContainsAny(name, "/\x00"):
		return errors.New("a file name must not hold a slash or a NUL")
	case len(name) > maxName:
		return fmt.Errorf("a file name must not have more than %d bytes", maxName)
	}
	return nil
}
