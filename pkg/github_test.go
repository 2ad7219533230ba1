package pkg_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow and form have the fields that the files of .github use. GitHub reports a misspelled key only on its page.
type workflow struct {
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

type form struct {
	Name, Description string
	Labels            []string
	Body              []struct {
		Type, ID    string
		Attributes  struct{ Label, Description, Value, Render string }
		Validations struct{ Required bool }
	}
}

func decode[T any](t *testing.T, path string) (value T, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &value); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return value, string(data)
}

func TestWorkflowsRunScriptsOfRepository(t *testing.T) {
	for name, event := range map[string]string{"test": "pull_request", "nightly": "schedule"} {
		w, text := decode[workflow](t, "../.github/workflows/"+name+".yaml")
		if _, ok := w.On[event]; !ok || w.Permissions.Contents != "read" {
			t.Errorf("%s: runs on %v with the permission %q", name, w.On, w.Permissions.Contents)
		}
		scripts := regexp.MustCompile(`(?m)run: .* (\.ci/\w+)$`).FindAllStringSubmatch(text, -1)
		if len(scripts) != 1 {
			t.Fatalf("%s runs %q", name, scripts)
		}
		if _, err := os.Stat("../" + scripts[0][1]); err != nil {
			t.Error(err)
		}
		for _, job := range w.Jobs {
			for _, step := range job.Steps {
				if file, ok := step.With["go-version-file"].(string); ok {
					if _, err := os.Stat(filepath.Join("..", file)); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
}

func TestIssueFormsAskForCapture(t *testing.T) {
	for _, name := range []string{"bug", "feature"} {
		f, text := decode[form](t, "../.github/ISSUE_TEMPLATE/"+name+".yaml")
		if f.Name == "" || f.Description == "" || !strings.Contains(text, "devinfoctl capture --scrub") {
			t.Errorf("%s: %+v", name, f)
		}
		for _, field := range f.Body {
			if field.Type == "textarea" && (field.ID == "" || field.Attributes.Label == "") || field.Type == "markdown" && field.Attributes.Value == "" {
				t.Errorf("%s: %+v", name, field)
			}
		}
	}
	decode[struct {
		Blank bool `json:"blank_issues_enabled"`
	}](t, "../.github/ISSUE_TEMPLATE/config.yml")
}
