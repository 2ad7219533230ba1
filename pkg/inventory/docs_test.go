package inventory_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/inventory"
)

func TestTheDocumentationHasTheAttributes(t *testing.T) {
	var table strings.Builder
	table.WriteString("| attribute | type | of | meaning |\n|---|---|---|---|\n")
	for _, a := range inventory.Table() {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", a.Name, a.Type, a.Of, a.Means)
	}
	text, err := os.ReadFile("../../docs/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n"+table.String()+"\n") {
		t.Errorf("docs/inventory.md must have this table:\n%s", table.String())
	}
}

// The example of the documentation is a configuration that works.
func TestTheExampleOfTheDocumentationIsValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(text), "## Rules\n\n```yaml\n")
	example, _, closed := strings.Cut(example, "```")
	if !found || !closed {
		t.Fatal("there is no example")
	}
	rules(t, example)
}
