//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra"
)

// published checks that the node offers the devices that the command inventory prints, in as many slices, and the
// device for software networks.
func published(t *testing.T, n *nodeDevices) {
	software := dra.Shared(maxAttachments)[0]
	want := map[string]resourceapi.Device{software.Name: software}
	for _, list := range printed(t, n.host, n.rules) {
		for _, d := range list {
			want[d.Name] = d
		}
	}
	if len(want) != 8 { // 4 and 2 VFs, the card
		t.Fatalf("the command prints %d devices", len(want)-1)
	}
	devices(t, func(have map[string]resourceapi.Device) error {
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have))); diff != "" {
			return errors.New(diff)
		}
		for name, d := range want {
			if !equality.Semantic.DeepEqual(d, have[name]) {
				return fmt.Errorf("%s: %s", name, cmp.Diff(d, have[name]))
			}
		}
		return nil
	})
}

// anyHost checks that the API server accepts the slices of all captured hosts.
func anyHost(t *testing.T, n *nodeDevices) {
	rules := filepath.Join(n.dir, "everything.yaml")
	difftest.Write(t, rules, `devices:
- select: device.attributes["devinfo-cni.io"].kind in ["vf", "sf", "vdpa"]
  sharing: exclusive
  resourceName: example.com/any
- select: "true"
  sharing: shared
  bandwidth: 25G
`, 0o600)
	hosts, err := filepath.Glob(filepath.Join(root, "testdata/hosts/*.txtar"))
	if err != nil || len(hosts) == 0 {
		t.Fatal(hosts, err)
	}
	node := "e2e-any"
	for _, host := range hosts {
		list := printed(t, host, rules)
		for _, devices := range list {
			slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: node + "-"}, Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(list))}, Devices: devices,
			}}
			_, err := cluster.client.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Errorf("%s: %v", filepath.Base(host), err)
			}
		}
	}
}

// vfOf returns the PCI address of the only device in a pod's metadata.
func (s *space) vfOf(pod string) string {
	s.Helper()
	for _, told := range s.running(pod).Claims {
		for _, r := range told.Requests {
			for _, d := range r.Devices {
				if id := d.Attributes["resource.kubernetes.io/pciBusID"].StringValue; d.Driver == driver && id != nil {
					return *id
				}
			}
		}
	}
	s.Fatalf("pod %s has not been told of a function", pod)
	return ""
}

func fifthPod(t *testing.T, _ *nodeDevices) {
	before := len(calls(t))
	s := begin(t)
	template := s.template(requests(request("vf", s.classWhere(ours("physicalNetwork", "blue"), s.onVF("10.11.71.0/24")))))
	for n := range 5 {
		s.pod(fmt.Sprint("pod-", n), template)
	}
	running, fifth := s.allButOne(4)
	s.waits(fifth)
	vfs := map[string]string{}
	for _, pod := range running {
		s.attached(pod, "net0", "vf", "net1", "10.11.71.")
		vfs[s.vfOf(pod)] = pod
	}
	if !slices.Equal(blueVFs(), slices.Sorted(maps.Keys(vfs))) {
		t.Errorf("they have the VFs %v", vfs)
	}
	freed := s.vfOf(running[2])
	s.delete(running[2])
	if vf := s.vfOf(fifth); vf != freed {
		t.Errorf("the fifth pod has %s, and %s was free", vf, freed)
	}
	s.deletePods(s.ctx)
	added, deleted := map[string]int{}, map[string]bool{}
	for _, call := range calls(t)[before:] {
		if verb, vf, _ := strings.Cut(call, " "); verb == "ADD" {
			added[vf]++
		} else {
			deleted[vf] = true
		}
	}
	for _, vf := range blueVFs() {
		if want := map[bool]int{true: 2, false: 1}[vf == freed]; added[vf] != want || !deleted[vf] {
			t.Errorf("VF %s was added %d times, and deleted: %v", vf, added[vf], deleted[vf])
		}
	}
}

// allButOne waits until n pods run, and returns them and the one that does not run.
func (s *space) allButOne(n int) (running []string, other string) {
	s.Helper()
	s.until(s.ctx, 3*time.Minute, func(pods []corev1.Pod) error {
		running = nil
		for _, p := range pods {
			if p.Status.Phase == corev1.PodRunning {
				running = append(running, p.Name)
			} else {
				other = p.Name
			}
		}
		if len(running) != n {
			return fmt.Errorf("%q run", running)
		}
		return nil
	})
	return running, other
}

// printed returns the devices in the slices that the command inventory prints.
func printed(t *testing.T, host, rules string) (list [][]resourceapi.Device) {
	t.Helper()
	out, err := exec.Command(filepath.Join(root, "bin/cni-dra-driver"), "inventory", "--config", rules, "--capture", host, "-o", "json").Output()
	must(t, err)
	var all struct {
		Slices []struct{ Devices []resourceapi.Device }
	}
	must(t, json.Unmarshal(out, &all))
	for _, s := range all.Slices {
		list = append(list, s.Devices)
	}
	return list
}
