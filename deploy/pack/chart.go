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

// chart writes the Helm chart in a directory as "helm package --version --app-version" does. It sets the images and
// the repository of this release.
func (r *release) chart() error {
	files, err := filesOf(r.charts)
	if err != nil {
		return err
	}
	name, version := filepath.Base(r.charts), r.chartVersion()
	for n, f := range files {
		switch f.name {
		case "Chart.yaml":
			err = errors.Join(set(&files[n], "version: ", version), set(&files[n], "appVersion: ", r.version))
			if r.source != "" {
				err = errors.Join(err, set(&files[n], "home: ", fmt.Sprintf("%q", r.source)), set(&files[n], "sources: ", fmt.Sprintf("[%q]", r.source)))
			}
		case "values.yaml":
			err = set(&files[n], "  tag: ", fmt.Sprintf("%q", r.tag))
			if r.prefix != noRegistry {
				err = errors.Join(err, set(&files[n], "  registry: ", fmt.Sprintf("%q", r.prefix)))
			}
		}
		if err != nil {
			return err
		}
		files[n].name = path.Join(name, f.name)
	}
	return r.packed(name+"-"+version+".tgz", files)
}

var semantic = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+([-+].*)?)$`)

// chartVersion returns a semantic version, which Helm requires. For a commit of a repository without tags it makes
// one up.
func (r *release) chartVersion() string {
	if found := semantic.FindStringSubmatch(r.version); found != nil {
		return found[1]
	}
	return "0.0.0-g" + r.version
}

// set replaces the value in the first line that begins with a key.
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

// manifests writes manifests for "kubectl apply -f" from the kustomizations beside the chart, with the images of this
// release. Without a registry it writes none.
func (r *release) manifests() error {
	if r.prefix == noRegistry {
		return nil
	}
	for name, dir := range map[string]string{"install.yaml": "devinfo/base", "install-cni-dra-driver.yaml": "cni-dra-driver"} {
		text, err := r.kustomization(filepath.Join(r.charts, "../..", dir))
		if err == nil {
			err = r.write(name, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kustomization returns the resources of a kustomization, which are files in its directory.
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
