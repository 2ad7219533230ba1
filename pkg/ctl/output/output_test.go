package output_test

import (
	"os"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/ctl/output"
	"devinfo-cni.io/test/difftest"
)

func TestEncodePrintsJSONOrYAML(t *testing.T) {
	type value struct {
		Name string `json:"podName"` // in YAML, too
	}
	for format, want := range map[string]string{"json": "{\n  \"podName\": \"<a&b>\"\n}\n", "yaml": "podName: <a&b>\n"} {
		var out strings.Builder
		difftest.Must(t, output.Encode(&out, format, value{"<a&b>"}))
		difftest.Same(t, format, out.String(), want)
		difftest.Says(t, output.Encode(&out, format, func() {}), "print as "+format+": json: unsupported type")
		difftest.Same(t, format+" after an error", out.String(), want)
	}
	closed, err := os.Open(os.DevNull)
	difftest.Must(t, err, closed.Close())
	difftest.Is(t, output.Encode(closed, "json", 1), os.ErrClosed)
}
