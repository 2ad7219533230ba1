package schema_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// keys returns the top-level keys in a schema.
func keys(t *testing.T, file string) []string {
	t.Helper()
	var schema struct{ Properties map[string]json.RawMessage }
	text, err := os.ReadFile("../../docs/schema/" + file)
	must(t, err)
	must(t, json.Unmarshal(text, &schema))
	return slices.Sorted(maps.Keys(schema.Properties))
}

// docs/reference.md leaves out the keys of every network configuration, such as name.
func TestReferenceListsKeysOfSchemas(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference.md")
	must(t, err)
	for heading, want := range map[string][]string{
		"## Keys of the network configuration\n": slices.DeleteFunc(keys(t, "plugin.json"), func(key string) bool {
			return slices.Contains([]string{"type", "cniVersion", "cniVersions", "name", "prevResult", "ipMasq", "ipam", "dns", "disableCheck", "disableGC", "cni.dev/valid-attachments", "cni.dev/attachments"}, key)
		}),
		"## Settings of the node\n": keys(t, "node.json"),
	} {
		_, section, _ := strings.Cut(string(text), heading)
		section, _, _ = strings.Cut(section, "\n## ")
		var documented []string
		for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(section, -1) {
			for key := range strings.SplitSeq(row[1], ", ") {
				key, _, _ = strings.Cut(strings.Trim(key, "`"), ".") // runtimeConfig.deviceID
				documented = append(documented, key)
			}
		}
		slices.Sort(documented)
		if documented = slices.Compact(documented); !slices.Equal(want, documented) {
			t.Errorf("%sthe schema has %q\ndocs/reference.md has %q", heading, want, documented)
		}
	}
}
