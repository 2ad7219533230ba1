package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/finding"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
)

// A finding that a healthy host shows is a defect of doctor. Two captures have a device that nobody has bound to a driver. The
// machine of a report need not be healthy.
func TestDoctorFindsNothingOnHealthyHosts(t *testing.T) {
	lacks := map[string]string{
		"mlx5-legacy.txtar": "0000:3b:00.5: no pod has it, but the next one could not use it: it has no driver",
		"mlx5-vdpa.txtar":   "vdpa5: no pod has it, but the next one could not use it: it has no driver",
	}
	captures, err := filepath.Glob(hosts + "*.txtar")
	if err != nil || len(captures) < 14 {
		t.Fatal(captures, err)
	}
	for _, capture := range captures {
		if strings.Contains(difftest.Read(t, capture), "-- "+capturetest.Report+" --") {
			continue
		}
		var got struct{ Answers []doctor.Finding }
		difftest.Must(t, json.Unmarshal([]byte(ctl("--capture", capture, "doctor", "--problems", "-o", "json").stdout), &got))
		lack, found := lacks[filepath.Base(capture)], false
		for _, f := range got.Answers {
			is := lack != "" && strings.HasPrefix(f.Text, lack)
			if found = found || is; !is && f.Level != finding.Unknown {
				t.Errorf("%s: %+v", filepath.Base(capture), f)
			}
		}
		if lack != "" && !found {
			t.Errorf("%s: doctor does not say %q", filepath.Base(capture), lack)
		}
	}
}

// Neither do the examples and manifests have mistakes, each example with its network or class, and the pod that uses it.
func TestValidateFindsNothingInExamples(t *testing.T) {
	examples, err := filepath.Glob("../../deploy/examples/*.yaml")
	if err != nil || len(examples) < 11 {
		t.Fatal(examples, err)
	}
	for _, path := range append(examples, "../../deploy") {
		args := []string{"validate", "--strict", "--cni-path", filepath.Join(t.TempDir(), "none"), "--allow-claim-config", "macvlan,host-local", path}
		o := ctl(args...)
		idle := regexp.MustCompile(`NetworkAttachmentDefinition .*: not checked|names no network|is missing`).MatchString(o.stdout)
		if o.exit != 0 || idle && strings.HasSuffix(path, ".yaml") || !strings.Contains(o.stdout, ": valid\n") {
			t.Errorf("%s: %s", path, o.seen())
		}
	}
}
