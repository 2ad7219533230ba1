package deploy

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// documented returns values with rules, those in the documentation, and those in testdata that the chart takes.
func documented(t *testing.T) (all []string) {
	t.Helper()
	all = []string{`{dra: {enabled: true, devices: [{sharing: exclusive, pfNames: [p0]}, {sharing: shared, ifNames: [eth0], nodes: {matchLabels: {a: b}}}]}}`}
	for _, block := range difftest.Blocks(t, docs, "yaml") {
		if regexp.MustCompile(`(?m)^(agent|dra|metrics):`).MatchString(block) {
			all = append(all, block)
		}
	}
	if len(all) < 5 {
		t.Errorf("%d values in the documentation", len(all))
	}
	for line := range strings.Lines(difftest.Read(t, "testdata/values.txt")) {
		if values := strings.TrimSpace(line); strings.HasPrefix(line, "{") {
			if _, err := render(t, "devinfo", values); err == nil {
				all = append(all, values)
			}
		}
	}
	return all
}

// What the chart makes of its values is valid: devinfoctl finds nothing in it, nor in a healthy host with these settings, and
// the driver takes the rules.
func TestNothingIsWrongWithManifestsOfChart(t *testing.T) {
	bin := t.TempDir()
	run := func(dir, stdin string, command ...string) string {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s\n%v\n%s%s", strings.Join(command, " "), err, stdin, out)
		}
		return string(out)
	}
	run("../..", "", "go", "build", "-o", bin+"/", "./cmd/devinfoctl", "./cmd/cni-dra-driver")
	const healthy = "../../testdata/hosts/mlx5-switchdev.txtar"
	settings, rules := 0, 0
	for _, values := range documented(t) {
		var stream strings.Builder
		for id, object := range template(t, "devinfo", values) {
			stream.WriteString("---\n" + encode(t, object))
			data, _ := object["data"].(map[string]any)
			file := filepath.Join(t.TempDir(), "file")
			switch {
			case strings.HasPrefix(id, "ConfigMap") && strings.HasSuffix(id, "-settings"):
				for _, text := range data {
					settings++
					difftest.Write(t, file, text.(string), 0o644)
					run(".", "", bin+"/devinfoctl", "--capture", healthy, "--node-config", file, "doctor")
				}
			case data["devices.yaml"] != nil:
				rules++
				difftest.Write(t, file, data["devices.yaml"].(string), 0o644)
				run(".", "", bin+"/cni-dra-driver", "inventory", "--capture", healthy, "--config", file, "--node-labels", "a=b")
			}
		}
		if found := run(".", stream.String(), bin+"/devinfoctl", "validate", "--strict", "-"); !strings.Contains(found, "; 0 errors, 0 warnings") {
			t.Errorf("%s\n%s", values, found)
		}
	}
	if settings < 4 || rules < 2 {
		t.Errorf("%d settings, %d rules", settings, rules)
	}
}
