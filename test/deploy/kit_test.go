// Package deploy tests the files in deploy/ with the libraries of their users: kustomize, Helm, the Kubernetes API's
// types, and Prometheus' parsers.
package deploy

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../../deploy"
	chart = root + "/charts/devinfo"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// same reports the differences of two values as an error.
func same(t *testing.T, what string, got, want any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// blocks returns the code blocks of a language in the documentation.
func blocks(t *testing.T, language string) (list []string) {
	t.Helper()
	must(t, filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		for n, part := range strings.Split(read(t, path), "```") {
			if block, ok := strings.CutPrefix(part, language+"\n"); ok && n%2 == 1 {
				list = append(list, block)
			}
		}
		return nil
	}))
	return list
}

// block returns the first code block that contains a text.
func block(t *testing.T, language, text string) string {
	t.Helper()
	list := blocks(t, language)
	n := slices.IndexFunc(list, func(block string) bool { return strings.Contains(block, text) })
	if n < 0 {
		t.Fatalf("the documentation has no block of %s with %q", language, text)
	}
	return list[n]
}

// objects are parsed manifests by kind and name.
type objects map[string]map[string]any

// add adds the objects of a stream of YAML documents.
func (o objects) add(t *testing.T, stream string) {
	t.Helper()
	for _, document := range strings.Split("\n"+stream, "\n---") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if object == nil { // comments
			continue
		}
		meta, _ := object["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		if name == "" {
			name, _ = meta["generateName"].(string)
		}
		kind, _ := object["kind"].(string)
		if kind == "" || name == "" || o[kind+" "+name] != nil {
			t.Fatalf("no kind or name, or there twice:\n%s", document)
		}
		o[kind+" "+name] = object
	}
}

// kustomize runs the equivalent of "kubectl kustomize".
func kustomize(t *testing.T, dir string) objects {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, dir))
	must(t, err)
	text, err := made.AsYaml()
	must(t, err)
	list := objects{}
	list.add(t, string(text))
	return list
}

// template runs the equivalent of "helm template --namespace".
func template(t *testing.T, namespace, values string) objects {
	t.Helper()
	texts, err := render(t, namespace, values)
	must(t, err)
	list := objects{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if strings.HasSuffix(name, ".yaml") {
			list.add(t, texts[name])
		}
	}
	return list
}

// render returns the files that the chart's templates create, or an error if the values are invalid.
func render(t *testing.T, namespace, values string) (map[string]string, error) {
	t.Helper()
	return renderOn(t, nil, namespace, values)
}

// renderOn is like render, for a cluster with these APIs; nil = all.
func renderOn(t *testing.T, apis *common.Capabilities, namespace, values string) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(chart)
	must(t, err)
	var given map[string]any
	must(t, yaml.UnmarshalStrict([]byte(values), &given))
	if given == nil {
		given = map[string]any{}
	}
	if given["image"] == nil {
		given["image"] = map[string]any{"registry": "cluster.local", "tag": 1}
	}
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "devinfo", Namespace: namespace, IsInstall: true}, apis)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// file returns the objects in a manifest of deploy/.
func file(t *testing.T, name string) objects {
	t.Helper()
	list := objects{}
	list.add(t, read(t, filepath.Join(root, name)))
	return list
}
