package podnet_test

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/podnet"
)

const vf = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:00.3","pf-pci-address":"0000:3b:00.0"}}`

// What devinfo-agent gives to a pod with a VF and a macvlan (docs/injection.md).
const networkInfo = `{"interfaces": [
	{"network": "sriov-net", "deviceInfo": ` + vf + `, "mac": "02:3b:00:00:00:01", "mtu": 1500, "interface": "net1"},
	{"network": "macvlan-net", "mac": "4e:3b:00:00:00:08", "mtu": 1500, "interface": "net2"}]}`

// What Multus says of the same pod, and as the downward API writes all of its annotations.
const networkStatus = `[{"name": "pods", "interface": "eth0", "ips": ["10.244.0.7"], "mac": "6a:00:00:00:00:01", "default": true, "dns": {}, "gateway": ["10.244.0.1"]},
	{"name": "default/sriov-net", "interface": "net1", "ips": ["192.0.2.7", "2001:db8::7"], "mac": "02:3b:00:00:00:01", "dns": {}, "device-info": ` + vf + `},
	{"name": "default/macvlan-net", "interface": "net2", "mac": "4e:3b:00:00:00:08", "mtu": 1500, "dns": {}}]`

func annotated(value string) string {
	return "a=\"k8s.v1.cni.cncf.io/network-status\"\n" + fmt.Sprintf("k8s.v1.cni.cncf.io/network-status=%q\n", value) + `kubernetes.io/config.source="api"`
}

// metadata is a claim's file, a version twice: the first that is known counts.
func metadata(devices string) string {
	of := func(version, devices string) string {
		return `{"kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/` + version + `", "metadata": {"name": "web-net-x7k2p", "namespace": "shop", "uid": "b7", "generation": 2},
			"podClaimName": "net", "requests": [{"name": "nic", "devices": [` + devices + `]}]}` + "\n"
	}
	return of("v2", `{"networkData": {"interfaceName": "none"}}`) + of("v1beta1", devices) + of("v1alpha1", "")
}

const (
	inClaims = podnet.Claims + "/resourceclaimtemplates/net/nic/"
	claimed  = inClaims + "cni.dra.networking.x-k8s.io-metadata.json"
)

