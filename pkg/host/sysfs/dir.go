package sysfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// each looks up every device in a directory. It skips a device that disappears during the call.
func each[D any](f *FS, at string, get func(name string) (D, bool, error)) (list []D, err error) {
	in := f.in(at)
	for _, name := range in.names("") {
		d, ok, err := get(name)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, d)
		}
	}
	return list, in.err
}

// A dir reads the files of one sysfs directory. After a failed read, err is set and later reads find nothing,
// so callers check err once at the end. A missing file is not an error.
type dir struct {
	fsys fs.FS
	at   string
	gone bool // the device does not exist or err is set, so reads find nothing
	err  error
}

func (f *FS) in(at string) *dir { return &dir{fsys: f.fsys, at: at} }

func read[T any](d *dir, how func(fs.FS, string) (T, error), name string) (value T, ok bool) {
	if d.gone || d.err != nil {
		return value, false
	}
	value, ok, d.err = known(how(d.fsys, path.Join(d.at, name)))
	return value, ok
}

// text returns an attribute without the newline at its end, or "" if it is missing.
func (d *dir) text(name string) string {
	data, _ := read(d, fs.ReadFile, name)
	return strings.TrimSpace(string(data))
}

func (d *dir) number(name string) (n int, ok bool) {
	data, ok := read(d, fs.ReadFile, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		d.err = fmt.Errorf("/sys/%s: %w", path.Join(d.at, name), err)
	}
	return n, err == nil
}

// link returns the last element of a link's target, or "" if the link is missing. sysfs names drivers, PFs and
// VFs by links.
func (d *dir) link(name string) string {
	target, ok := read(d, fs.ReadLink, name)
	if !ok {
		return ""
	}
	return path.Base(target)
}

func (d *dir) has(name string) bool {
	_, ok := read(d, fs.Lstat, name)
	return ok
}

// names lists the entries of a directory, sorted by [ByNumber]. "" is the directory d itself.
func (d *dir) names(name string) []string {
	return d.entries(name, func(fs.DirEntry) bool { return true })
}

// dirs lists the subdirectories, except links, sorted by [ByNumber].
func (d *dir) dirs(name string) []string { return d.entries(name, fs.DirEntry.IsDir) }

func (d *dir) entries(name string, wanted func(fs.DirEntry) bool) (names []string) {
	list, _ := read(d, fs.ReadDir, name)
	for _, e := range list {
		if wanted(e) {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, ByNumber)
	return names
}

// nodes lists the devices of a class that have a device node below /dev; these have an attribute "dev" in sysfs.
func (d *dir) nodes(class string) (names []string) {
	for _, name := range d.dirs(class) {
		if d.has(path.Join(class, name, "dev")) {
			names = append(names, name)
		}
	}
	return names
}

func (d *dir) parent() (bus, device string) {
	if device = d.link("device"); device != "" {
		bus = d.link("device/subsystem")
	}
	return bus, device
}

func (d *dir) inode() uint64 {
	if info, ok := read(d, fs.Stat, ""); ok {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			return stat.Ino
		}
	}
	return 0
}
