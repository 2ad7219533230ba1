package kernel_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version/legacy_examples"
	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/link/linktest"
)

// A runtime is libcni with its own cache, as in CRI-O or Multus.
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
	must(t, r.CheckNetworkList(context.Background(), r.list, r.rt))
}

func (r *runtime) del(t *testing.T) {
	t.Helper()
	must(t, r.DelNetworkList(context.Background(), r.list, r.rt))
}

// delegating returns a conflist with devinfo as the only plugin, which runs the delegates.
func delegating(children ...string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "devinfo",
		"capabilities": {"CNIDeviceInfoFile": true, "deviceID": true, "mac": true, "ips": true, "bandwidth": true},
		"delegates": [` + strings.Join(children, ",") + `]}]}`
}

func TestDelegatesDoNotChangeRuntimeCache(t *testing.T) {
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

// Each delegate gets only the runtime's keys for its declared capabilities.
func TestDelegatesGetRuntimeConfigByCapability(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		r := newRuntime(t, pod, delegating(bridgeConf,
			`{"type": "child", "capabilities": {"ips": true, "bandwidth": false}}`, `{"type": "child"}`))
		same(t, "result", r.add(t), `{"cniVersion":"1.1.0","interfaces":[{"mac":"MAC","name":"br0"},{"mac":"MAC","name":"VETH"},`+
			`{"mac":"MAC","name":"net1","pciID":"0000:01:10.0","sandbox":"NETNS"}],`+
			`"ips":[{"address":"10.1.2.77/24","gateway":"10.1.2.1","interface":2}]}`)
		must(t, linktest.InNetns(pod, func() error {
			l, err := netlink.LinkByName("net1")
			must(t, err)
			same(t, "address in the pod", l.Attrs().HardwareAddr.String(), "02:00:00:00:00:07")
			return nil
		}))
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

// ownState lists the journal of one attachment to the VF.
const ownState = stateDir + "/attachments/net@c0ffee@net1\n" +
	stateDir + "/leases/device/pci-0000:01:00.0/~net@c0ffee@net1\n" +
	stateDir + "/leases/device/pci-0000:01:10.0/net@c0ffee@net1\n" +
	stateDir + "/leases/file/net-c0ffee_net1/net@c0ffee@net1"

// cnitool runs cnitool with the only conflist. The file's path and the device are passed as by Multus.
func cnitool(t *testing.T, verb, network, netns string) answer {
	t.Helper()
	cmd := exec.Command(filepath.Join(binDir(t), "cnitool"), verb, network, netns)
	cmd.Env = append(os.Environ(), "NETCONFPATH=/run/net.d", "CNI_IFNAME=net1",
		`CAP_ARGS={"CNIDeviceInfoFile": "`+infoFile+`", "deviceID": "`+vf+`"}`)
	return finish(t, cmd)
}

const bridgeConf = `{"type": "bridge", "bridge": "br0", "capabilities": {"mac": true, "ips": true},
	"ipam": {"type": "host-local", "dataDir": "` + ipamDir + `", "subnet": "10.1.2.0/24"}}`

// cnitool's gc deletes the attachments in its cache, and then passes no list of valid attachments. The plugin must
// not treat that as an empty list.
func TestCnitoolGCDeletesOnlyItsOwn(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const conflist = `{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}]}`
		difftest.Write(t, "/run/net.d/net.conflist", conflist, 0o644)
		cnitool(t, "add", "net", pod).ok(t)
		foreign := call(t, "ADD", pod, standalone(infoDir+"/foreign"), "CNI_CONTAINERID=foreign")
		foreign.ok(t)
		cnitool(t, "gc", "net", pod).ok(t)
		same(t, "files", files(t, infoDir, stateDir), infoDir+"/foreign\n"+
			stateDir+"/attachments/net@foreign@net1\n"+stateDir+"/leases/file/foreign/net@foreign@net1")
		call(t, "GC", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "cni.dev/valid-attachments": []}`).ok(t)
		nothingLeft(t)
	})
}

// standalone returns a configuration that writes the VF's device-info file.
func standalone(path string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "deviceID": "` + vf + `",
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + path + `"}}`
}

// A runtime of CNI 0.1.0, with the libcni of its time, runs devinfo and its delegate. The runtime, the configurations
// and the delegate come from CNI.
func TestRuntimeOfCNI010IsSupported(t *testing.T) {
	old, bin := legacy_examples.V010_Runtime, t.TempDir()
	runtime := goBuild(t, bin, "runtime", "testdata/libcni-0.3.0", old.PluginSource)
	goBuild(t, bin, "noop", ".", "")
	linktest.Run(t, func(t *testing.T) {
		stage(t, "")
		pod := linktest.NewNetns(t)
		must(t, os.Symlink(pod, cniDir+"/netns"))
		for _, name := range old.NetConfs {
			t.Run(name, func(t *testing.T) {
				conf, err := old.GenerateNetConf(name)
				must(t, err)
				defer conf.Cleanup()
				var child, parent map[string]any
				for _, config := range []*map[string]any{&child, &parent} {
					must(t, json.Unmarshal([]byte(conf.Config), config))
				}
				delete(parent, "debugFile")
				parent["type"], parent["delegates"] = "devinfo", []any{child}
				text, err := json.Marshal(parent)
				must(t, err)
				cmd := exec.Command(runtime, cniDir, bin)
				cmd.Stdin = strings.NewReader(string(text))
				if a := finish(t, cmd); a.exit != 0 {
					t.Errorf("%+v", a)
				}
				if left, err := filepath.Glob(stateDir + "/attachments/*"); err != nil || len(left) > 0 {
					t.Errorf("left: %q, %v", left, err)
				}
			})
		}
	})
}

// goBuild builds a program: the source in a copy of the module in dir, or else CNI's plugin of that name.
func goBuild(t *testing.T, bin, name, dir, source string) (path string) {
	t.Helper()
	path = filepath.Join(bin, name)
	cmd := exec.Command("go", "build", "-o", path, "github.com/containernetworking/cni/plugins/test/"+name)
	if source != "" {
		cmd = exec.Command("go", "build", "-mod=readonly", "-o", path, ".")
		cmd.Dir = t.TempDir()
		// Only the network namespace of the example must be replaced.
		source = strings.Replace(source, "/some/netns/path", cniDir+"/netns", 1)
		for file, text := range map[string]string{"go.mod": read(t, dir+"/go.mod"), "go.sum": read(t, dir+"/go.sum"), "main.go": source} {
			must(t, os.WriteFile(filepath.Join(cmd.Dir, file), []byte(text), 0o600))
		}
		download := exec.Command("go", "mod", "download")
		download.Dir = cmd.Dir
		if out, err := download.CombinedOutput(); err != nil {
			t.Skipf("what %s needs cannot be had: %s", dir, out)
		}
	}
	output(t, cmd)
	return path
}
