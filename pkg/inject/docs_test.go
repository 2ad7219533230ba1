package inject_test

import (
	"os"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	validator "github.com/containerd/nri/plugins/default-validator"

	"devinfo-cni.io/pkg/inject"
)

// What docs/injection.md shows is what a container gets.
func TestTheDocumentationShowsWhatAContainerGets(t *testing.T) {
	text, err := os.ReadFile("../../docs/injection.md")
	must(t, err)
	r := newRig(t)
	r.node.InjectNodes = true
	r.attach("sriov-net", sandbox, "net1", strings.Replace(vfInfo, `,"vendor":"kept"`, "", 1))
	r.attach("macvlan-net", sandbox, "net2", "")
	got := r.make(r.opened(), pod(), container())
	var seen []string
	for _, m := range got.Mounts {
		for _, name := range r.names(sandbox) {
			seen = append(seen, m.Destination+"/"+name)
		}
	}
	for _, e := range got.Env {
		seen = append(seen, e.Key+"="+e.Value)
	}
	for _, d := range got.Linux.Devices {
		seen = append(seen, d.Path)
	}
	r.options.WhenMissing = inject.Refuse
	_, _, refusal := r.opened().CreateContainer(t.Context(), pod("devinfo-cni.io/require=net3"), container())
	if refusal == nil {
		t.Fatal("not refused")
	}
	for _, block := range []string{
		"```\n" + strings.Join(seen, "\n") + "\n```", "```json\n" + r.staged(sandbox)["network-info.json"] + "```", "```\n" + refusal.Error() + "\n```",
	} {
		if !strings.Contains(string(text), block) {
			t.Errorf("docs/injection.md does not have\n%s", block)
		}
	}
}

func TestTheRuntimesValidatorRequiresTheAgentByName(t *testing.T) {
	r := newRig(t)
	nri := r.serve(adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true}))
	const annotation = `required-plugins.noderesource.dev=["devinfo-agent"]`
	if _, err := nri.create(pod(annotation), container()); err == nil || !strings.Contains(err.Error(), inject.PluginName) {
		t.Errorf("without the agent: %v", err)
	}
	nri.make(pod(), container())
	nri.run()
	nri.make(pod(annotation), container())
}
