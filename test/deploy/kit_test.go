// Package deploy tests the files in deploy/ with the libraries of their users: kustomize, Helm, the Kubernetes API's
// types, and Prometheus' parsers.
package deploy

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/test/difftest"
)

const (
	root  = "../../deploy"
	chart = root + "/charts/devinfo"
	docs  = "../../docs"
)

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
		u := unstructured.Unstructured{Object: object}
		kind, name := u.GetKind(), cmp.Or(u.GetName(), u.GetGenerateName())
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
	difftest.Must(t, err)
	text, err := made.AsYaml()
	difftest.Must(t, err)
	list := objects{}
	list.add(t, string(text))
	return list
}

// template runs the equivalent of "helm template --namespace".
func template(t *testing.T, namespace, values string) objects {
	t.Helper()
	texts, err := render(t, namespace, values)
	difftest.Must(t, err)
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
	difftest.Must(t, err)
	var given map[string]any
	difftest.Must(t, yaml.UnmarshalStrict([]byte(values), &given))
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

// encode returns a value as YAML.
func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	difftest.Must(t, err)
	return string(text)
}

// env returns the variables of a container.
func env(c corev1.Container) map[string]string {
	list := map[string]string{}
	for _, v := range c.Env {
		list[v.Name] = v.Value
	}
	return list
}

// file returns the objects in a manifest of deploy/.
func file(t *testing.T, name string) objects {
	t.Helper()
	list := objects{}
	list.add(t, difftest.Read(t, filepath.Join(root, name)))
	return list
}
