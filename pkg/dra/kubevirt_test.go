package dra_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/metadata"
)

// kubevirt is what KubeVirt decodes (pkg/dra/metadata/types.go): that version, and no other.
type kubevirt struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Requests   []struct {
		Name    string `json:"name"`
		Devices []struct {
			Attributes map[string]resourceapi.DeviceAttribute `json:"attributes"`
		} `json:"devices"`
	} `json:"requests"`
}

// attributesFor reads a request's directory by KubeVirt's rules: one file in it, of whose
// documents the one in v1alpha1 counts, with one device.
func attributesFor(dir, request string) (map[string]resourceapi.DeviceAttribute, error) {
	files, err := filepath.Glob(filepath.Join(dir, request, "*metadata.json"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("%q, %v: one file is read", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var m kubevirt
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return nil, errors.New("there is nothing in v1alpha1")
		} else if err != nil {
			return nil, err
		}
		if m.APIVersion != "metadata.resource.k8s.io/v1alpha1" {
			continue
		}
		for _, r := range m.Requests {
			if r.Name == request && len(r.Devices) == 1 {
				return r.Devices[0].Attributes, nil
			}
		}
		return nil, fmt.Errorf("request %s has not one device: %+v", request, m)
	}
}

// toldKubeVirt is what KubeVirt reads of a claim of the device once its network runs, of
// which the plugin behaves like that.
func toldKubeVirt(t *testing.T, device, behave string) map[string]resourceapi.DeviceAttribute {
	t.Helper()
	r, n := newRig(t), newNode(t, "mlx5-switchdev")
	config := fmt.Sprintf(`"config":{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"fake","dir":%q,"behave":%q,"capabilities":{"CNIDeviceInfoFile":true}}]}`, r.dir, behave)
	if device != "cni" {
		config = `"device":[],` + config
	}
	claim := ownClaim("u1", device, config)
	_, agent, dir := kubeletOf(t, server(nil, claim), 0, func(o *dra.Options) {
		log := o.Log
		*o = r.options
		o.Log, o.Inventory, o.Finder = log, n.inventory(), n.finder()
		o.Attributes = metadata.Host{Sys: o.Finder.Sys}.Attributes
	})
	r.agent = agent
	byKubelet(t, dir, claim)
	must(t, r.runPod(r.sandbox("s1", "pod")))
	all, err := attributesFor(filepath.Join(dir, "dra-device-metadata", "ns_"+claim.Name), "r")
	must(t, err)
	return all
}

// KubeVirt attaches the VF that the metadata names.
func TestKubeVirtFindsTheVF(t *testing.T) {
	all := toldKubeVirt(t, vf3, "")
	if id := all["resource.kubernetes.io/pciBusID"].StringValue; id == nil || *id != "0000:03:00.5" {
		t.Errorf("got %v", all)
	}
}

// Its plugin for vhost-user wants path and MTU, both unqualified, and an MTU from 68 to 9702.
func TestKubeVirtFindsTheSocket(t *testing.T) {
	all := toldKubeVirt(t, "cni", "socket")
	if path := all["vhost-user-path"].StringValue; path == nil || *path != "/run/s" {
		t.Errorf("got %v", all)
	}
	if mtu := all["mtu"].IntValue; mtu == nil || *mtu != 1450 {
		t.Errorf("got %v", all)
	}
}
