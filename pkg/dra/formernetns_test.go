package dra_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
)

// sriov-cni and ib-sriov-cni reset a VF only if they are told of a namespace, though it be
// gone; host-device fails on one. CRI-O removes it before every DEL. A VF that the node's start
// has made anew must not get back what it was before.
func TestOnlyPluginsOfVFsAreToldOfANamespaceThatIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		ends func(r *rig, sb *api.PodSandbox)
		want func(path string) (vf, other string)
	}{
		"there": {func(*rig, *api.PodSandbox) {}, func(path string) (string, string) { return path, path }},
		"gone":  {(*rig).unmake, func(path string) (string, string) { return path, "" }},
		"gone with its boot": {func(r *rig, sb *api.PodSandbox) {
			r.unmake(sb)
			r.stop()
			r.options.BootID = "boot2"
			r.start()
		}, func(string) (string, string) { return "", "" }},
		"another": {func(r *rig, _ *api.PodSandbox) {
			r.stop()
			r.options.BootID = "boot2"
			r.start()
		}, func(string) (string, string) { return "", "" }},
	} {
		t.Run(name, func(t *testing.T) {
			timeless(t, func(t *testing.T, r *rig, p *plugins) {
				r.start()
				r.prepare(ownClaim("u1", "cni", network(`{"type":"sriov"},{"type":"ib-sriov"},{"type":"host-device"}`)))
				sb := r.sandbox("s1", "pod")
				must(t, r.runPod(sb))
				test.ends(r, sb)
				r.unprepared("u1")
				vf, other := test.want(netnsOf(sb))
				want := map[string]string{"sriov": vf, "ib-sriov": vf, "host-device": other}
				p.mu.Lock()
				defer p.mu.Unlock()
				if diff := cmp.Diff(want, p.netns); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
