package dra_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/dra"
)

// What a container reads, and what the agent keeps, has no empty objects.
func TestNoFileHasEmptyMetadata(t *testing.T) {
	r := newRig(t)
	claim := r.claimOf("a", "u1", "pod", want{"x", "net1", ""})
	_, agent, dir := kubeletOf(t, server(nil, claim), 0, func(o *dra.Options) {
		log := o.Log
		*o = r.options
		o.Log, o.Exec = log, newPlugins()
	})
	answer, err := drapb.NewDRAPluginClient(dial(t, filepath.Join(dir, "dra.sock"))).NodePrepareResources(t.Context(),
		&drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: "ns", Name: "a", Uid: "u1"}}})
	if err != nil || answer.Claims["u1"].Error != "" {
		t.Fatalf("got %v, %v", answer, err)
	}
	look := func() {
		files, _ := filepath.Glob(filepath.Join(dir, "dra-device-metadata/*/*/metadata.json"))
		states, _ := filepath.Glob(filepath.Join(r.options.StateDir, "*.json"))
		if len(files) != 1 || len(states) != 1 {
			t.Fatalf("got %s, %s", files, states)
		}
		for _, file := range append(files, states...) {
			data, err := os.ReadFile(file)
			must(t, err)
			for _, word := range []string{`"metadata":{}`, `"metadata": {}`} {
				if bytes.Contains(data, []byte(word)) {
					t.Errorf("%s has %s:\n%s", file, word, data)
				}
			}
		}
	}
	look()
	must(t, agent.RunPodSandbox(t.Context(), r.sandbox("s1", "pod")))
	look()
}
