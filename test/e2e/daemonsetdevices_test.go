//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestADaemonSetOffersTheNodesDevices gives rules to the DaemonSet. The devices must be
// the node's own, and it need not have any: so there is one bridge, made while the agents run.
func TestADaemonSetOffersTheNodesDevices(t *testing.T) {
	if cluster.kit == "" {
		t.Skip("only in a cluster that the tests make: they change the DaemonSet")
	}
	a := daemonSet(t)
	dir, err := os.MkdirTemp("", "e2e-rules-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rules := filepath.Join(dir, "devices.yaml")
	if err := os.WriteFile(rules, []byte("devices:\n- ifNames: ["+pluggedBridge+"]\n  as: shared\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shell(t, strings.ReplaceAll(giveRules, "FILE", rules))
	ready(t, system, system)
	t.Run("HotPlug", hotPlug)
	if log := a.log(); strings.Contains(log, "--pod-resources-socket") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the agent's log:\n%s", log)
	}
}

const pluggedBridge = "e2e-hotplug0"

func hotPlug(t *testing.T) {
	offered := func(want bool) {
		t.Helper()
		devices(t, func(have map[string]resourceapi.Device) error {
			if _, is := have["net-"+pluggedBridge]; is != want || len(have) == 0 {
				return fmt.Errorf("offered: %v", have)
			}
			return nil
		})
	}
	s := begin(t)
	offered(false)
	onNode(t, "ip", "link", "add", pluggedBridge, "type", "bridge")
	t.Cleanup(func() { _, _ = tryOnNode("", "ip", "link", "del", pluggedBridge) }) // if the test fails before it does so
	offered(true)
	network := map[string]any{"cniVersion": "1.0.0", "name": s.name + "-bridge", "plugins": []map[string]any{
		{"type": "bridge", "ipam": map[string]any{"type": "host-local", "subnet": "10.11.83.0/24"}},
	}}
	class := s.classWhere(ours("ifName", pluggedBridge), opaque("net1", network))
	s.pod("a", s.template(requests(request("lan", class))))
	if v := s.running("a"); v.interfaceIn("net1", "10.11.83.") == nil {
		t.Errorf("net1 has no address 10.11.83...: %+v", v.Interfaces)
	}
	s.delete("a")
	onNode(t, "ip", "link", "del", pluggedBridge)
	offered(false)
}

// giveRules gives the rules of a file to the agents of the DaemonSet.
const giveRules = `
kubectl -n cni-dra-driver create configmap cni-dra-driver-devices --from-file=devices.yaml=FILE
kubectl -n cni-dra-driver patch daemonset cni-dra-driver --type=json -p '[
  {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--devices=/etc/cni-dra-driver/devices.yaml"},
  {"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value": {"name": "devices", "mountPath": "/etc/cni-dra-driver", "readOnly": true}},
  {"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "devices", "configMap": {"name": "cni-dra-driver-devices"}}}]'
`
