package kernel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/node"
)

// result is the output of a script that is a delegate.
const result = `echo '{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "'$CNI_NETNS'"}]}'`

// script installs a delegate that logs its calls, and runs one text for ADD and another for other verbs.
func script(t *testing.T, add, others string) {
	t.Helper()
	file := fmt.Sprintf("#!/bin/sh\necho $CNI_COMMAND >>%s\ncase $CNI_COMMAND in\nADD)\n%s;;\n*)\n%s;;\nesac\n", childLog, add, others)
	must(t, os.WriteFile(node.Bin+"/script", []byte(file), 0o755))
}

const scripted = `{"type": "script"}`

// failsLike checks the code and the beginning of the message of a failed call.
func (a answer) failsLike(t *testing.T, want string) {
	t.Helper()
	e := a.failure(t)
	if got := fmt.Sprintf("%d: %s", e.Code, plain(e.Msg)); a.exit != 1 || !strings.HasPrefix(got, want) {
		t.Errorf("failure:\n%s\nwant it to begin with:\n%s", got, want)
	}
}

// The journal must keep the largest accepted configuration and its result for DEL.
func TestLargestConfigurationCanBeAddedAndDeleted(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const limit = 8 << 20
		list, end := `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "delegates": [{"type": "script", "note": "`, `"}]}`
		full := list + strings.Repeat("<", limit-len(list)-len(end)) + end // \u003c takes six times the space
		script(t, `printf '{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "%s", "more": "' $CNI_NETNS; head -c 9900000 /dev/zero | tr '\0' x; echo '"}]}'`, "")
		call(t, "ADD", pod, full+" ").fails(t, 7, "network configuration: has more than 8 MiB")
		prev := call(t, "ADD", pod, full).ok(t)
		delLeavesNothing(t, pod, strings.TrimSuffix(full, "}")+`, "prevResult": `+prev+`}`)
	})
}

// The runtime is libcni with its own cache, as in CRI-O or Multus. Each delegate gets only the runtime's keys for its
// declared capabilities. The delegates do not change the runtime's cache.
func TestDelegatesGetRuntimeConfigByCapability(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const cacheDir, cache = "/run/runtime", "/run/runtime/results/net-c0ffee-net1"
		runtime := libcni.NewCNIConfigWithCacheDir([]string{node.Bin, binDir(t)}, cacheDir, nil)
		list, err := libcni.NetworkConfFromBytes([]byte(`{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "devinfo",
			"capabilities": {"CNIDeviceInfoFile": true, "deviceID": true, "mac": true, "ips": true, "bandwidth": true},
			"delegates": [` + bridgeConf + `, {"type": "child", "capabilities": {"ips": true, "bandwidth": false}}, {"type": "child"}]}]}`))
		must(t, err)
		attachment := &libcni.RuntimeConf{
			ContainerID: "c0ffee", NetNS: pod, IfName: "net1",
			Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", "web"}},
			CapabilityArgs: map[string]any{
				"CNIDeviceInfoFile": infoFile, "deviceID": vf,
				"mac": "02:00:00:00:00:07", "ips": []string{"10.1.2.77/24"},
				"bandwidth": map[string]int{"ingressRate": 1000000, "ingressBurst": 1000000},
			},
		}
		result, err := runtime.AddNetworkList(t.Context(), list, attachment)
		must(t, err)
		text, err := json.Marshal(result)
		must(t, err)
		same(t, "result", compact(t, string(text)), `{"cniVersion":"1.1.0","interfaces":[{"mac":"MAC","name":"br0"},{"mac":"MAC","name":"VETH"},`+
			`{"mac":"MAC","name":"net1","pciID":"0000:01:10.0","sandbox":"NETNS"}],`+
			`"ips":[{"address":"10.1.2.77/24","gateway":"10.1.2.1","interface":2}]}`)
		must(t, linktest.InNetns(pod, func() error {
			l, err := netlink.LinkByName("net1")
			must(t, err)
			same(t, "address in the pod", l.Attrs().HardwareAddr.String(), "02:00:00:00:00:07")
			return nil
		}))
		same(t, "device-info file", read(t, infoFile), vfFile)
		same(t, "the runtime's cache", files(t, cacheDir), cache)
		cached := read(t, cache)
		must(t, runtime.CheckNetworkList(t.Context(), list, attachment))
		same(t, "the runtime's cached result after CHECK", read(t, cache), cached)
		must(t, runtime.DelNetworkList(t.Context(), list, attachment))
		same(t, "the runtime's cache after DEL", files(t, cacheDir), "")
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

const bridgeConf = `{"type": "bridge", "bridge": "br0", "capabilities": {"mac": true, "ips": true},
	"ipam": {"type": "host-local", "dataDir": "` + ipamDir + `", "subnet": "10.1.2.0/24"}}`

// standalone is a configuration that writes the VF's device-info file.
const standalone = `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "deviceID": "` + vf + `",
	"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoFile + `"}}`
