package metadata_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"devinfo-cni.io/test/difftest"
)

// The examples of the reference read the page's own file, and one with a document for each version of the format, whose
// first device has no attributes.
func TestExamplesOfPageReadFirstDocument(t *testing.T) {
	const page = "../../../docs/dra/reference.md"
	written := difftest.Read(t, "../../../test/kubevirt/testdata/vf.json")
	bare := strings.Replace(written, `"devices": [`, `"devices": [{"driver": "d", "pool": "p", "name": "n"},`, 1)
	for text, want := range map[string]string{difftest.Block(t, page, "json", "DeviceMetadata"): "0000:3b:00.2", written: "0000:03:00.5", bare: "0000:03:00.5"} {
		for program, example := range map[string]string{
			"sh": difftest.Block(t, page, "sh", "jq -n"), "python3": difftest.Block(t, page, "python", "import json"),
		} {
			if _, err := exec.LookPath(map[string]string{"sh": "jq", "python3": "python3"}[program]); err != nil {
				t.Logf("the example with %s is not run: %v", program, err)
				continue
			}
			cmd := exec.CommandContext(t.Context(), program, "-c", example)
			cmd.Dir, cmd.Stderr = t.TempDir(), os.Stderr
			difftest.Must(t, os.WriteFile(filepath.Join(cmd.Dir, "metadata.json"), []byte(text), 0o600))
			out, err := cmd.Output()
			difftest.Must(t, err)
			difftest.Same(t, program, strings.TrimPrefix(strings.TrimSpace(string(out)), "None\n"), want)
		}
		file := strings.NewReader(text)
		var md metadata.DeviceMetadata
		err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(file), &md)
		difftest.Must(t, err)
		devices := md.Requests[0].Devices
		difftest.Equal(t, devices[len(devices)-1].Attributes["resource.kubernetes.io/pciBusID"].StringValue, &want)
	}
	difftest.Contains(t, difftest.Block(t, page, "go", "var md"), `"k8s.io/dynamic-resource-allocation/api/metadata"`,
		`"k8s.io/dynamic-resource-allocation/devicemetadata"`, "var md metadata.DeviceMetadata\n",
		"err = devicemetadata.DecodeMetadataFromStream(json.NewDecoder(file), &md)\n",
		`md.Requests[0].Devices[0].Attributes["resource.kubernetes.io/pciBusID"].StringValue`)
}
