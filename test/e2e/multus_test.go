//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"devinfo-cni.io/devinfo"
)

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

// nicResource is the resource of deploy/examples. The device plugin offers the node's card, and writes no file.
const nicResource = "example.com/nic"

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

// cardInfo returns the device information of the card.
func cardInfo() *devinfo.Info {
	return &devinfo.Info{Type: devinfo.TypePCI, Version: devinfo.SpecVersion, PCI: &devinfo.PCI{Address: cluster.card}}
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

// program installs a script as a plugin of the node until the end of the test.
func program(t *testing.T, name, script string) {
	t.Helper()
	path := "/opt/cni/bin/" + name
	feedOnNode(t, script, "tee", path)
	onNode(t, "chmod", "0755", path)
	t.Cleanup(func() { onNode(t, "rm", path) })
}
