//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"devinfo-cni.io/test/difftest"
)

// The page's resource, its VFs, and the addresses of its network.
const (
	blue       = "example.com/blue"
	bluePrefix = "10.57.1."
)

// step returns the documented block whose first line contains the name.
func step(t *testing.T, name string) string {
	t.Helper()
	return difftest.Block(t, filepath.Join(root, "docs/dra"), "yaml", "# "+name+"\n")
}

// today also creates the class. While a device plugin offers the resource, the pod gets a device of the device
// plugin.
func today(t *testing.T, _ *agent) {
	withMultus(t)
	devicePlugin(t, pool{blue, []string{"0000:01:10.0", "0000:01:10.2", "0000:01:10.4", "0000:01:10.6"}, ""})
	s := begin(t, step(t, "class.yaml"), content(t, "test/e2e/testdata/before.yaml"))
	s.in("before", "net1", bluePrefix)
	if claim := s.get("before").Status.ExtendedResourceClaimStatus; claim != nil {
		t.Errorf("the pod has a claim: %+v", claim)
	}
}

func byLimits(t *testing.T, _ *agent) {
	noneLeft(t)
	s := begin(t, step(t, "class.yaml"), step(t, "limits.yaml"))
	if v := s.in("limits", "net1", bluePrefix); v.Environment["DEVINFO_NET1"] == "" {
		t.Errorf("the container has no device-info file: %v", v.Environment)
	}
}

func byClaims(t *testing.T, _ *agent) {
	s := begin(t, step(t, "class.yaml"), content(t, "deploy/examples/migration/claim.yaml"))
	v := s.in("claim", "net1", bluePrefix)
	if v.Claims["resourceclaimtemplates/blue/vf"] == nil || v.Environment["DEVINFO_NET1"] == "" {
		t.Errorf("the container has %v and %v", slices.Collect(maps.Keys(v.Claims)), v.Environment)
	}
	s.attached("claim", "blue", "vf", "net1", bluePrefix)
	s.apply(content(t, "deploy/cni-dra-driver/examples/first-available.yaml"))
	s.in("otherwise", "net1", bluePrefix)
	if got := s.allocation("otherwise", "net/vf"); got.Driver != driver {
		t.Errorf("the pod that would take others has %+v", got)
	}
}

// limitsWithOlderMultus shows why the page warns of step 3 with Multus 4.2. Multus removes the field of the pod's status
// that it does not know.
func limitsWithOlderMultus(t *testing.T, _ *agent) {
	withMultus(t)
	s := begin(t, step(t, "class.yaml"), step(t, "limits.yaml"))
	s.in("limits", "net1", bluePrefix)
	if claim := s.get("limits").Status.ExtendedResourceClaimStatus; claim != nil {
		t.Errorf("Multus has kept %+v", claim)
	}
}

// olderMultus shows why the page requires a newer Multus.
func olderMultus(t *testing.T, _ *agent) {
	withMultus(t)
	s := begin(t, step(t, "multus.yaml"), content(t, "test/e2e/testdata/before.yaml"))
	s.event("before", "VF pci addr is required")
	s.notRunning("before")
}

// forNewerMultus runs the pod without Multus, so no plugin attaches it.
func forNewerMultus(t *testing.T, _ *agent) {
	s := begin(t, step(t, "multus.yaml"), content(t, "test/e2e/testdata/before.yaml"))
	s.vfOf("before")
	if v := s.running("before"); v.interfaceIn("net1", bluePrefix) != nil {
		t.Errorf("the driver has attached the pod: %+v", v.Interfaces)
	}
}

// noneLeft waits until the kubelet has noticed the end of the device plugin.
func noneLeft(t *testing.T) {
	t.Helper()
	eventually(t, 3*time.Minute, func() error {
		if n := onlyNode(t).Status.Allocatable[blue]; !n.IsZero() {
			return fmt.Errorf("the node still offers %v of %s", n.Value(), blue)
		}
		return nil
	})
}

// sriovStandIn replaces sriov-cni. It needs deviceID at the top level of its configuration, and attaches a macvlan
// instead of a VF.
const sriovStandIn = `#!/bin/sh
config=$(cat)
id=$(printf %s "$config" | sed -n 's/.*"deviceID":"\([^"]*\)".*/\1/p')
if [ "$CNI_COMMAND" = ADD ] && [ -z "$id" ]; then
	echo '{"cniVersion": "1.0.0", "code": 7, "msg": "VF pci addr is required"}'
	exit 1
fi
printf %s "$config" | sed 's/"type":"sriov"/"type":"macvlan","master":"MASTER","mode":"bridge"/' | /opt/cni/bin/macvlan
`
