package dra_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/test/difftest"
)

// generation returns the generation of a claim's metadata; 0 = it has none.
func generation(r *dratest.Rig, claim *resourceapi.ResourceClaim) int64 {
	text, _ := os.ReadFile(dratest.MetadataFile(r.Dir, claim))
	read, _ := metadata.Decode(text)
	return read.Generation
}

// Claims that were prepared with metadata keep it when the flag is off, and those without never need it. The generation
// begins with 1, and each Prepare and each ADD adds 1. The pod has all three claims.
func TestClaimsKeepTheirMetadataWhenFlagChanges(t *testing.T) {
	r := dratest.NewRig(t)
	r.UsePlugins()
	var claims []*resourceapi.ResourceClaim
	for n, ifName := range []string{"net1", "net2", "net3"} {
		claims = append(claims, dratest.ClaimIn("", ifName, []string{"u1", "u2", "u3"}[n], "pod", dratest.Net("r", ifName, "")))
	}
	client := dratest.APIServer(nil, claims[0], claims[1], claims[2])
	restart := func(on bool) {
		r.NoMetadata = !on
		r.StartKubelet(client, 0)
	}
	prepare := func(n, cdiDevices int) { // the gate, and the metadata if there is any
		t.Helper()
		got := r.PrepareByKubelet(claims[n])[string(claims[n].UID)].Devices[0].CdiDeviceIds
		difftest.Same(t, claims[n].Name, len(got), cdiDevices)
	}
	generations := func(when string, want ...int64) {
		t.Helper()
		var got []int64
		for _, c := range claims {
			got = append(got, generation(r, c))
		}
		difftest.Same(t, when, got, want)
	}
	restart(true)
	prepare(0, 2)
	generations("prepared with metadata", 1, 0, 0)
	first := r.RunSandbox("s1", "pod")
	generations("attached", 2, 0, 0)
	restart(false)
	prepare(1, 1)
	r.EndPod(first)
	second := r.RunSandbox("s2", "pod")
	generations("attached with the flag off", 3, 0, 0)
	prepare(0, 2)
	prepare(1, 1)
	generations("prepared again with the flag off", 5, 0, 0)
	restart(true)
	prepare(2, 2)
	r.EndPod(second)
	third := r.RunSandbox("s3", "pod")
	generations("attached with the flag on", 6, 0, 2)
	prepare(1, 2)
	generations("prepared again with the flag on", 6, 2, 2)
	r.Stop()
	difftest.Must(t, os.RemoveAll(filepath.Join(r.Dir, "cdi"))) // as a reboot does
	restart(false)
	prepare(0, 2)
	prepare(1, 2)
	prepare(2, 2)
	difftest.Equal(t, r.Samples()["dra_metadata_files_active driver="+dratest.Driver], 3.0)
	r.EndPod(third)
	r.UnprepareByKubelet(claims...)
	r.ExpectFiles("dra-device-metadata", 0)
	r.ExpectFiles("cdi", 0)
}

// The metrics have the names, types and labels of KEP-5304. A counter without failures is 0 and not missing.
func TestMetricsOfMetadata(t *testing.T) {
	r, claim := dratest.NewRig(t), dratest.ClaimIn("", "net", "u1", "pod", dratest.Net("r", "net1", ""))
	r.UsePlugins()
	r.StartKubelet(dratest.APIServer(nil, claim), 0)
	samples := func() map[string]float64 {
		all := map[string]float64{}
		for name, value := range r.Samples() {
			if short, ok := strings.CutPrefix(name, "dra_metadata_"); ok {
				all[strings.Replace(short, " driver="+dratest.Driver, "", 1)] = value
			}
		}
		return all
	}
	want := map[string]float64{"feature_enabled": 1, "files_active": 0, "writes_total": 0, "write_duration_seconds": 0}
	for _, kind := range []string{"no_space", "permission", "missing", "other"} {
		want["write_errors_total error_type="+kind], want["update_errors_total error_type="+kind] = 0, 0
	}
	difftest.Same(t, "at start", samples(), want)
	families, err := r.Registry.Gather()
	difftest.Must(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint() // the checks of promtool
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	r.PrepareByKubelet(claim)
	difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
	want["files_active"], want["writes_total"], want["write_duration_seconds"] = 1, 2, 2
	difftest.Same(t, "after an ADD", samples(), want)
	difftest.Must(t, os.RemoveAll(filepath.Join(r.Dir, "dra-device-metadata")))
	difftest.Contains(t, r.Agent.RewriteMetadata("u1").Error(), "not found in prepared claim")
	want["update_errors_total error_type=other"] = 1
	difftest.Same(t, "without the file", samples(), want)
}

// The kubelet forgets the claims of pods that were deleted by force, and a reboot empties the directory of CDI specs.
func TestMetadataOfClaimsThatEndedWithoutDriverIsRemoved(t *testing.T) {
	for _, rebooted := range []bool{false, true} {
		r := dratest.NewRig(t)
		r.UsePlugins()
		ended, kept := dratest.ClaimIn("", "ended", "u1", "pod", dratest.Net("r", "net1", "")), dratest.ClaimIn("", "kept", "u2", "pod", dratest.Net("r", "net2", ""))
		damaged := dratest.ClaimIn("", "damaged", "u3", "pod", dratest.Net("r", "net3", ""))
		client := dratest.APIServer(nil, ended, kept, damaged)
		r.StartKubelet(client, 0)
		r.PrepareByKubelet(ended)
		r.PrepareByKubelet(kept)
		r.PrepareByKubelet(damaged)
		r.Stop()
		difftest.Must(t, os.Remove(filepath.Join(r.Options.StateDir, "u1.json")))
		difftest.Must(t, os.Rename(filepath.Join(r.Options.StateDir, "u3.json"), filepath.Join(r.Options.StateDir, "u3.json.corrupt")))
		if rebooted {
			difftest.Must(t, os.RemoveAll(filepath.Join(r.Dir, "cdi")))
		}
		r.StartKubelet(client, 0)
		gone := func(pattern string) bool {
			found, err := filepath.Glob(pattern)
			difftest.Must(t, err)
			return found == nil
		}
		difftest.Eventually(t, "removed", func() bool {
			return gone(filepath.Dir(filepath.Dir(dratest.MetadataFile(r.Dir, ended)))) && gone(filepath.Join(r.Dir, "cdi", "*_metadata_u1_*"))
		})
		for _, claim := range []*resourceapi.ResourceClaim{kept, damaged} {
			difftest.Equal(t, generation(r, claim), int64(1))
		}
		r.Stop()
	}
}
