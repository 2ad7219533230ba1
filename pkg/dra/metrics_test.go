package dra_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// literals returns the sorted, distinct matches of a regular expression's first group in files.
func literals(t *testing.T, expression string, paths ...string) (all []string) {
	t.Helper()
	for _, path := range paths {
		for _, found := range regexp.MustCompile(expression).FindAllStringSubmatch(difftest.Read(t, path), -1) {
			all = append(all, found[1])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

const docs = "../../docs/dra"

func TestDocumentationListsAllMetrics(t *testing.T) {
	r := dratest.NewRig(t)
	r.StartKubelet(dratest.APIServer(nil), 0)
	described := make(chan *prometheus.Desc, 100)
	r.Registry.Describe(described)
	close(described)
	exposed := map[string]bool{}
	for desc := range described {
		exposed[regexp.MustCompile("(devinfo_dra|dra_metadata)_[a-z_]+").FindString(desc.String())] = true
	}
	pages := strings.Join(difftest.Pages(t, docs), "\n")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:devinfo_dra|dra_metadata)_[a-z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(pages, -1) {
		rows[row[1]] = row[2]
	}
	for name := range exposed {
		if _, ok := rows[name]; !ok {
			t.Errorf("docs/dra has no %s", name)
		}
	}
	if len(rows) != len(exposed) {
		t.Errorf("docs/dra has other metrics than %v", exposed)
	}
	for _, test := range []struct {
		metric, label string
		values        []string
	}{
		{"devinfo_dra_exec_failures_total", "reason", literals(t, `(?m)^(?:\t|const )Reason\w+ .*= "(\w+)"`, "claim/network/runner.go", "../core/cniexec/exec.go")},
		{"devinfo_dra_request_duration_seconds", "request", literals(t, `(?:\.event\(|endSandbox\(ctx, )"(\w+)"`, "claim/runtime.go", "claim/kubelet.go")},
		{"devinfo_dra_attachments", "phase", literals(t, `(?m)^\t\w+ +Phase = "(\w+)"`, "../core/state/claim.go")},
		{"dra_metadata_write_errors_total", "error_type", literals(t, `"([a-z_]+)": (?:\{|nil)`, "metadata.go")},
	} {
		var documented []string
		if found := regexp.MustCompile("`" + test.label + "`: ([A-Za-z0-9_, -]*[a-z])").FindStringSubmatch(rows[test.metric]); found != nil {
			documented = strings.Split(found[1], ", ")
		}
		slices.Sort(documented)
		difftest.Same(t, test.metric+", "+test.label+" in docs/dra", documented, test.values)
	}
	_, table, _ := strings.Cut(pages, "\n| setting | of |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, setting := range restore.SettingNames() {
		difftest.Contains(t, table, "`"+setting+"`")
	}
}

func TestDocumentationListsAllEventReasons(t *testing.T) {
	pages := strings.Join(difftest.Pages(t, docs), "\n")
	for _, reason := range literals(t, `(?m)^\tNotice\w+ .*= "(\w+)"`, "claim/report.go") {
		difftest.Contains(t, pages, "`"+reason+"`")
	}
}
