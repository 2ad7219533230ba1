package agent_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The table in docs/agent.md is what is exposed, with the values of its labels.
func TestTheDocumentedMetricsAreThoseExposed(t *testing.T) {
	r := newRig(t)
	r.Publish = new(api).annotate
	r.put(vf("ok", "0000:03:00.2", "eth4", "mlx5_2"))
	a, end := r.started()
	eventually(t, "well", func() bool { return well(a) })
	end()
	exposed := map[string]map[string][]string{}
	for _, family := range gather(t, a) {
		labels := map[string][]string{}
		for _, m := range family.Metric {
			for _, p := range m.Label {
				labels[p.GetName()] = append(labels[p.GetName()], p.GetValue())
			}
		}
		exposed[family.GetName()] = labels
	}
	text, err := os.ReadFile("../../docs/agent.md")
	r.must(err)
	documented := map[string]map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(devinfo_[a-z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = labelsOf(row[2])
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(exposed)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("the metrics (-exposed +documented):\n%s", diff)
	}
	for name, labels := range documented {
		if diff := cmp.Diff(slices.Sorted(maps.Keys(exposed[name])), slices.Sorted(maps.Keys(labels))); diff != "" {
			t.Errorf("the labels of %s (-exposed +documented):\n%s", name, diff)
		}
		for label, values := range labels {
			slices.Sort(values)
			slices.Sort(exposed[name][label])
			if diff := cmp.Diff(exposed[name][label], values); len(values) > 0 && diff != "" {
				t.Errorf("the values of %s in %s (-exposed +documented):\n%s", label, name, diff)
			}
		}
	}
}

// labelsOf reads a row: `label`: value, value; words. Or several labels, without values.
func labelsOf(row string) map[string][]string {
	labels := map[string][]string{}
	if !strings.HasPrefix(row, "`") {
		return labels
	}
	row, _, _ = strings.Cut(row, ";")
	if label, values, ok := strings.Cut(row, ": "); ok {
		labels[strings.Trim(label, "`")] = strings.Split(values, ", ")
		return labels
	}
	for _, found := range regexp.MustCompile("`([A-Za-z_]+)`").FindAllStringSubmatch(row, -1) {
		labels[found[1]] = nil
	}
	return labels
}
