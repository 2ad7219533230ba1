package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"
)

// kubectlPlugin runs on users' own machines, so it is built for other systems besides Linux.
const kubectlPlugin = "kubectl-devinfo"

// An archive contains kubectlPlugin for one system. Krew's template uses the fields.
type archive struct{ OS, Arch, Name, SHA256 string }

// kubectl writes kubectl-devinfo-<version>-<os>-<arch>.tar.gz for each bin/<os>_<arch> with the program, and one krew
// manifest for all. The archives have no directories, because krew expects the program at the top.
func (r *release) kubectl(others []string) error {
	paths, err := filepath.Glob(filepath.Join(r.bin, "*_*", kubectlPlugin))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s has no <system>_<architecture>/%s", r.bin, kubectlPlugin)
	}
	if err != nil {
		return err
	}
	var archives []archive
	for _, path := range paths {
		var a archive
		a.OS, a.Arch, _ = strings.Cut(filepath.Base(filepath.Dir(path)), "_")
		a.Name = fmt.Sprintf("%s-%s-%s-%s.tar.gz", kubectlPlugin, r.version, a.OS, a.Arch)
		files, err := read("", append([]string{path}, others...))
		if err != nil {
			return err
		}
		files[0].mode = 0o755
		if err := r.packed(a.Name, files); err != nil {
			return err
		}
		a.SHA256 = r.sums[a.Name]
		archives = append(archives, a)
	}
	if r.downloads == "" {
		fmt.Println("no krew manifest written: set DOWNLOADS to the URL of the directory with the archives")
		return nil
	}
	return r.manifest(archives)
}

// manifest fills in krew's template.
func (r *release) manifest(archives []archive) error {
	filled, err := template.New(filepath.Base(r.krew)).Option("missingkey=error").ParseFiles(r.krew)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := filled.Execute(&out, map[string]any{"Version": r.version, "Source": r.source, "Downloads": strings.TrimSuffix(r.downloads, "/"), "Archives": archives}); err != nil {
		return err
	}
	return r.write(kubectlPlugin+"-"+r.version+".yaml", out.Bytes())
}
