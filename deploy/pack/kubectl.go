package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// kubectlPlugin runs on users' own machines, so it is built for other systems besides Linux.
const kubectlPlugin = "kubectl-devinfo"

// An archive contains kubectlPlugin for one system. Krew's template uses the fields.
type archive struct{ OS, Arch, Name, SHA256 string }

// kubectl writes kubectl-devinfo-<version>-<os>-<arch>.tar.gz for each bin/<os>_<arch> with the program, and one krew
// manifest for all. It returns the names of the files.
func (r *release) kubectl(others []string) (made []string, err error) {
	paths, err := filepath.Glob(filepath.Join(r.bin, "*_*", kubectlPlugin))
	if err != nil {
		return nil, err
	}
	var archives []archive
	for _, path := range paths {
		a, err := r.kubectlArchive(path, others)
		if err != nil {
			return nil, err
		}
		archives, made = append(archives, a), append(made, a.Name)
	}
	if len(archives) == 0 {
		return nil, fmt.Errorf("%s has no <system>_<architecture>/%s", r.bin, kubectlPlugin)
	}
	if r.downloads == "" {
		fmt.Println("no krew manifest written: set DOWNLOADS to the URL of the directory with the archives")
		return made, nil
	}
	name := kubectlPlugin + "-" + r.version + ".yaml"
	return append(made, name), r.manifest(filepath.Join(r.out, name), archives)
}

// manifest fills in krew's template.
func (r *release) manifest(name string, archives []archive) error {
	text, err := os.ReadFile(r.krew)
	if err != nil {
		return err
	}
	filled, err := template.New(filepath.Base(r.krew)).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := filled.Execute(&out, map[string]any{"Version": r.version, "Source": r.source, "Downloads": strings.TrimSuffix(r.downloads, "/"), "Archives": archives}); err != nil {
		return err
	}
	return os.WriteFile(name, out.Bytes(), 0o644)
}

// kubectlArchive packs one program. The archive has no directories, because krew expects the program at the top.
func (r *release) kubectlArchive(path string, others []string) (a archive, err error) {
	a.OS, a.Arch, _ = strings.Cut(filepath.Base(filepath.Dir(path)), "_")
	content, err := os.ReadFile(path)
	if err != nil {
		return a, err
	}
	files, err := read("", others)
	if err != nil {
		return a, err
	}
	a.Name = fmt.Sprintf("%s-%s-%s-%s.tar.gz", kubectlPlugin, r.version, a.OS, a.Arch)
	if err := r.packed(a.Name, append(files, file{name: kubectlPlugin, content: content, mode: 0o755})); err != nil {
		return a, err
	}
	made, err := os.ReadFile(filepath.Join(r.out, a.Name))
	a.SHA256 = fmt.Sprintf("%x", sha256.Sum256(made))
	return a, err
}
