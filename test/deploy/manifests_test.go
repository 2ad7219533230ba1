package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var write = flag.Bool("write", false, "write the manifests, as make manifests does")

// manifests are what the chart makes of values, by their paths below deploy/.
var manifests = []struct {
	namespace, values string
	files             map[string]string // by the template's path
}{
	{"devinfo", `{metrics: {prometheusRule: {enabled: true}}}`, map[string]string{
		"agent/serviceaccount.yaml": "devinfo/base/serviceaccount.yaml", "agent/daemonset.yaml": "devinfo/base/daemonset.yaml",
		"monitoring/prometheusrule.yaml": "monitoring/prometheusrule.yaml",
	}},
	{"devinfo", `{metrics: {podMonitor: {enabled: true}}}`, map[string]string{"monitoring/podmonitors.yaml": "monitoring/podmonitor.yaml"}},
	{"devinfo", `{agent: {publish: true}}`, map[string]string{"agent/publish.yaml": "devinfo/components/publish/publish.yaml"}},
	{"devinfo", `{openshift: true}`, map[string]string{"agent/scc.yaml": "devinfo/overlays/openshift/scc.yaml"}},
	{"cni-dra-driver", `{agent: {enabled: false}, dra: {enabled: true}, metrics: {podMonitor: {enabled: true}}}`, map[string]string{
		"dra/rbac.yaml": "cni-dra-driver/rbac.yaml", "dra/rbac-associated-node.yaml": "cni-dra-driver/rbac-associated-node.yaml",
		"dra/admission.yaml": "cni-dra-driver/admission.yaml", "dra/deviceclass.yaml": "cni-dra-driver/deviceclass.yaml",
		"dra/daemonset.yaml": "cni-dra-driver/daemonset.yaml", "monitoring/podmonitors.yaml": "cni-dra-driver/examples/podmonitor.yaml",
	}},
}

// ofHelm are lines that say of an object that it is a release's.
var ofHelm = regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/(managed-by|instance|version|part-of)): .*\n`)

// Whoever uses kustomize needs no Helm: what the chart makes of some values is in the repository.
func TestTheManifestsAreTheCharts(t *testing.T) {
	for _, m := range manifests {
		made, err := render(t, m.namespace, m.values)
		must(t, err)
		for template, name := range m.files {
			text := strings.TrimPrefix(strings.TrimSpace(made["devinfo/templates/"+template]), "---\n")
			text = "# Made of deploy/charts/devinfo by \"make manifests\".\n" + ofHelm.ReplaceAllString(text+"\n", "")
			path := filepath.Join(root, name)
			if *write {
				must(t, os.WriteFile(path, []byte(text), 0o644))
			}
			has, err := os.ReadFile(path)
			must(t, err)
			if diff := cmp.Diff(text, string(has)); diff != "" {
				t.Errorf("%s is another than the chart's: run \"make manifests\" (-chart +file)\n%s", name, diff)
			}
		}
	}
}
