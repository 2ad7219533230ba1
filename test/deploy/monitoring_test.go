package deploy

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"devinfo-cni.io/test/difftest"
)

// rules returns the rules of the PrometheusRule, as promtool parses them.
func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(encode(t, file(t, "monitoring/prometheusrule.yaml")["PrometheusRule devinfo"]["spec"])), false)
	difftest.Must(t, errs...)
	var list []rulefmt.Rule
	for _, group := range groups.Groups {
		list = append(list, group.Rules...)
	}
	return list
}

// A dashboard contains the tested fields of Grafana's JSON.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

func grafana(t *testing.T) (d dashboard) {
	t.Helper()
	text := difftest.Read(t, filepath.Join(chart, "files/dashboard.json"))
	difftest.Must(t, json.Unmarshal([]byte(text), &d))
	return d
}

// expressions returns the expressions of the rules and the dashboard, by place.
func expressions(t *testing.T) map[string]parser.Expr {
	t.Helper()
	texts := map[string]string{}
	for _, r := range rules(t) {
		texts["alert "+r.Alert] = r.Expr
	}
	for _, p := range grafana(t).Panels {
		for _, target := range p.Targets {
			texts["panel "+p.Title+": "+target.Expr] = variables.Replace(target.Expr)
		}
	}
	parsed := map[string]parser.Expr{}
	for where, text := range texts {
		e, err := parser.ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		parsed[where] = e
	}
	return parsed
}

// source returns the Go code of the programs, without tests.
func source(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, path := range difftest.Files(t, "../../pkg", "../../cmd", "../../plugins") {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			all.WriteString(difftest.Read(t, path))
		}
	}
	return all.String()
}

func TestMetricsInRulesAndDashboardExist(t *testing.T) {
	code := source(t)
	quoted := func(word string) bool { return strings.Contains(code, `"`+word+`"`) }
	looked := 0
	for where, expr := range expressions(t) {
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			selector, ok := node.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			name := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(selector.Name, "")
			if strings.HasPrefix(name, "sriov_vf_") || strings.HasPrefix(name, "node_") || strings.HasPrefix(name, "kube_node_") || name == "up" {
				return nil // a metric of another exporter
			}
			looked++
			if !quoted(name) {
				t.Errorf("%s: no program has the metric %s", where, name)
			}
			for _, m := range selector.LabelMatchers {
				values(t, where, m, quoted)
			}
			return nil
		})
	}
	if looked < 15 {
		t.Errorf("%d metrics of ours were looked at", looked)
	}
}

// values checks a label, and the values that an expression selects.
func values(t *testing.T, where string, m *labels.Matcher, quoted func(string) bool) {
	t.Helper()
	if m.Name == labels.MetricName || m.Name == "instance" || m.Value == ".*" {
		return
	}
	if !quoted(m.Name) {
		t.Errorf("%s: no program has the label %s", where, m.Name)
	}
	for _, value := range strings.Split(m.Value, "|") {
		if value != "" && !quoted(value) {
			t.Errorf("%s: no program has the value %s=%q", where, m.Name, value)
		}
	}
}

// docs/alerts.md has a section for each alert, which begins with its severity.
func TestEachAlertHasSectionWithSeverityAndRemedy(t *testing.T) {
	page := difftest.Read(t, "../../docs/alerts.md")
	sections := map[string]string{} // severity by alert
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)\n\n(\w+)\. `).FindAllStringSubmatch(page, -1) {
		sections[m[1]] = m[2]
	}
	alerts, critical := map[string]string{}, 0
	for _, r := range rules(t) {
		alerts[r.Alert] = r.Labels["severity"]
		if want := "docs/alerts.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %q, want %q", r.Alert, r.Annotations["runbook"], want)
		}
		if r.Labels["severity"] == "critical" {
			critical++
		}
	}
	difftest.Equal(t, sections, alerts)
	difftest.Equal(t, critical, 5) // as the page says
}

// Only the operator knows the address.
func TestRunbookURLIsConfigurable(t *testing.T) {
	made := template(t, "devinfo", `{metrics: {prometheusRule: {enabled: true, runbooks: "https://wiki.example.com/devinfo"}}}`)
	text := encode(t, made["PrometheusRule devinfo"])
	urls := regexp.MustCompile(`runbook_url: https://wiki\.example\.com/devinfo#[a-z]`).FindAllString(text, -1)
	if len(urls) != len(rules(t)) || strings.Contains(text, "runbook: ") {
		t.Errorf("%d of %d alerts have the address:\n%s", len(urls), len(rules(t)), text)
	}
}
