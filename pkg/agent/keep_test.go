package agent_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/link/linktest"
)

// The plugin is in place: a node on which restorecon(8) is due must not hold up the others.
func TestALabelThatCannotBeGivenIsSaidAndHoldsUpNothing(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		r := newRig(t)
		r.Options.Plugin.Dir = "/run"
		err := unix.Setxattr("/run", "security.selinux", []byte(strings.Repeat("x", 5000)), 0) // more than any policy's
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) {
			t.Skip("no label can be set here: ", err)
		}
		r.must(err)
		a, _ := r.started()
		eventually(t, "said", func() bool {
			return strings.Contains(says(a, agent.Label), "run restorecon on the node") && metrics(t, a)[`devinfo_agent_ok{part="label"}`] == 0
		})
		if got := says(a, agent.Plugin); got != "" {
			t.Errorf("the plugin: %s", got)
		}
		for _, c := range a.Checks() {
			if !c.Optional && c.Ask() != nil {
				t.Errorf("not ready: %s", c.Name)
			}
		}
	})
}
