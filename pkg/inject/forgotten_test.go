package inject_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
)

// A runtime that was killed while it made a sandbox never names it again.
func TestASandboxThatTheRuntimeHasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t).agent()
		attached := time.Now()
		check := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, id := range []string{"listed", "lost", "made"} {
				if a.Forgotten(id, attached) {
					got = append(got, id)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q", when, got)
			}
		}
		time.Sleep(time.Hour)
		check("before the runtime has said anything")
		_, err := a.Synchronize(t.Context(), []*api.PodSandbox{{Id: "listed"}}, nil)
		must(t, err)
		time.Sleep(9 * time.Minute)
		check("while it may be making them")
		_, _, err = a.CreateContainer(t.Context(), &api.PodSandbox{Id: "made"}, container())
		must(t, err)
		time.Sleep(2 * time.Minute)
		check("later", "lost")
		if a.Forgotten("new", time.Now()) {
			t.Error("one that was attached since is forgotten")
		}
		must(t, a.RemovePodSandbox(t.Context(), &api.PodSandbox{Id: "listed"}))
		check("once it is removed, with its network there", "listed", "lost")
		_, err = a.Synchronize(t.Context(), nil, nil)
		must(t, err)
		check("when the runtime has connected again")
	})
}
