package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A record that cannot be used is listed under the claim's UID, and is nobody's leftover.
func TestARecordThatCannotBeUsedIsListed(t *testing.T) {
	n, dir := opened(t)
	must(t, os.Mkdir(dir+"/claims", 0o700))
	for name, text := range map[string]string{"u1.json": "{", "u2.json": `{"schema": 99}`, "other": "{"} {
		must(t, os.WriteFile(filepath.Join(dir, "claims", name), []byte(text), 0o600))
	}
	list, err := n.Attachments()
	must(t, err)
	got := map[string]string{}
	for _, a := range list {
		if a.Claim != "" {
			got[a.String()] = string(a.State)
			if !a.Unread() || a.Left() || a.Why == "" || !strings.HasPrefix(a.Holder(), "claim u") {
				t.Errorf("%s: unread %v, left %v, why %q, holder %s", a, a.Unread(), a.Left(), a.Why, a.Holder())
			}
		}
	}
	if len(got) != 2 || got["claim u1"] != "corrupt" || got["claim u2"] != "newer format" {
		t.Errorf("got %v", got)
	}
}
