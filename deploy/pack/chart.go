package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// chart writes the Helm chart of a directory as "helm package --version --app-version" does,
// and gives its name. Its images, and the repository that it names, are those of this release.
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
			if err == nil && r.source != "" {
				err = errors.Join(set(&files[n], "home: ", fmt.Sprintf("%q", r.source)), set(&files[n], "sources: ", fmt.Sprintf("[%q]", r.source)))
			}
		case "values.yaml":
			err = set(&files[n], "  tag: ", fmt.Sprintf("%q", r.tag))
			if err == nil && r.prefix != noRegistry {
				err = set(&files[n], "  registry: ", fmt.Sprintf("%q", r.prefix))
			}
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

// manifests writes what "kubectl apply -f" installs, with the images of this release, from the
// kustomizations beside the chart, and gives their names. Without a registry there are none.
func (r *release) manifests(deploy string) (made []string, err error) {
	if r.prefix == noRegistry {
		return nil, nil
	}
	for name, dir := range map[string]string{"install.yaml": "devinfo/base", "install-cni-dra-driver.yaml": "cni-dra-driver"} {
		text, err := r.kustomization(filepath.Join(deploy, dir))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(r.out, name), text, 0o644); err != nil {
			return nil, err
		}
		made = append(made, name)
	}
	return made, nil
}

// kustomization has the resources of one, which are files beside it.
func (r *release) kustomization(dir string) ([]byte, error) {
	list, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var documents []string
	for _, resource := range regexp.MustCompile(`(?m)^  - ([a-z-]+\.yaml)`).FindAllSubmatch(list, -1) {
		text, err := os.ReadFile(filepath.Join(dir, string(resource[1])))
		if err != nil {
			return nil, err
		}
		documents = append(documents, string(text))
	}
	image := regexp.MustCompile(`"` + regexp.QuoteMeta(noRegistry) + `/([a-z-]+):1"`)
	text := image.ReplaceAllString(strings.Join(documents, "---\n"), fmt.Sprintf(`"%s/${1}:%s"`, r.prefix, r.tag))
	if strings.Contains(text, noRegistry+"/") {
		return nil, fmt.Errorf("%s: an image is not %s/NAME:1", dir, noRegistry)
	}
	return []byte(text), nil
}
