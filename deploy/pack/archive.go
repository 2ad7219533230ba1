package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A file is one file of an archive.
type file struct {
	name    string // path in the archive
	content []byte
	mode    int64
}

// tar writes the files sorted by name. They belong to root and have the release's time. A directory precedes its
// files.
func (r *release) tar(to io.Writer, files []file) error {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	w := tar.NewWriter(to)
	made := map[string]bool{}
	for _, f := range files {
		for n, c := range f.name {
			dir := f.name[:n]
			if c != '/' || made[dir] {
				continue
			}
			made[dir] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: r.time, Format: tar.FormatUSTAR}); err != nil {
				return err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: r.time, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
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

// archive writes devinfo-<version>-linux-<arch>.tar.gz with the programs and the given files. It returns the name.
func (r *release) archive(arch string, programs []program, others []string) (string, error) {
	dir := fmt.Sprintf("devinfo-%s-linux-%s", r.version, arch)
	parts, err := pick(programs, arch)
	if err != nil {
		return "", err
	}
	files, err := read(dir, others)
	if err != nil {
		return "", err
	}
	name := dir + ".tar.gz"
	return name, r.packed(name, append(files, executables(dir, parts)...))
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
	return r.writeFile(filepath.Join(r.out, name), func(w io.Writer) error {
		packed := gzip.NewWriter(w)
		if err := r.tar(packed, files); err != nil {
			return err
		}
		return packed.Close()
	})
}

// checksums writes SHA256SUMS, for "sha256sum --check".
func (r *release) checksums(names []string) error {
	var list bytes.Buffer
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(content), name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), list.Bytes(), 0o644)
}

func (r *release) writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
