package inventory_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/inventory"
)

func TestEachWrongRuleIsNamed(t *testing.T) {
	_, err := inventory.ParseRules([]byte(`{"devices": [{"as": "shared"}, {"ifNames": ["a"], "as": "x"}]}`))
	if err == nil || !strings.Contains(err.Error(), "devices[0].select") || !strings.Contains(err.Error(), "devices[1].as") {
		t.Errorf("got %v", err)
	}
}

func TestNoRulesOfferNothing(t *testing.T) {
	for _, text := range []string{"", "{}", "devices: []", "devices: null"} {
		if list := pool(t, host(t, captured(t, "igb-sriov")), text); len(list) > 0 {
			t.Errorf("%q: %v", text, deviceNames(list))
		}
	}
}

// Helm refuses what the chart's schema does not know.
func TestTheChartTakesEachKeyOfARule(t *testing.T) {
	text, err := os.ReadFile("../../deploy/charts/devinfo/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Properties map[string]*schema
		Items      *schema
	}
	var all schema
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for n, rule := 0, reflect.TypeFor[inventory.Rule](); n < rule.NumField(); n++ {
		keys = append(keys, rule.Field(n).Tag.Get("json"))
	}
	slices.Sort(keys)
	got := slices.Sorted(maps.Keys(all.Properties["dra"].Properties["devices"].Items.Properties))
	if diff := cmp.Diff(keys, got); diff != "" {
		t.Errorf("(-rules +schema)\n%s", diff)
	}
}
