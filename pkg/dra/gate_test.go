package dra_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/test/difftest"
)

// createContainer returns the error of a runtime that creates a container with these gates. It resolves each
// CDI spec and runs its hook, which compares network namespaces or pods: see cmd/cni-dra-gate.
func (r *rig) createContainer(sb *api.PodSandbox, gates ...string) error {
	for _, gate := range gates {
		data, err := os.ReadFile(filepath.Join(r.options.CDIDir, cdispec.FileName(driverName+"/claim", gate)))
		if err != nil {
			return fmt.Errorf("unresolvable CDI device: %w", err)
		}
		var spec specs.Spec
		if err := json.Unmarshal(data, &spec); err != nil {
			return err
		}
		for _, hook := range spec.Devices[0].ContainerEdits.Hooks {
			if hook.HookName != "createRuntime" || hook.Path != r.options.Gate || len(hook.Args) != 3 {
				return fmt.Errorf("hook %+v", hook)
			}
			if hook.Args[1] != "pod/"+sb.Uid && hook.Args[1] != netnsOf(sb) {
				return errors.New(hook.Args[2])
			}
		}
	}
	return nil
}

// variant is a kind of claims and pods. A promise about claims is tested for all variants.
type variant struct {
	name, parameters string
	gate             string // of request r
	hostNetwork      bool
}

func variants() []variant {
	return []variant{
		{"with a network", network(`{"type":"sriov"}`), "u1_r", false},
		{"for device nodes", "", "u1_r_" + vf3, false},
		{"for device nodes, in a pod on the host's network", "", "u1_r_" + vf3, true},
	}
}

// inBubbles runs a test for each variant.
func inBubbles(t *testing.T, test func(t *testing.T, r *rig, p *plugins, of variant)) {
	for _, of := range variants() {
		t.Run(of.name, bubble(func(t *testing.T, r *rig, p *plugins) {
			r.useJournal("mlx5-switchdev", strings.Replace(ownRules, `.vfIndex == 3`, `.vfIndex >= 0`, 1))
			test(t, r, p, of)
		}))
	}
}

// sandboxOf returns a sandbox of a pod of this variant.
func (r *rig) sandboxOf(of variant, id, pod string) *api.PodSandbox {
	sb := r.sandbox(id, pod)
	if of.hostNetwork {
		sb.Linux.Namespaces = sb.Linux.Namespaces[:1]
	}
	return sb
}

// The driver may not be running when a pod gets another sandbox, or when another pod has the claim.
func TestGateRejectsContainersOutsideItsPod(t *testing.T) {
	inBubbles(t, func(t *testing.T, r *rig, _ *plugins, of variant) {
		r.start()
		r.prepare(ownClaim("u1", vf3, of.parameters))
		first, second := r.sandboxOf(of, "s1", "pod"), r.sandboxOf(of, "s2", "pod")
		if hasNetwork := of.parameters != ""; hasNetwork {
			says(t, r.createContainer(first, of.gate), "unresolvable CDI device")
		} else { // the pod's next sandbox may have the device too
			second = r.sandboxOf(of, "s2", "other")
		}
		must(t, r.runPod(first))
		must(t, r.createContainer(first, of.gate))
		says(t, r.createContainer(second, of.gate), "claim ns/claim-u1, request r, is held by pod ns/pod")
		// A spec without the hook, from an earlier driver, still opens. The driver adds the hook.
		file := filepath.Join(r.options.CDIDir, cdispec.FileName(driverName+"/claim", of.gate))
		var spec map[string]any
		must(t, json.Unmarshal([]byte(difftest.Read(t, file)), &spec))
		delete(spec["devices"].([]any)[0].(map[string]any)["containerEdits"].(map[string]any), "hooks")
		old, err := json.Marshal(spec)
		must(t, err)
		r.stop()
		must(t, os.WriteFile(file, old, 0o644))
		must(t, r.createContainer(second, of.gate))
		r.start()
		r.listSandboxes(first)
		waitIdle()
		must(t, r.createContainer(first, of.gate))
		says(t, r.createContainer(second, of.gate), "claim ns/claim-u1")
		difftest.Equal(t, strings.Count(difftest.Read(t, file), r.options.Gate), 1)
		r.endPod(first)
		r.unprepare("u1")
		says(t, r.createContainer(second, of.gate), "unresolvable CDI device")
	})
}

// sriov-cni and ib-sriov-cni reset a VF only if CNI_NETNS is set, even if that namespace no longer exists.
// host-device fails on such a path. CRI-O removes the namespace before every DEL. After a reboot no plugin gets
// the path, because the VF is new.
func TestOnlyVFPluginsGetPathOfMissingNamespace(t *testing.T) {
	for name, test := range map[string]struct {
		ends func(r *rig, sb *api.PodSandbox)
		want func(path string) (vf, other string)
	}{
		"there": {func(*rig, *api.PodSandbox) {}, func(path string) (string, string) { return path, path }},
		"gone":  {(*rig).removeNetns, func(path string) (string, string) { return path, "" }},
		"gone with its boot": {func(r *rig, sb *api.PodSandbox) {
			r.removeNetns(sb)
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
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			r.start()
			sb := r.attachPod(ownClaim("u1", "cni", network(`{"type":"sriov"},{"type":"ib-sriov"},{"type":"host-device"}`)))
			test.ends(r, sb)
			r.unprepare("u1")
			vf, other := test.want(netnsOf(sb))
			want := map[string]string{"sriov": vf, "ib-sriov": vf, "host-device": other}
			p.mu.Lock()
			defer p.mu.Unlock()
			difftest.Equal(t, p.netns, want)
		}))
	}
}
