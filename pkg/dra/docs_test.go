package dra_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/custody"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/inventory"
)

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// literals are what the first group of a regular expression finds in files, each once, sorted.
func literals(t *testing.T, expression string, paths ...string) (all []string) {
	t.Helper()
	for _, path := range paths {
		for _, found := range regexp.MustCompile(expression).FindAllStringSubmatch(text(t, path), -1) {
			all = append(all, found[1])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// texts gives phases and the like as they are written, sorted.
func texts[T ~string](list []T) (all []string) {
	for _, one := range list {
		all = append(all, string(one))
	}
	slices.Sort(all)
	return all
}

func TestTheDocumentationHasTheMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := dra.NewMetrics(registry)
	registry.MustRegister(dra.CensusMetrics(func() dra.Census { return dra.Census{Phases: map[string]int{"Added": 1}} }))
	m.Exec("ADD", time.Second, cniexec.ReasonPlugin)
	m.Event("Prepare", time.Second, os.ErrInvalid)
	m.Mismatch(custody.Name, true)
	m.Idle([]inventory.Idle{{Rule: "devices[0]"}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var exposed []string
	for _, family := range families {
		exposed = append(exposed, family.GetName())
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(cni_dra_[a-z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(text(t, "../../docs/dra/README.md"), -1) {
		rows[row[1]] = row[2]
	}
	for _, name := range exposed {
		if _, ok := rows[name]; !ok {
			t.Errorf("docs/dra/README.md has no %s", name)
		}
	}
	if len(rows) != len(exposed) {
		t.Errorf("docs/dra/README.md has other metrics than %q", exposed)
	}
	for _, test := range []struct {
		metric, label string
		values        []string
	}{
		{"cni_dra_exec_failures_total", "reason", literals(t, `(?m)^(?:\t|const )Reason\w+ .*= "(\w+)"`, "reasons.go", "../cniexec/error.go")},
		{"cni_dra_event_duration_seconds", "event", literals(t, `a\.(?:event\(|leave\(ctx, )"(\w+)"`, "pods.go", "events.go")},
		{"cni_dra_attachments", "phase", texts(state.Phases())},
		{"cni_dra_device_mismatches_total", "what", texts(custody.Whats())},
	} {
		var documented []string
		if found := regexp.MustCompile("`" + test.label + "`(?:: | \\()([A-Za-z, -]+)").FindStringSubmatch(rows[test.metric]); found != nil {
			documented = strings.Split(found[1], ", ")
		}
		slices.Sort(documented)
		if diff := cmp.Diff(test.values, documented); diff != "" {
			t.Errorf("%s, %s (-code +docs/dra/README.md):\n%s", test.metric, test.label, diff)
		}
	}
}

func TestTheDocumentationHasTheReasonsOfEvents(t *testing.T) {
	_, line, _ := strings.Cut(text(t, "../../docs/dra/README.md"), "Events on pods have the reasons ")
	line, _, _ = strings.Cut(line, ".")
	var documented []string
	for _, found := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(line, -1) {
		documented = append(documented, found[1])
	}
	slices.Sort(documented)
	if diff := cmp.Diff(literals(t, `(?m)^\tNotice\w+ .*= "(\w+)"`, "notices.go"), documented); diff != "" {
		t.Errorf("(-code +docs/dra/README.md)\n%s", diff)
	}
}
