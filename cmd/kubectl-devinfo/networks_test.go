package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/remotecommand"

	"devinfo-cni.io/pkg/cluster"
)

// definition returns a NetworkAttachmentDefinition in the namespace shop.
func definition(name, config string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"namespace": "shop", "name": name}, "spec": map[string]any{"config": config},
	}}
}

// The most frequent mistakes leave the pod running without an error in Kubernetes.
func TestProblemIsShownForPodWithoutDevice(t *testing.T) {
	chain := func(keys string) string {
		return `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "macvlan"}, {"type": "devinfo"` + keys + `}]}`
	}
	const recorded = `{"namespace": "shop", "pod": "a", "interface": "net1", "state": "Ok", "why": "no device found for interface net1: name one"}`
	const typo, node = "network shop/lan: spec.config.plugins[1].deviceInfofile: \"auto\": the key is not known; the nearest known one is \"deviceInfoFile\"",
		"node n1 has no record of a device for it; the container runtime's log there has the warnings of the plugin devinfo"
	for name, test := range map[string]struct {
		network, config, args string
		records               string // attachments that the node returns
		code                  int
		want                  string // "" = no problem
	}{
		"a typo":              {"shop/lan", chain(`, "deviceInfoFile": "auto", "deviceInfofile": "auto"`), "pod a -n shop", "", 0, typo},
		"of a node not asked": {"shop/lan", chain(`, "deviceInfoFile": "auto", "deviceInfofile": "auto"`), "-n shop -o wide", "", 3, typo},
		"no capability":       {"lan", chain(``), "pod a -n shop", "", 0, "network shop/lan: spec.config.plugins[1].deviceInfoFile: must be \"auto\", or the"},
		"no resourceName":     {"lan", chain(`, "capabilities": {"CNIDeviceInfoFile": true}`), "pod a -n shop", "", 0, "network shop/lan: spec.config.plugins[1].deviceInfoFile: should be \"auto\""},
		"above a veth":        {"lan", chain(`, "deviceInfoFile": "auto"`), "pod a -n shop", recorded, 0, "problem   no device found for interface net1: name one"},
		"a typo, recorded":    {"lan", chain(`, "deviceInfoFile": "auto", "deviceInfofile": "auto"`), "pod a -n shop", recorded, 0, typo + "; node n1: no device found for interface net1: name one"},
		"not recorded":        {"lan", chain(`, "deviceInfoFile": "auto"`), "pod a -n shop", "", 0, node},
		"unknown":             {"lan", chain(`, "deviceInfoFile": "auto"`), "-n shop -o wide", "", 3, ""},
		"without devinfo":     {"lan", `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan"}`, "pod a -n shop", "", 0, ""},
		"another's":           {"shop/other", chain(``), "pod a -n shop", "", 0, ""},
		"no name":             {"shop/../../secrets/lan", chain(``), "pod a -n shop", "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a", Annotations: map[string]string{
					cluster.StatusAnnotation: `[{"name": "` + test.network + `", "interface": "net1", "dns": {}}]`,
				}},
				Spec: corev1.PodSpec{NodeName: "n1"},
			}
			server := newAPIServer(t, pod, agent("devinfo-agent", "devinfo", "agent"))
			server.objects["network-attachment-definitions"] = append(server.objects["network-attachment-definitions"], definition("lan", test.config))
			tool, stdout, stderr := server.tool(t)
			tool.exec = func(_ context.Context, _ *corev1.Pod, _ []string, streams remotecommand.StreamOptions) error {
				_, err := fmt.Fprint(streams.Stdout, `{"attachments": [`+test.records+`]}`)
				return err
			}
			code := tool.run(t.Context(), strings.Fields(test.args)...)
			// A note would repeat the problem, which both outputs show.
			if code != test.code || !strings.Contains(stdout.String(), test.want) || strings.Contains(stderr.String(), "to see the problem") {
				t.Errorf("exit code %d: %s%s", code, stdout, stderr)
			}
			for _, r := range server.requests {
				if strings.Contains(r, "secrets") {
					t.Errorf("asked: %s", r)
				}
			}
		})
	}
}
