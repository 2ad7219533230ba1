package kernel_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"devinfo-cni.io/pkg/link/linktest"
)

// A runtime is libcni with a cache of its own, as in CRI-O or Multus.
type runtime struct {
	*libcni.CNIConfig
	list *libcni.NetworkConfigList
	rt   *libcni.RuntimeConf
}

const runtimeCache = "/run/runtime"

func newRuntime(t *testing.T, netns, conflist string) *runtime {
	t.Helper()
	list, err := libcni.NetworkConfFromBytes([]byte(conflist))
	must(t, err)
	return &runtime{
		libcni.NewCNIConfigWithCacheDir([]string{cniDir, binDir(t)}, runtimeCache, nil), list,
		&libcni.RuntimeConf{
			ContainerID: "c0ffee", NetNS: netns, IfName: "net1",
			Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", "web"}},
			CapabilityArgs: map[string]any{
				"CNIDeviceInfoFile": infoFile, "deviceID": vf,
				"mac": "02:00:00:00:00:07", "ips": []string{"10.1.2.77/24"},
				"bandwidth": map[string]int{"ingressRate": 1000000, "ingressBurst": 1000000},
			},
		},
	}
}

func (r *runtime) add(t *testing.T) string {
	t.Helper()
	result, err := r.AddNetworkList(context.Background(), r.list, r.rt)
	must(t, err)
	text, err := json.Marshal(result)
	must(t, err)
	return compact(t, string(text))
}

func (r *runtime) check(t *testing.T) {
	t.Helper()
	if err := r.CheckNetworkList(context.Background(), r.list, r.rt); err != nil {
		t.Errorf("CHECK: %v", err)
	}
}

func (r *runtime) del(t *testing.T) {
	t.Helper()
	if err := r.DelNetworkList(context.Background(), r.list, r.rt); err != nil {
		t.Errorf("DEL: %v", err)
	}
}

// delegating is a conflist of devinfo alone, which runs the children.
func delegating(children ...string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "devinfo",
		"capabilities": {"CNIDeviceInfoFile": true, "deviceID": true, "mac": true, "ips": true, "bandwidth": true},
		"delegates": [` + strings.Join(children, ",") + `]}]}`
}

func TestDelegatingKeepsTheRuntimesCacheApart(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		linktest.AddVeth(t, "nic", "peer", linktest.NewNetns(t))
		r := newRuntime(t, pod, delegating(`{"type": "macvlan", "master": "nic", "mode": "bridge"}`))
		same(t, "result", r.add(t), `{"cniVersion":"1.1.0","interfaces":[{"mac":"MAC","name":"net1","pciID":"0000:01:10.0","sandbox":"NETNS"}]}`)
		same(t, "device-info file", read(t, infoFile), vfFile)
		const cache = runtimeCache + "/results/net-c0ffee-net1"
		same(t, "the runtime's cache", files(t, runtimeCache), cache)
		same(t, "our files", files(t, stateDir), ownState)
		cached := read(t, cache)
		r.check(t)
		same(t, "the runtime's cached result after CHECK", read(t, cache), cached)
		same(t, "our files after CHECK", files(t, stateDir), ownState)
		r.del(t)
		same(t, "the runtime's cache after DEL", files(t, runtimeCache), "")
		nothingLeft(t, pod)
	})
}

// Each child gets the runtime's keys that it declares, and no other.
func TestRuntimeConfigReachesChildrenByCapability(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		r := newRuntime(t, pod, delegating(bridgeConf,
			`{"type": "child", "capabilities": {"ips": true, "bandwidth": false}}`, `{"type": "child"}`))
		same(t, "result", r.add(t), `{"cniVersion":"1.1.0","interfaces":[{"mac":"MAC","name":"br0"},{"mac":"MAC","name":"VETH"},`+
			`{"mac":"MAC","name":"net1","pciID":"0000:01:10.0","sandbox":"NETNS"}],`+
			`"ips":[{"address":"10.1.2.77/24","gateway":"10.1.2.1","interface":2}]}`)
		same(t, "address in the pod", podMAC(t, pod), "02:00:00:00:00:07")
		same(t, "device-info file", read(t, infoFile), vfFile)
		r.check(t)
		r.del(t)
		const args = "IgnoreUnknown=1;K8S_POD_NAME=web"
		same(t, "calls of the children", childCalls(t), "ADD "+args+` {"ips":["10.1.2.77/24"]}
ADD `+args+`
CHECK `+args+` {"ips":["10.1.2.77/24"]}
CHECK `+args+`
DEL `+args+`
DEL `+args+` {"ips":["10.1.2.77/24"]}
`)
		nothingLeft(t, pod)
	})
}

// ownState is the journal of one attachment to the VF.
const ownState = stateDir + "/attachments/net@c0ffee@net1\n" +
	stateDir + "/leases/device/pci-0000:01:00.0/~net@c0ffee@net1\n" +
	stateDir + "/leases/device/pci-0000:01:10.0/net@c0ffee@net1\n" +
	stateDir + "/leases/file/net-c0ffee_net1/net@c0ffee@net1"