var (
	pci   = &devinfo.Info{Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{Address: "0000:3b:00.3", PFAddress: "0000:3b:00.0"}}
	sriov = podnet.Network{Name: "sriov-net", Interface: "net1", Device: pci, MAC: "02:3b:00:00:00:01", MTU: 1500}
	other = podnet.Network{Name: "macvlan-net", Interface: "net2", MAC: "4e:3b:00:00:00:08", MTU: 1500}
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestNetworks(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []podnet.Network
		bad   string // of the error
	}{
		"a container that was given nothing": {},
		"the agent's directory": {
			files: map[string]string{podnet.Directory + "/network-info.json": networkInfo, podnet.Directory + "/net1.json": vf},
			want:  []podnet.Network{sriov, other},
		},
		"the device-info file of a CDI device, alone": {
			files: map[string]string{podnet.Directory + "/net1.json": vf},
			want:  []podnet.Network{{Interface: "net1", Device: pci}},
		},
		"network-status, all annotations": {
			files: map[string]string{podnet.Annotations: annotated(networkStatus)},
			want: []podnet.Network{
				{Name: "pods", Interface: "eth0", Default: true, MAC: "6a:00:00:00:00:01", Addresses: prefixes("10.244.0.7/32")},
				{Name: "default/sriov-net", Interface: "net1", Device: pci, MAC: "02:3b:00:00:00:01", Addresses: prefixes("192.0.2.7/32", "2001:db8::7/128")},
				{Name: "default/macvlan-net", Interface: "net2", MAC: "4e:3b:00:00:00:08", MTU: 1500},
			},
		},
		"annotations without network-status": {files: map[string]string{podnet.Annotations: "kubernetes.io/config.source=\"api\"\n"}},
		"network-status, not known yet":      {files: map[string]string{podnet.Annotations: ""}},
		"what one source lacks another has": {
			files: map[string]string{podnet.Annotations: networkStatus, podnet.Directory + "/network-info.json": networkInfo},
			want: []podnet.Network{
				{Name: "sriov-net", Interface: "net1", Device: pci, MAC: "02:3b:00:00:00:01", MTU: 1500, Addresses: prefixes("192.0.2.7/32", "2001:db8::7/128")},
				other,
				{Name: "pods", Interface: "eth0", Default: true, MAC: "6a:00:00:00:00:01", Addresses: prefixes("10.244.0.7/32")},
			},
		},
		"a claim": {
			files: map[string]string{claimed: metadata(`{"driver": "cni.dra.networking.x-k8s.io", "pool": "node", "name": "pci-0000-3b-00-3",
				"attributes": {"devinfo-cni.io/type": {"string": "pci"}, "devinfo-cni.io/vfIndex": {"int": 2}, "devinfo-cni.io/pfPCIBusID": {"string": "0000:3b:00.0"},
					"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.3"}, "resource.kubernetes.io/numaNode": {"int": 0}},
				"networkData": {"interfaceName": "net1", "ips": ["10.10.1.3/24"], "hardwareAddress": "02:3b:00:00:00:01"}}`)},
			want: []podnet.Network{{Name: "net/nic", Interface: "net1", Device: pci, MAC: "02:3b:00:00:00:01", Addresses: prefixes("10.10.1.3/24")}},
		},
		"a claim of a network without a device": {
			files: map[string]string{claimed: metadata(`{"driver": "cni.dra.networking.x-k8s.io", "pool": "node", "name": "cni", "networkData": {"interfaceName": "net1"}}`)},
			want:  []podnet.Network{{Name: "net/nic", Interface: "net1"}},
		},
		"a claim of a socket": {
			files: map[string]string{claimed: metadata(`{"attributes": {"devinfo-cni.io/type": {"string": "vhost-user"}, "devinfo-cni.io/vhostUserMode": {"string": "server"},
				"devinfo-cni.io/socketPath": {"string": "/run/s/net1"}, "vhost-user-path": {"string": "/run/s/net1"}, "mtu": {"int": 1450}}, "networkData": {"interfaceName": "net1"}}`)},
			want: []podnet.Network{{Name: "net/nic", Interface: "net1", MTU: 1450,
				Device: &devinfo.Info{Type: "vhost-user", Version: "1.1.0", VhostUser: &devinfo.VhostUser{Mode: "server", Path: "/run/s/net1"}}}},
		},
		"a claim of a VF without a network": {
			files: map[string]string{claimed: metadata(`{"attributes": {"devinfo-cni.io/kind": {"string": "vf"}, "devinfo-cni.io/pfPCIBusID": {"string": "0000:3b:00.0"}, "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.3"}}}`)},
			want:  []podnet.Network{{Name: "net/nic", Device: pci}},
		},
		"a claim of a vDPA device without a network, whose path nobody says": {
			files: map[string]string{claimed: metadata(`{"attributes": {"devinfo-cni.io/kind": {"string": "vdpa"}, "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.3"}}}`)},
			want:  []podnet.Network{{Name: "net/nic"}},
		},
		"a claim of another driver, whose device is one of Multus' networks": {
			files: map[string]string{inClaims + "sriovnetwork.example.com-metadata.json": metadata(`{"attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.3"}}, "networkData": {}}`), podnet.Directory + "/net1.json": vf},
			want:  []podnet.Network{{Name: "net/nic", Interface: "net1", Device: pci}},
		},
		"a claim of a GPU is no network": {
			files: map[string]string{inClaims + "gpu.example.com-metadata.json": metadata(`{"attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:b1:00.0"}}}`)},
		},
		"a claim in another version": {
			files: map[string]string{claimed: `{"apiVersion": "metadata.resource.k8s.io/v2"}`, podnet.Directory + "/net1.json": vf},
			want:  []podnet.Network{{Interface: "net1", Device: pci}}, bad: claimed + ": none of its versions is v1beta1 or v1alpha1",
		},
		"a file that is broken": {
			files: map[string]string{podnet.Directory + "/net1.json": `{"type": "pci"}`, podnet.Directory + "/net2.json": vf},
			want:  []podnet.Network{{Interface: "net2", Device: pci}}, bad: podnet.Directory + "/net1.json: invalid device-info: ",
		},
		"annotations that nobody has quoted": {files: map[string]string{podnet.Annotations: "k8s.v1.cni.cncf.io/network-status=[]"}, bad: podnet.Annotations + ": annotation"},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, text := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			got, err := podnet.Container{Root: root}.Networks()
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if c.bad == "" && err != nil || c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)) {
				t.Errorf("got %v, want %q", err, c.bad)
			}
		})
	}
}

func TestWatchTellsEachChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		root := fstest.MapFS{}
		var told []string
		for list, err := range (podnet.Container{Root: root, Status: "/etc/status"}).Watch(ctx, time.Second) {
			told = append(told, fmt.Sprint(len(list), err))
			switch len(told) {
			case 1:
				time.AfterFunc(time.Minute, func() { root["etc/status"] = &fstest.MapFile{Data: []byte(networkStatus)} })
			case 2:
				time.AfterFunc(time.Minute, cancel)
			}
		}
		if want := []string{"0 <nil>", "3 <nil>"}; !reflect.DeepEqual(told, want) {
			t.Errorf("got %q, want %q", told, want)
		}
	})
}
