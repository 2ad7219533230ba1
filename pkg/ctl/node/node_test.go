package node_test

import (
	"testing"

	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/difftest"
)

var must = difftest.Must

// A name of a captured host leads nowhere else.
func TestPathsStayInTheCapturedHost(t *testing.T) {
	n := node.Node{Options: node.Options{Root: "/tmp/x"}}
	for name, want := range map[string]string{"/etc/a": "/tmp/x/etc/a", "/../../etc/a": "/tmp/x/etc/a", "a/../..": "/tmp/x"} {
		if got := n.Path(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
