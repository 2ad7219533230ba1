//go:build e2e

package e2e

import "testing"

// userspaceDir is where userspace-cni makes the directories of sockets.
const userspaceDir = "/var/lib/cni/usrspcni/"

// standIn is userspace-cni without a dataplane: it makes the sandbox's directory, and its
// result has no interface.
const standIn = `#!/bin/sh
dir=` + userspaceDir + `$(echo "$CNI_CONTAINERID" | cut -c1-12)
case $CNI_COMMAND in
ADD) mkdir -p "$dir" && echo '{"cniVersion": "1.0.0"}' ;;
DEL) rm -rf "$dir" ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
esac
`

// userspace has the stand-in on the node for the time of a test.
func userspace(t *testing.T) {
	t.Helper()
	program(t, "userspace", standIn)
}

// program puts a script among the plugins of the node for the time of a test.
func program(t *testing.T, name, script string) {
	t.Helper()
	path := "/opt/cni/bin/" + name
	feedOnNode(t, script, "tee", path)
	onNode(t, "chmod", "0755", path)
	t.Cleanup(func() { onNode(t, "rm", path) })
}
