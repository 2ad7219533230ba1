package pkg_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"devinfo-cni.io/test/difftest"
)

// decode reads a file of .github. GitHub reports a misspelled key only on its page, so v has the keys that are used.
func decode(t *testing.T, path string, v any) (text string) {
	t.Helper()
	text = difftest.Read(t, "../.github/"+path)
	if err := yaml.UnmarshalStrict([]byte(text), v); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return text
}

func TestWorkflowsRunScriptsOfRepository(t *testing.T) {
	for name, event := range map[string]string{"test": "pull_request", "nightly": "schedule"} {
		var w struct {
			Name        string         `json:"name"`
			On          map[string]any `json:"true"` // YAML 1.1 reads "on" so
			Permissions struct{ Contents string }
			Concurrency map[string]any
			Jobs        map[string]struct {
				RunsOn  string `json:"runs-on"`
				Minutes int    `json:"timeout-minutes"`
				Steps   []struct {
					Uses string
					With map[string]any
					Run  string
				}
			}
		}
		text := decode(t, "workflows/"+name+".yaml", &w)
		if _, ok := w.On[event]; !ok || w.Permissions.Contents != "read" {
			t.Errorf("%s: runs on %v with the permission %q", name, w.On, w.Permissions.Contents)
		}
		paths := regexp.MustCompile(`(?m)(?:run: .* |go-version-file: )(\.ci/\w+|\S*\.mod)$`).FindAllStringSubmatch(text, -1)
		if !strings.Contains(text, ".ci/") || len(paths) < 2 {
			t.Errorf("%s runs %q", name, paths)
		}
		for _, found := range paths {
			if _, err := os.Stat("../" + found[1]); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestIssueFormsAskForCapture(t *testing.T) {
	for _, name := range []string{"bug", "feature"} {
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID    string
				Attributes  struct{ Label, Description, Value, Render string }
				Validations struct{ Required bool }
			}
		}
		text := decode(t, "ISSUE_TEMPLATE/"+name+".yaml", &form)
		if form.Name == "" || form.Description == "" || !strings.Contains(text, "devinfoctl capture --scrub") {
			t.Errorf("%s: %+v", name, form)
		}
		for _, field := range form.Body {
			if field.Type == "textarea" && (field.ID == "" || field.Attributes.Label == "") || field.Type == "markdown" && field.Attributes.Value == "" {
				t.Errorf("%s: %+v", name, field)
			}
		}
	}
	var config struct {
		Blank bool `json:"blank_issues_enabled"`
	}
	decode(t, "ISSUE_TEMPLATE/config.yml", &config)
}
