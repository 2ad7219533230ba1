package inventory_test

import (
	"strings"
	"testing"

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
