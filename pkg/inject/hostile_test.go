package inject_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/inject"
)

// Whoever writes a pod chooses the names of its interfaces. CNI allows whatever the kernel
// does: no slash, colon or space.
func TestInterfaceNamesChosenByAFoe(t *testing.T) {
	r := newRig(t)
	nri := r.running()
	for _, ifName := range []string{`a"b`, "x=y", "\x1b[31m", "$(id)", "..net1", "ü", "network-info"} {
		r.attach("sriov-net", sandbox, ifName, vfInfo)
	}
	got := nri.make(pod(), container())
	want := []string{"$(id).json", "..net1.json", "\x1b[31m.json", `a"b.json`, "network-info.json", "x=y.json", "ü.json"}
	slices.Sort(want)
	if names := r.names(sandbox); !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	var all struct{ Interfaces []struct{ Interface string } }
	must(t, json.Unmarshal([]byte(r.staged(sandbox)["network-info.json"]), &all))
	if len(all.Interfaces) != 7 {
		t.Errorf("%+v", all)
	}
	for _, e := range got.GetEnv() {
		if strings.Trim(e.Key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
			t.Errorf("variable %q", e.Key)
		}
	}
	if left := r.left(); !slices.Equal(left, []string{sandbox}) {
		t.Errorf("in the agent's directory: %q", left)
	}
}

// An annotation may have 256 KiB, and what it says goes into logs and events.
func TestAnAnnotationFillsNoLog(t *testing.T) {
	r := newRig(t)
	r.options.WhenMissing = inject.Refuse
	nri := r.running()
	huge := strings.Repeat("x\n\x1b", 80_000)
	_, err := nri.create(pod("devinfo-cni.io/require="+huge), container())
	if err == nil || len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), "pod shop/web, container app: interface ") {
		t.Errorf("the runtime is told %.1000q", err)
	}
	nri.make(pod("devinfo-cni.io/inject="+huge), container())
	if text := r.log.text(); len(text) > 3000 || strings.Contains(text, "\x1b") || !strings.Contains(text, "annotation ignored") {
		t.Errorf("%d bytes of log", len(text))
	}
	r.told("refused required", "nothing")
}
