package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A program is a static executable.
type program struct {
	name    string
	arch    string // in Go's spelling
	content []byte
	sum     [sha256.Size]byte
	info    *buildinfo.BuildInfo
}

// readPrograms reads bin/linux_<arch>/<name>.
func readPrograms(bin string) ([]program, error) {
	paths, err := filepath.Glob(filepath.Join(bin, "linux_*", "*"))
	if err != nil {
		return nil, err
	}
	var programs []program
	for _, path := range paths {
		_, arch, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "_")
		p, err := readProgram(path, arch)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		programs = append(programs, p)
	}
	if len(programs) == 0 {
		return nil, fmt.Errorf("%s has no linux_<architecture>/<program>", bin)
	}
	slices.SortFunc(programs, func(a, b program) int {
		return cmp.Or(cmp.Compare(a.arch, b.arch), cmp.Compare(a.name, b.name))
	})
	return programs, nil
}

func readProgram(path, arch string) (program, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	if err := isStatic(path, arch); err != nil {
		return program{}, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	return program{name: filepath.Base(path), arch: arch, content: content, sum: sha256.Sum256(content), info: info}, nil
}

// isStatic returns an error if the executable needs other files, or is for another architecture. An image from
// scratch has no other files.
func isStatic(path, arch string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if want, known := machines[arch]; !known || f.Machine != want {
		return fmt.Errorf("is for %v, in a directory for %q", f.Machine, arch)
	}
	for _, segment := range f.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("is not static: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// arches returns the sorted architectures of the programs.
func (r *release) arches() (list []string) {
	for _, p := range r.programs {
		list = append(list, p.arch)
	}
	return slices.Compact(list)
}

// pick returns the programs of an architecture ("" = of all), or those with these names.
func (r *release) pick(arch string, names ...string) []program {
	return slices.DeleteFunc(slices.Clone(r.programs), func(p program) bool {
		return arch != "" && p.arch != arch || len(names) > 0 && !slices.Contains(names, p.name)
	})
}
