//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/test/difftest"
)

// attached checks that a pod has an interface in a network, and compares it with the pod's metadata and the claim's
// status. It returns the address.
func (s *space) attached(pod, claim, request, ifName, prefix string) string {
	s.Helper()
	v := s.running(pod)
	data := v.interfaceIn(ifName, prefix)
	if data == nil {
		s.Errorf("pod %s: %s has not one address %s...: %+v", pod, ifName, prefix, v.Interfaces)
		return ""
	}
	if d := v.device(claim, request); d == nil {
		s.Errorf("no device metadata of one device for %s/%s: %+v", claim, request, v.Claims)
	} else {
		want := v1beta1.Device{Driver: driver, Pool: d.Pool, Name: d.Name, Attributes: d.Attributes, NetworkData: data}
		difftest.Same(s.T, "device metadata, beside what the pod sees of its interface", *d, want)
	}
	eventually(s.T, 2*time.Minute, func() error { return reported(s.claims(pod)[claim], request, *data) })
	return data.IPs[0]
}

// in waits until a pod runs, checks that it has an interface in a network, and returns its view.
func (s *space) in(pod, ifName, prefix string) *view {
	s.Helper()
	v := s.running(pod)
	if v.interfaceIn(ifName, prefix) == nil {
		s.Errorf("pod %s: %s has not one address %s...: %+v", pod, ifName, prefix, v.Interfaces)
	}
	return v
}

// interfaceIn returns an interface in a pod's view as network data. It returns nil unless the interface has one
// address that begins with the prefix.
func (v *view) interfaceIn(name, prefix string) *resourceapi.NetworkDeviceData {
	for _, i := range v.Interfaces {
		if i.Name != name {
			continue
		}
		data := resourceapi.NetworkDeviceData{InterfaceName: i.Name, HardwareAddress: i.MAC}
		for _, a := range i.Addresses {
			if !strings.HasPrefix(a, "fe80:") { // the kernel adds the link-local address
				data.IPs = append(data.IPs, a)
			}
		}
		if len(data.IPs) == 1 && strings.HasPrefix(data.IPs[0], prefix) {
			return &data
		}
	}
	return nil
}

// device returns the only device in the container's metadata for a request; nil if there is none.
func (v *view) device(claim, request string) *v1beta1.Device {
	told := v.Claims["resourceclaimtemplates/"+claim+"/"+request]
	if told == nil || len(told.Requests) != 1 || len(told.Requests[0].Devices) != 1 {
		return nil
	}
	return &told.Requests[0].Devices[0]
}

// reported returns an error if the status of a successful request is wrong.
func reported(claim *resourceapi.ResourceClaim, request string, data resourceapi.NetworkDeviceData) error {
	d, err := deviceOf(claim, request)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(&data, d.NetworkData); diff != "" || !meta.IsStatusConditionTrue(d.Conditions, "Ready") {
		return fmt.Errorf("status of %s: conditions %+v, networkData:\n%s", request, d.Conditions, diff)
	}
	return nil
}

// deviceOf returns the status of the device that is allocated for a request.
func deviceOf(claim *resourceapi.ResourceClaim, request string) (*resourceapi.AllocatedDeviceStatus, error) {
	if claim == nil || claim.Status.Allocation == nil {
		return nil, fmt.Errorf("there is no allocated claim for %s", request)
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		n := slices.IndexFunc(claim.Status.Devices, func(d resourceapi.AllocatedDeviceStatus) bool {
			return r.Request == request && d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device && cmp.Equal(d.ShareID, (*string)(r.ShareID))
		})
		if n >= 0 {
			return &claim.Status.Devices[n], nil
		}
	}
	return nil, fmt.Errorf("claim %s has no status of request %s: %+v", claim.Name, request, claim.Status.Devices)
}

var capability = map[string]any{"CNIDeviceInfoFile": true}

// vhostUserPort is the example. Its class uses the device for software networks, although the node may offer others.
func vhostUserPort(t *testing.T, _ *agent) {
	needsKit(t, "the example's class has a fixed name")
	program(t, "userspace", standIn)
	s := begin(t, content(t, "deploy/cni-dra-driver/examples/vhost-user.yaml"))
	v := s.running("demo-vhost-user")
	if got := s.allocation("demo-vhost-user", "port"); got.Device != "cni" {
		t.Errorf("the pod has device %s", got.Device)
	}
	told := v.device("net", "port")
	if told == nil {
		t.Fatalf("the container has been told %v", v.Claims)
	}
	path := told.Attributes["vhost-user-path"].StringValue
	if path == nil || len(v.SocketDirs) != 1 || !strings.HasPrefix(*path, v.SocketDirs[0]+"/") {
		t.Fatalf("socket directories %q, attributes %v", v.SocketDirs, told.Attributes)
	}
	file := v.Environment["DEVINFO_NET1"]
	if info, err := devinfo.Parse(v.DeviceInfo[file]); err != nil || file != infoDir+"net1.json" || info.VhostUser == nil || info.VhostUser.Path != *path {
		t.Errorf("DEVINFO_NET1=%s: %s, %v", file, v.DeviceInfo[file], err)
	}
}
