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

	"devinfo-cni.io/pkg/cdispec"
)

// admits is what a runtime says of a container with these gates: each has its CDI spec, whose
// hook compares network namespaces (see cmd/cni-dra-gate).
func (r *rig) admits(sb *api.PodSandbox, gates ...string) error {
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
			if hook.Args[1] != netnsOf(sb) {
				return errors.New(hook.Args[2])
			}
		}
	}
	return nil
}

// The agent may be away when a pod gets another sandbox.
func TestTheGateOfASandboxIsForNoOther(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, _ *plugins) {
		r.start()
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		first, second := r.sandbox("s1", "pod"), r.sandbox("s2", "pod")
		says(t, r.admits(first, "u1_x"), "unresolvable CDI device")
		must(t, r.runPod(first))
		must(t, r.admits(first, "u1_x"))
		says(t, r.admits(second, "u1_x"), "claim ns/a, request x, is held by pod ns/pod (net1)")
		// A spec of an agent that knew no hook still opens, and gets one.
		file := filepath.Join(r.options.CDIDir, cdispec.FileName(driverName+"/claim", "u1_x"))
		text, err := os.ReadFile(file)
		must(t, err)
		var spec map[string]any
		must(t, json.Unmarshal(text, &spec))
		delete(spec["devices"].([]any)[0].(map[string]any)["containerEdits"].(map[string]any), "hooks")
		old, err := json.Marshal(spec)
		must(t, err)
		r.stop()
		must(t, os.WriteFile(file, old, 0o644))
		must(t, r.admits(second, "u1_x"))
		agent := r.start()
		_, err = agent.Synchronize(t.Context(), []*api.PodSandbox{first}, nil)
		must(t, err)
		quiet()
		must(t, r.admits(first, "u1_x"))
		says(t, r.admits(second, "u1_x"), "claim ns/a")
		if now, err := os.ReadFile(file); err != nil || strings.Count(string(now), r.options.Gate) != 1 {
			t.Errorf("%s, %v", now, err)
		}
		r.endPod(first)
		says(t, r.admits(second, "u1_x"), "unresolvable CDI device")
	})
}
