//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/test/difftest"
)

// onNode runs a command on the node. Its words must not need quotes.
func onNode(t *testing.T, command ...string) string {
	t.Helper()
	return feedOnNode(t, "", command...)
}

// feedOnNode runs a command with a standard input, such as a script for sh or a file's text for tee.
func feedOnNode(t *testing.T, stdin string, command ...string) string {
	t.Helper()
	out, err := tryOnNode(stdin, command...)
	must(t, err)
	return out
}

// tryOnNode is like feedOnNode for a command that may fail. The error contains the whole output. The result is only
// standard output, because ip prints a warning for interfaces whose peer has just disappeared.
func tryOnNode(stdin string, command ...string) (string, error) {
	if len(cluster.node) == 0 {
		return "", errors.New("there is no way to run a command on the node: set E2E_NODE")
	}
	cmd := nodeCommand(command...)
	cmd.Stdin = strings.NewReader(stdin)
	var warnings strings.Builder
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("on the node: %s: %w\n%s%s", strings.Join(command, " "), err, out, warnings.String())
	}
	return strings.TrimSpace(string(out)), err
}

// nodeCommand returns a command for the node.
func nodeCommand(command ...string) *exec.Cmd {
	all := slices.Concat(cluster.node, command)
	return exec.Command(all[0], all[1:]...)
}

func needsNode(t *testing.T) {
	t.Helper()
	if len(cluster.node) == 0 {
		t.Skip("E2E_NODE does not say how to run a command on the node")
	}
}

// leftovers is a script that lists the state of attachments on the node.
const leftovers = `
cd /
find var/lib/cni/networks/e2e-* -type f ! -name 'last_reserved_ip*' ! -name lock
find var/lib/kubelet/plugins/` + driver + `/state -name '*.json*'
find var/lib/kubelet/plugins/` + driver + `/cni -mindepth 1 -maxdepth 1
find var/lib/kubelet/plugins/` + driver + `/dra-device-metadata -type f
find var/run/cdi/ -name '` + driver + `*'
find var/run/k8s.cni.cncf.io/devinfo/cni/ -type f ! -name '.*'
find var/lib/cni/devinfo/leases -type l
find var/lib/cni/devinfo/claims -type f ! -name '.*'
find var/lib/cni/devinfo/attachments -type f ! -name '.*'
ip -o link show type macvlan
`

// unownedAddresses removes empty address files. host-local was killed before it had written the owner (docs/reliability.md).
const unownedAddresses = `find /var/lib/cni/networks/e2e-* -type f ! -name lock -empty -exec rm {} \;`

// clean waits until the node has no state of pods left.
func clean(t *testing.T) {
	t.Helper()
	if len(cluster.node) == 0 {
		return
	}
	script := leftovers + "\ntrue\n"
	if cluster.killed {
		script = unownedAddresses + "\n" + script
	}
	script = "exec 2>/dev/null\n" + script // missing directories are not an error
	eventually(t, 2*time.Minute, func() error {
		out, err := tryOnNode(script, "sh")
		if err == nil && out != "" {
			err = fmt.Errorf("left on the node:\n%s", out)
		}
		return err
	})
	cluster.killed = false
}

// killOnNode kills a program of the node by name, and waits until a new process runs.
func killOnNode(t *testing.T, program string) {
	t.Helper()
	cluster.killed = true
	old := strings.Fields(onNode(t, "pidof", program))
	// A child that has not executed another program yet has the same name, and may have ended in between.
	_, killErr := tryOnNode("", append([]string{"kill", "-KILL"}, old...)...)
	eventually(t, 2*time.Minute, func() error {
		out, err := tryOnNode("", "pidof", program)
		for _, now := range strings.Fields(out) {
			if slices.Contains(old, now) {
				return fmt.Errorf("%s is process %s still: %v", program, now, killErr)
			}
		}
		return err
	})
}

// needsKit skips a test on an existing cluster.
func needsKit(t *testing.T, why string) {
	t.Helper()
	if cluster.kit == "" {
		t.Skip("only in a cluster that the tests make: " + why)
	}
}

var must = difftest.Must

// patience is the factor for time limits on a slow node, E2E_PATIENCE.
var patience = func() int {
	if n, err := strconv.Atoi(os.Getenv("E2E_PATIENCE")); err == nil && n > 0 {
		return n
	}
	return 1
}()

// eventually repeats f until it succeeds, or until limit times patience has passed.
func eventually(t *testing.T, limit time.Duration, f func() error) {
	t.Helper()
	limit *= time.Duration(patience)
	for end := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v still: %v", limit, err)
		}
	}
}
