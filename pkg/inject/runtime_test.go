package inject_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/inject"
	"devinfo-cni.io/pkg/link"
)

// hung blocks each Interface call until the test closes answer.
type hung struct {
	discovery.Interfaces
	asked, answer chan struct{}
}

func (h hung) Interface(netns, name string) (link.Interface, error) {
	select {
	case h.asked <- struct{}{}:
	default: // a refresh calls Interface too
	}
	<-h.answer
	return h.Interfaces.Interface(netns, name)
}

// The runtime's NRI version supports failure policies.
func TestStoppingDuringRequestFailsItOnlyWithPolicyReject(t *testing.T) {
	for policy, want := range map[inject.MissingInfo]string{inject.Allow: "", inject.Reject: "failed to handle CreateContainer request: ttrpc: closed"} {
		r := newRig(t)
		kernel := hung{r.options.Finder.Interfaces, make(chan struct{}, 1), make(chan struct{})}
		r.options.MissingInfo, r.options.Finder.Interfaces = policy, kernel
		nri := r.serve()
		stop := nri.run()
		r.attach("sriov-net", sandbox, "net1", "")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			<-kernel.asked
			stop()
		}()
		_, err := nri.create(pod(), container())
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", policy, err)
		}
		close(kernel.answer)
		<-ended
		// The decision stages files, so it must end before the test removes its directory.
		r.eventually("decided", func() bool { return len(r.decisions()) > 0 })
	}
}

// A runtime that was killed while it created a sandbox never names the sandbox again.
func TestSandboxUnknownToTheRuntimeIsOrphaned(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	attached := time.Now()
	r.make(a, &api.PodSandbox{Id: "early"}, container())
	if a.Orphaned("lost", attached) {
		t.Error("orphaned before the runtime has connected")
	}
	_, err := a.Synchronize(t.Context(), []*api.PodSandbox{{Id: "listed"}}, nil)
	must(t, err)
	r.make(a, &api.PodSandbox{Id: "made"}, container())
	must(t, a.RemovePodSandbox(t.Context(), &api.PodSandbox{Id: "removed"}))
	for id, want := range map[string]bool{"listed": false, "made": false, "lost": true, "removed": true} {
		if got := a.Orphaned(id, attached); got != want || a.Orphaned(id, time.Now()) {
			t.Errorf("%s: %v", id, got)
		}
	}
}

func TestDocumentationShowsTheInjectedItems(t *testing.T) {
	r := newRig(t)
	r.node.InjectDeviceNodes = true
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
	refusals := []string{}
	for _, required := range []string{"net2", "net3"} {
		_, _, err := r.opened().CreateContainer(t.Context(), pod("devinfo-cni.io/require="+required), container())
		refusals = append(refusals, fmt.Sprint(err))
	}
	difftest.Contains(t, difftest.Read(t, "../../docs/injection.md"),
		"```\n"+strings.Join(seen, "\n")+"\n```", "```json\n"+r.staged(sandbox)["network-info.json"]+"```", "```\n"+strings.Join(refusals, "\n")+"\n```")
}

func TestRuntimeValidatorRequiresTheAgentByName(t *testing.T) {
	r := newRig(t)
	nri := r.serve(adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true}))
	const annotation = `required-plugins.noderesource.dev=["devinfo-agent"]`
	_, err := nri.create(pod(annotation), container())
	difftest.Says(t, err, inject.PluginName)
	nri.make(pod(), container())
	nri.run()
	nri.make(pod(annotation), container())
}
