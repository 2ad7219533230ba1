package schema_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// values replace each value of a text, one after another. null is not among them: parsers take it for a missing key, and
// schemas refuse it.
var values = []any{"", "x", "x y", "/x", "eth0", 0, -1, 70000, true, []any{}, []any{"x"}, map[string]any{}, map[string]any{"x": 1}}

// mutations returns variants of a value: without each key, and with other values of it.
func mutations(value any) (all []any) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if v[key] == "devinfo" { // the parser is given configurations of this type only
				continue
			}
			without := maps.Clone(v)
			delete(without, key)
			all = append(all, without)
			for _, other := range append(mutations(v[key]), values...) {
				changed := maps.Clone(v)
				changed[key] = other
				all = append(all, changed)
			}
		}
	case []any:
		for n := range v {
			for _, other := range append(mutations(v[n]), values...) {
				changed := slices.Clone(v)
				changed[n] = other
				all = append(all, changed)
			}
		}
	}
	return all
}

// One wrong or missing value in a valid text has the same verdict by schema and parser.
func TestSchemasAndParsersAgreeOnMutations(t *testing.T) {
	for file, parse := range map[string]func(*testing.T, string) error{
		"device-info.json": deviceInfo, "node.json": node, "plugin.json": plugin, "cniconfig.json": parameters,
	} {
		schema, verdicts := compiled(t, file), map[bool]int{}
		good, _, _ := strings.Cut(difftest.Read(t, "testdata/"+strings.TrimSuffix(file, ".json")+".txt"), "\n# refused:\n")
		for text := range strings.SplitSeq(good, "\n") {
			var value any
			must(t, json.Unmarshal([]byte(text), &value))
			for _, mutation := range mutations(value) {
				changed, err := json.Marshal(mutation)
				must(t, err)
				byParser, bySchema := parse(t, string(changed)), valid(t, schema, string(changed))
				verdicts[byParser == nil]++
				if (byParser == nil) != (bySchema == nil) {
					t.Errorf("%s: %s\nthe parser says: %v\nthe schema says: %v", file, changed, byParser, bySchema)
				}
			}
		}
		if verdicts[true] < 5 || verdicts[false] < 50 {
			t.Errorf("%s: %v", file, verdicts)
		}
	}
}
