package inject_test

import (
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
)

// A runtime that was killed while it made a sandbox never names it again.
func TestASandboxThatTheRuntimeHasForgotten(t *testing.T) {
	a := newRig(t).opened()
	attached := time.Now()
	_, _, err := a.CreateContainer(t.Context(), &api.PodSandbox{Id: "early"}, container())
	must(t, err)
	if a.Forgotten("lost", attached) {
		t.Error("the runtime has said nothing yet")
	}
	_, err = a.Synchronize(t.Context(), []*api.PodSandbox{{Id: "listed"}}, nil)
	must(t, err)
	_, _, err = a.CreateContainer(t.Context(), &api.PodSandbox{Id: "made"}, container())
	must(t, err)
	must(t, a.RemovePodSandbox(t.Context(), &api.PodSandbox{Id: "removed"}))
	for id, want := range map[string]bool{"listed": false, "made": false, "lost": true, "removed": true} {
		if got := a.Forgotten(id, attached); got != want || a.Forgotten(id, time.Now()) {
			t.Errorf("%s: %v", id, got)
		}
	}
}
