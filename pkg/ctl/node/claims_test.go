package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/state"
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

// A file that the driver has written for a claim is the claim's, though no journal knows it.
func TestAClaimOwnsItsDeviceInfoFile(t *testing.T) {
	n, dir := opened(t)
	s, err := state.Open(dir + "/claims")
	must(t, err)
	t.Cleanup(func() { s.Close() })
	must(t, s.Put(&state.Claim{Schema: state.Schema, Namespace: "ns", Name: "claim", UID: "u1", Attachments: []state.Attachment{{
		Request: "vf", Network: "net", IfName: "net1", List: []byte(`{}`), Phase: state.Added,
		Execution: state.Execution{Sandbox: "s1", Netns: "there", BootID: "boot", InfoFile: dir + "/infos/claimed"},
	}}}))
	must(t, os.WriteFile(dir+"/infos/claimed", []byte("{}"), 0o600))
	list, err := n.Attachments()
	must(t, err)
	unowned, err := n.Unowned(list)
	must(t, err)
	g, err := n.Garbage()
	must(t, err)
	want := []string{dir + "/infos/stranger"}
	if !slices.Equal(unowned, want) || !slices.Equal(g.Unowned, want) {
		t.Errorf("files that nobody owns: %q, and by Garbage %q; want %q", unowned, g.Unowned, want)
	}
}
