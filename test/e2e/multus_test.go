//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/test/difftest"
)

// TestWithMultus checks that devinfo writes device information for pods of Multus. network-status must contain it for
// the right interface, and no state may remain.
func TestWithMultus(t *testing.T) {
	needsKit(t, "they put Multus and device plugins on the node")
	findCard(t)
	onNode(t, binary(t, "devinfoctl"), "install", "--cni-bin-dir", "/opt/cni/bin")
	onNode(t, "mkdir", "-p", filepath.Dir(nodeSettings))
	feedOnNode(t, `{"logFile": "`+nodeLog+`"}`, "tee", nodeSettings)
	t.Cleanup(func() { onNode(t, "rm", "-f", nodeSettings, nodeLog) })
	startMultus(t)
	t.Run("DevicePluginFileIsCompletedOrReplaced", devicePluginsFile)
	t.Run("WrongDeviceFailsPodUntilCorrected", wrongDevice)
	t.Run("FailedDELCanBeCollected", failedDEL)
}

// startMultus puts Multus before the node's CNI network, and runs the device plugin.
func startMultus(t *testing.T) {
	t.Helper()
	withMultus(t)
	devicePlugin(t, pools()...)
}

// withMultus puts Multus before the node's network until the end of the test.
func withMultus(t *testing.T) {
	t.Helper()
	shell(t, "$E2E_CLUSTER multus")
	t.Cleanup(func() { onNode(t, "rm", "/etc/cni/net.d/00-multus.conf") })
}

// findCard finds the node's network card.
func findCard(t *testing.T) {
	t.Helper()
	out, err := tryOnNode("grep -l ^0x0200 /sys/bus/pci/devices/*/class", "sh")
	if err != nil {
		t.Skip("the node has no network card on PCI")
	}
	first, _, _ := strings.Cut(out, "\n")
	cluster.card = filepath.Base(filepath.Dir(first))
}

const (
	nodeSettings = "/etc/cni/devinfo/node.json"
	nodeLog      = "/var/log/e2e-devinfo.log"
)

// The resources of the device plugin. The first four are the node's card.
const (
	withFile       = "e2e.example.com/card"
	withoutFile    = "e2e.example.com/card-without-file"
	oldFile        = "e2e.example.com/card-1.0.0"
	corruptFile    = "e2e.example.com/card-corrupt"
	nonesuch       = "0000:ff:1f.7" // does not exist
	socketResource = "e2e.example.com/socket"
	nicResource    = "example.com/nic" // resource in deploy/examples
)

func pools() []pool {
	var sockets []string
	for n := range 60 {
		sockets = append(sockets, fmt.Sprintf("socket-%d", n))
	}
	return []pool{
		{withFile, []string{cluster.card}, string(cardInfo("1.1.0").Encode())},
		{withoutFile, []string{cluster.card}, ""},
		{oldFile, []string{cluster.card}, string(cardInfo("1.0.0").Encode())},
		{corruptFile, []string{cluster.card}, `{"type": "pci", "ver`},
		{socketResource, sockets, ""},
		{nicResource, []string{cluster.card}, ""},
	}
}

// nad creates or updates a NetworkAttachmentDefinition. If resource is "" it names none.
func (s *space) nad(name, resource string, config map[string]any) {
	s.Helper()
	text, err := json.Marshal(config)
	must(s.T, err)
	nad := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"k8s.v1.cni.cncf.io/resourceName": resource}},
		"spec":     map[string]any{"config": string(text)},
	}}
	if resource == "" {
		nad.SetAnnotations(nil)
	}
	if _, err := cluster.nads.Namespace(s.name).Apply(s.ctx, name, nad, metav1.ApplyOptions{FieldManager: "e2e", Force: true}); err != nil {
		s.Fatal(err)
	}
}

// withNetworks returns a pod with one device of each resource, and with these networks as net1, net2 and so on.
func withNetworks(name string, resources []string, networks ...string) *corev1.Pod {
	pod := podWith(name)
	var list []string
	for n, network := range networks {
		list = append(list, fmt.Sprintf("%s@net%d", network, n+1))
	}
	pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": strings.Join(list, ",")}
	limits := corev1.ResourceList{}
	for _, r := range resources {
		limits[corev1.ResourceName(r)] = resource.MustParse("1")
	}
	pod.Spec.Containers[0].Resources.Limits = limits
	return pod
}

// status waits until a pod runs, and returns the device-info in network-status by interface; "" if an interface has
// none.
func (s *space) status(pod string) map[string]string {
	s.Helper()
	s.running(pod)
	var list []struct {
		Interface  string
		DeviceInfo json.RawMessage `json:"device-info"`
	}
	text := s.get(pod).Annotations["k8s.v1.cni.cncf.io/network-status"]
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		s.Fatalf("network-status %q: %v", text, err)
	}
	all := map[string]string{}
	for _, l := range list {
		all[l.Interface] = ""
		if l.DeviceInfo == nil {
			continue
		}
		info, err := devinfo.Parse(l.DeviceInfo)
		if err != nil {
			s.Fatalf("device-info of %s: %v", l.Interface, err)
		}
		all[l.Interface] = string(info.Encode())
	}
	return all
}

