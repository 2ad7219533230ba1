package main

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// chart writes the Helm chart of a directory as "helm package --version --app-version" does,
// and gives its name. Its images are those of this release.
func (r *release) chart(dir string) (string, error) {
	files, err := filesOf(dir)
	if err != nil {
		return "", err
	}
	version := r.chartVersion()
	for n, f := range files {
		switch f.name {
		case "Chart.yaml":
			err = set(&files[n], "version: ", version)
			if err == nil {
				err = set(&files[n], "appVersion: ", r.version)
			}
		case "values.yaml":
			err = set(&files[n], "  tag: ", fmt.Sprintf("%q", r.tag))
		}
		if err != nil {
			return "", err
		}
		files[n].name = path.Join(filepath.Base(dir), f.name)
	}
	name := filepath.Base(dir) + "-" + version + ".tgz"
	return name, r.packed(name, files)
}

var semantic = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+([-+].*)?)$`)

// chartVersion is a semantic one, as Helm wants it, also for a commit of a repository without tags.
func (r *release) chartVersion() string {
	if found := semantic.FindStringSubmatch(r.version); found != nil {
		return found[1]
	}
	return "0.0.0-g" + r.version
}

// set gives the first line of a file that begins with a key another value.
func set(f *file, key, value string) error {
	lines := strings.Split(string(f.content), "\n")
	for n, line := range lines {
		if strings.HasPrefix(line, key) {
			lines[n] = key + value
			f.content = []byte(strings.Join(lines, "\n"))
			return nil
		}
	}
	return fmt.Errorf("%s: no line begins with %q", f.name, key)
}
