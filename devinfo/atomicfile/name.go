package atomicfile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strings"
)

// A temporary file's name begins with a dot; the name of a final file must not. The suffix marks the files that
// this package creates, because SweepLeftovers removes every file with that suffix that has no running writer.
const tempPrefix, tempSuffix = ".", ".devinfo"

// temporary returns the name of the temporary file. It shortens a name that would become too long and adds a
// hash.
func temporary(name string) string {
	const part = 200
	if len(name) > maxName-len(tempPrefix)-len(tempSuffix) {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(name)) // never fails
		name = fmt.Sprintf("%s-%016x", name[:part], hash.Sum64())
	}
	return tempPrefix + name + tempSuffix
}

// finalName returns the name of the file that a temporary file is for. ok is false if temp is not the name of a
// temporary file.
func finalName(temp string) (name string, ok bool) {
	name, prefixed := strings.CutPrefix(temp, tempPrefix)
	name, suffixed := strings.CutSuffix(name, tempSuffix)
	return name, prefixed && suffixed && name != ""
}

const maxName = 255 // the kernel's limit, in bytes

// CheckDir returns an error unless path is absolute.
func CheckDir(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("directory %q: must be an absolute path", path)
	}
	return nil
}

// CheckName returns an error unless name is one path element that does not begin with a dot.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("a file name is missing")
	case strings.HasPrefix(name, tempPrefix):
		return errors.New("a file name must not begin with a dot")
	case strings.ContainsAny(name, "/\x00"):
		return errors.New("a file name must not contain a slash or a NUL")
	case len(name) > maxName:
		return fmt.Errorf("a file name must not have more than %d bytes", maxName)
	}
	return nil
}
