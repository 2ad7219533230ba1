//go:build e2e

package e2e

import "testing"

// wrongDevice fails the pod with an event that says what is wrong, and what to do; once the
// network is mended the pod starts.
func wrongDevice(t *testing.T) {
	s := begin(t)
	declared := map[string]any{"type": "pci", "pci": map[string]any{"pci-address": nonesuch}}
	s.nad("net", withFile, s.macvlan("10.11.71.0/24", map[string]any{"type": "devinfo", "capabilities": capability, "deviceInfo": declared}))
	s.create(withNetworks("a", []string{withFile}, "net"))
	s.event("a", "the configuration's deviceInfo names the PCI function "+nonesuch, "deviceID names the PCI function "+cluster.card, "correct the source that is wrong")
	clean(t)
	s.nad("net", withFile, s.macvlan("10.11.71.0/24", map[string]any{"type": "devinfo", "capabilities": capability}))
	s.says("a", cardInfo("1.1.0"))
}

// failsOnce is a directory: if it is there, the plugin stubborn removes it and fails its DEL.
const failsOnce = "/run/e2e-fails-once"

const stubborn = `#!/bin/sh
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "1.0.0"}' ;;
DEL) ! rmdir ` + failsOnce + ` 2>/dev/null ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
esac
`

// failedDEL has the DEL of a delegate fail once. A runtime that repeats DEL removes the attachment
// then; after one that does not, such as CRI-O, devinfoctl gc does.
func failedDEL(t *testing.T) {
	program(t, "stubborn", stubborn)
	s := begin(t)
	network := s.macvlan("10.11.74.0/24")
	delegates := append([]map[string]any{{"type": "stubborn"}}, network["plugins"].([]map[string]any)...)
	s.nad("net", withoutFile, map[string]any{"cniVersion": "1.0.0", "name": network["name"], "plugins": []map[string]any{{
		"type": "devinfo", "capabilities": capability, "delegates": delegates,
	}}})
	s.create(withNetworks("a", []string{withoutFile}, "net"))
	s.says("a", cardInfo("1.1.0"))
	onNode(t, "mkdir", failsOnce)
	s.delete("a")
	if _, err := tryOnNode("", "test", "-e", failsOnce); err == nil {
		t.Fatal("no DEL has failed")
	}
	t.Log("devinfoctl gc:\n" + onNode(t, binary(t, "devinfoctl"), "gc", "--yes"))
	clean(t)
}