// says checks the device-info in network-status for the cluster's network, and for net1, net2 and so on.
func (s *space) says(pod string, want ...*devinfo.Info) {
	s.Helper()
	all := map[string]string{"eth0": ""}
	for n, info := range want {
		name := fmt.Sprintf("net%d", n+1)
		if all[name] = ""; info != nil {
			all[name] = string(info.Encode())
		}
	}
	difftest.Same(s.T, "device-info in network-status", s.status(pod), all)
	found := slices.ContainsFunc(want, func(info *devinfo.Info) bool { return info != nil })
	if recorded := onNode(s.T, "find", "/var/lib/cni/devinfo/attachments", "-type", "f") != ""; recorded != found {
		s.Errorf("devinfo has recorded an attachment: %v; want %v", recorded, found)
	}
}

// cardInfo returns the device information of the card.
func cardInfo(version string) *devinfo.Info {
	return &devinfo.Info{Type: devinfo.TypePCI, Version: version, PCI: &devinfo.PCI{Address: cluster.card}}
}

// devicePluginsFile tests a file that is missing, of an older version, or invalid. network-status contains the device
// that devinfo finds itself. The older version stays if its keys suffice.
func devicePluginsFile(t *testing.T) {
	for n, test := range []struct{ resource, version string }{{withFile, "1.1.0"}, {withoutFile, "1.1.0"}, {oldFile, "1.0.0"}, {corruptFile, "1.1.0"}} {
		t.Run(filepath.Base(test.resource), func(t *testing.T) {
			s := begin(t)
			s.nad("net", test.resource, s.macvlan(fmt.Sprintf("10.11.%d.0/24", 63+n), map[string]any{"type": "devinfo", "capabilities": capability}))
			s.nad("other", "", s.macvlan(fmt.Sprintf("10.11.%d.0/24", 67+n)))
			s.create(withNetworks("a", []string{test.resource}, "other", "net"))
			s.says("a", nil, cardInfo(test.version))
			s.delete("a")
			clean(t)
		})
	}
}

// userspaceDir is the directory where userspace-cni creates directories for sockets.
const userspaceDir = "/var/lib/cni/usrspcni/"

// standIn replaces userspace-cni. It creates the sandbox's directory. It has no dataplane, and its result has no
// interface.
const standIn = `#!/bin/sh
dir=` + userspaceDir + `$(echo "$CNI_CONTAINERID" | cut -c1-12)
case $CNI_COMMAND in
ADD) mkdir -p "$dir" && echo '{"cniVersion": "1.0.0"}' ;;
DEL) rm -rf "$dir" ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
esac
`

// userspace installs the replacement on the node until the end of the test.
func userspace(t *testing.T) {
	t.Helper()
	program(t, "userspace", standIn)
}

// program installs a script as a plugin of the node until the end of the test.
func program(t *testing.T, name, script string) {
	t.Helper()
	path := "/opt/cni/bin/" + name
	feedOnNode(t, script, "tee", path)
	onNode(t, "chmod", "0755", path)
	t.Cleanup(func() { onNode(t, "rm", path) })
}

// wrongDevice checks that the pod gets an event with the error and its remedy, and starts after the network was
// corrected.
func wrongDevice(t *testing.T) {
	s := begin(t)
	declared := map[string]any{"type": "pci", "pci": map[string]any{"pci-address": nonesuch}}
	s.nad("net", withFile, s.macvlan("10.11.71.0/24", map[string]any{"type": "devinfo", "capabilities": capability, "deviceInfo": declared}))
	s.create(withNetworks("a", []string{withFile}, "net"))
	s.event("a", "the configuration's deviceInfo names the PCI function "+nonesuch, "deviceID names the PCI function "+cluster.card, "both must name the same device; correct the wrong source")
	clean(t)
	s.nad("net", withFile, s.macvlan("10.11.71.0/24", map[string]any{"type": "devinfo", "capabilities": capability}))
	s.says("a", cardInfo("1.1.0"))
}

// failsOnce is a directory. If it exists, the plugin stubborn removes it and fails its DEL.
const failsOnce = "/run/e2e-fails-once"

const stubborn = `#!/bin/sh
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "1.0.0"}' ;;
DEL) ! rmdir ` + failsOnce + ` 2>/dev/null ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
esac
`

// failedDEL makes the DEL of a delegate fail once. A runtime that repeats DEL then removes the attachment. Other
// runtimes, such as CRI-O, do not repeat DEL, and devinfoctl gc removes it.
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
