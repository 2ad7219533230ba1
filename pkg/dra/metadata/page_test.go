package metadata_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"

	"devinfo-cni.io/test/difftest"
)

// The examples of the reference read a file with a document for each version of the format.
func TestExamplesOfPageReadFirstDocument(t *testing.T) {
	page := difftest.Read(t, "../../../docs/dra/reference.md")
	dir := t.TempDir()
	text := difftest.Read(t, "../../../test/kubevirt/testdata/vf.json")
	difftest.Must(t, os.WriteFile(filepath.Join(dir, "metadata.json"), []byte(text), 0o600))
	for language, program := range map[string]string{"sh": "jq", "python": "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("the example with %s is not run: %v", program, err)
			continue
		}
		_, example, _ := strings.Cut(page, "```"+language+"\n"+map[string]string{"sh": "jq", "python": "import json"}[language])
		example, _, found := strings.Cut(example, "```")
		if !found {
			t.Fatalf("the page has no example with %s", program)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "jq"+example)
		if language == "python" {
			cmd = exec.CommandContext(t.Context(), program, "-c", "import json"+example)
		}
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		out, err := cmd.Output()
		difftest.Must(t, err)
		difftest.Same(t, program, strings.Trim(strings.TrimSpace(string(out)), `"`), "0000:03:00.5")
	}
	const decode = "err := json.NewDecoder(file).Decode(&metadata)"
	if !regexp.MustCompile(`(?s)` + "```go\n" + `var metadata v1beta1\.DeviceMetadata.*?\n` + regexp.QuoteMeta(decode)).MatchString(page) {
		t.Error("the page has no example in Go")
	}
	file := strings.NewReader(text)
	var metadata v1beta1.DeviceMetadata
	err := json.NewDecoder(file).Decode(&metadata)
	difftest.Must(t, err)
	difftest.Equal(t, metadata.Requests[0].Devices[0].Attributes["resource.kubernetes.io/pciBusID"].StringValue, new("0000:03:00.5"))
}
