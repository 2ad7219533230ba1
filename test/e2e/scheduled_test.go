//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"devinfo-cni.io/pkg/dra"
)

// published checks that the node offers the devices that the command inventory prints, and the device for software
// networks.
func published(t *testing.T, n *nodeDevices) {
	out, err := exec.Command(binary(t, "cni-dra-driver"), "inventory", "--config", n.rules, "--capture", n.host, "-o", "json").Output()
	must(t, err)
	var printed struct {
		Slices []struct{ Devices []resourceapi.Device }
	}
	must(t, json.Unmarshal(out, &printed))
	software := dra.Shared(maxAttachments)[0]
	want := map[string]resourceapi.Device{software.Name: software}
	for _, slice := range printed.Slices {
		for _, d := range slice.Devices {
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

// vhostUserPort is the example. Its class uses the device for software networks, although the node has free VFs.
func vhostUserPort(t *testing.T, _ *nodeDevices) {
	userspace(t)
	s := begin(t)
	s.apply(content(t, "deploy/cni-dra-driver/examples/vhost-user.yaml"))
	t.Cleanup(func() { shell(t, "kubectl delete deviceclass vhost-user") })
	v := s.running("demo-vhost-user")
	if got := s.allocation("demo-vhost-user", "port"); got.Device != "cni" {
		t.Errorf("the pod has device %s", got.Device)
	}
	told := v.device("net", "port")
	if told == nil {
		t.Fatalf("the container has been told %v", v.Claims)
	}
	if path := told.Attributes["vhost-user-path"].StringValue; path == nil || len(v.SocketDirs) != 1 || !strings.HasPrefix(*path, v.SocketDirs[0]+"/") {
		t.Errorf("socket directories %q, attributes %v", v.SocketDirs, told.Attributes)
	}
}
