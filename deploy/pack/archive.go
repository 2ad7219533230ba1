package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// A file is one file of an archive.
type file struct {
	name    string // path in the archive
	content []byte
	mode    int64
}

// tar returns an archive with the files sorted by name. They belong to root and have the release's time. A directory
// precedes its files.
func (r *release) tar(files []file) ([]byte, error) {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(h tar.Header, content []byte) error {
		h.ModTime, h.Format, h.Size = r.time, tar.FormatUSTAR, int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	made := map[string]bool{}
	for _, f := range files {
		for n, c := range f.name {
			dir := f.name[:n]
			if c != '/' || made[dir] {
				continue
			}
			made[dir] = true
			if err := add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil); err != nil {
				return nil, err
			}
		}
		if err := add(tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode}, f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func executables(dir string, programs []program) (files []file) {
	for _, p := range programs {
		files = append(files, file{name: path.Join(dir, p.name), content: p.content, mode: 0o755})
	}
	return files
}

// filesOf reads the files below a directory.
func filesOf(dir string) (files []file, err error) {
	tree := os.DirFS(dir)
	err = fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		files = append(files, file{name: name, content: content, mode: 0o644})
		return err
	})
	return files, err
}

// archives writes devinfo-<version>-linux-<arch>.tar.gz for each architecture, with the programs and the given files.
func (r *release) archives(others []string) error {
	for _, arch := range r.arches() {
		dir := fmt.Sprintf("devinfo-%s-linux-%s", r.version, arch)
		files, err := read(dir, others)
		if err == nil {
			err = r.packed(dir+".tar.gz", append(files, executables(dir, r.pick(arch))...))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read reads files, and puts them into a directory of the archive.
func read(dir string, names []string) (files []file, err error) {
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: path.Join(dir, filepath.Base(name)), content: content, mode: 0o644})
	}
	return files, nil
}

// packed writes the files as a tar.gz.
func (r *release) packed(name string, files []file) error {
	plain, err := r.tar(files)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err = w.Write(plain)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return r.write(name, out.Bytes())
}

// write writes a file of the release.
func (r *release) write(name string, content []byte) error {
	r.sums[name] = fmt.Sprintf("%x", sha256.Sum256(content))
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// checksums writes SHA256SUMS, for "sha256sum --check".
func (r *release) checksums() error {
	var list bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(r.sums)) {
		fmt.Fprintf(&list, "%s  %s\n", r.sums[name], name)
	}
	return r.write("SHA256SUMS", list.Bytes())
}
