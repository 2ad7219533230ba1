//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// sriovLog has a line for each call of the stand-in: verb, sandbox, interface, VF.
const sriovLog = "/var/log/e2e-sriov.log"

// sriovStandIn is sriov-cni without VFs: it wants deviceID at the top of its configuration,
// and nowhere else, and attaches a macvlan in the VF's place.
const sriovStandIn = `#!/bin/sh
config=$(cat)
id=$(printf %s "$config" | sed -n 's/.*"deviceID":"\([^"]*\)".*/\1/p')
case $CNI_COMMAND in
ADD | DEL) echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $id" >>` + sriovLog + ` ;;
esac
if [ "$CNI_COMMAND" = ADD ] && [ -z "$id" ]; then
	echo '{"cniVersion": "1.0.0", "code": 7, "msg": "VF pci addr is required"}'
	exit 1
fi
printf %s "$config" | sed 's/"type":"sriov"/"type":"macvlan","master":"MASTER","mode":"bridge"/' | /opt/cni/bin/macvlan
`

// sriov has the stand-in on the node for the time of a test.
func sriov(t *testing.T) {
	t.Helper()
	program(t, "sriov", strings.ReplaceAll(sriovStandIn, "MASTER", cluster.master))
	t.Cleanup(func() { onNode(t, "rm", "-f", sriovLog) })
}

// calls are those of the stand-in since it was installed, as "ADD 0000:01:10.0".
func calls(t *testing.T) (all []string) {
	t.Helper()
	for line := range strings.Lines(onNode(t, "sh", "-c", "touch "+sriovLog+";cat "+sriovLog)) {
		if f := strings.Fields(line); len(f) == 4 {
			all = append(all, fmt.Sprintf("%s %s", f[0], f[3]))
		}
	}
	return all
}
