package inject_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

const theDirectory = "/stage/" + sandbox + "/devinfo on /var/run/k8s.cni.cncf.io/devinfo bind bind,ro,nosuid,nodev,noexec"

const theVariables = "\nDEVINFO_NET1=/var/run/k8s.cni.cncf.io/devinfo/net1.json" + theFacts
const theFacts = "\nDEVINFO_NET1_TYPE=pci\nDEVINFO_NET1_PCI_ADDRESS=0000:3b:00.3"

// rdmaNodes are the device nodes of the VF. The rig uses links to /dev/null.
const rdmaNodes = `
/dev/infiniband/uverbs3 c 1:3 0666 0:0
/dev/infiniband/uverbs4 c 1:3 0666 0:0
/dev/infiniband/rdma_cm c 1:3 0666 0:0`

func TestContainerGetsDeviceInformationOfItsPod(t *testing.T) {
	r := newRig(t)
	r.node.InjectDeviceNodes = true
	nri := r.running()
	r.attach("sriov-net", sandbox, "net1", strings.Replace(vfInfo, "{", `{"Type":"vdpa",`, 1)) // encoding/json would accept Type as type
	r.attach("macvlan-net", sandbox, "net2", "")
	r.attach("sriov-net", "another", "net1", vfInfo)
	got := nri.make(pod(), container())
	difftest.Equal(t, r.text(got), theDirectory+theVariables+rdmaNodes)
	staged := r.staged(sandbox)
	difftest.Equal(t, r.names(sandbox), []string{"net1.json", "network-info.json"})
	difftest.Equal(t, compact(t, staged["net1.json"]), vfInfo)
	for path, want := range map[string]os.FileMode{"": 0o755, "/" + sandbox: 0o755, "/" + sandbox + "/devinfo": 0o755, "/" + sandbox + "/devinfo/net1.json": 0o444} {
		if stat, err := os.Stat(r.options.StageDir + path); err != nil || stat.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, stat.Mode(), err)
		}
	}
	r.expect("injected")
	difftest.Contains(t, r.logged(), `level=DEBUG msg="container injected" pod=shop/web container=app`)
}

// The value has the format of NCCL_IB_HCA and UCX_NET_DEVICES.
func TestRDMADevicesAreInTheOrderOfInterfaces(t *testing.T) {
	r := newRig(t)
	for ifName, device := range map[string]string{"net10": "mlx5_2", "net2": "mlx5_9,mlx5_10", "net9": "mlx5_2", "net1": ""} {
		info := fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:00.%s","rdma-device":%q}}`, ifName[3:4], device)
		r.attach("of-"+ifName, sandbox, ifName, strings.Replace(info, `,"rdma-device":""`, "", 1))
	}
	r.attach("memif", sandbox, "net3", `{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"/run/m.sock","mode":"ip"}}`)
	got := r.text(r.make(r.opened(), pod(), container()))
	difftest.Contains(t, got+"\n", "\nDEVINFO_RDMA_DEVICES=mlx5_9:1,mlx5_10:1,mlx5_2:1\n")

	c := container()
	c.Env = append(c.Env, "DEVINFO_RDMA_DEVICES=mine")
	difftest.Lacks(t, r.text(r.make(r.agent(), pod(), c)), "DEVINFO_RDMA_DEVICES") // the pod's own variable stays
}

// The author of a network may not enable device nodes. Only the node's settings may.
func TestDeviceNodesRequireInjectDeviceNodes(t *testing.T) {
	r := newRig(t)
	r.node.AllowedDevices = []string{"*"}
	r.attach("sriov-net", sandbox, "net1", vfInfo)
	got := r.make(r.opened(), pod(), container())
	difftest.Equal(t, r.text(got), theDirectory+theVariables)
	r.expect("injected")
}

// opened returns a plugin that has its stage directory but does not run keep.
func (r *rig) opened() *inject.Plugin {
	r.t.Helper()
	difftest.Must(r.t, os.MkdirAll(r.options.StageDir, 0o755))
	return r.agent()
}

// Device nodes are not injected, because the device has no lease.
func TestFilesOfMultusAreInjected(t *testing.T) {
	r := newRig(t)
	r.node.InjectDeviceNodes = true
	for _, id := range []string{sandbox, sandbox[:63] + "0"} {
		difftest.Write(t, r.node.DeviceInfoDir+"/default-sriov-net-"+id+"_net1", vfInfo, 0o444)
	}
	got := r.make(r.opened(), pod(), container())
	difftest.Contains(t, r.text(got), "DEVINFO_NET1=")
	difftest.Lacks(t, r.text(got), rdmaNodes)
	difftest.Contains(t, compact(t, r.staged(sandbox)["network-info.json"]), `{"network":"default-sriov-net","deviceInfo":`)
}

func TestPodWithoutAttachmentsGetsNothing(t *testing.T) {
	r := newRig(t)
	r.attach("sriov-net", "another", "net1", vfInfo)
	r.attach("old", sandbox, "net1", "", func(e *journal.Entry) { e.Complete = false })
	now := r.journal
	r.journal = journal.Open(r.node.StateDir, "an earlier boot")
	r.attach("older", sandbox, "net2", "")
	r.journal = now
	const foreign = "x-" + sandbox + "_net9" // the other pod's author chose a name that ends like a file of this sandbox
	r.attach("x", "another", "net2", "", func(e *journal.Entry) { e.File = foreign })
	difftest.Must(t, store.Open(r.node.DeviceInfoDir).Write(foreign, []byte(vfInfo)))
	onHost := pod()
	onHost.Linux.Namespaces = nil // the node's network namespace
	for _, p := range []*api.PodSandbox{pod(), onHost} {
		difftest.Same(t, "what the container gets", r.make(r.opened(), p, container()) == nil, true)
		difftest.Holds(t, r.options.StageDir)
	}
	onHost.Annotations["devinfo-cni.io/require"] = "net1"
	_, _, err := r.opened().CreateContainer(t.Context(), onHost, container())
	difftest.Says(t, err, "pod shop/web, container app: the pod has no interface net1 (it has none): correct the annotation devinfo-cni.io/require, or attach the network")
	r.expect("nothing", "nothing", "rejected required")
}

func TestNamespaceOrAnnotationDisablesInjection(t *testing.T) {
	const off, on = "off", "injected"
	for _, test := range []struct {
		only, except []string
		annotation   string
		want         string
	}{
		{nil, nil, "", on},
		{nil, []string{"kube-system", "shop"}, "", off},
		{nil, []string{"sh*"}, "devinfo-cni.io/inject=true", off},
		{nil, []string{"kube-*", "sho"}, "", on},
		{[]string{"team-*", "shop"}, nil, "", on},
		{[]string{"team-*"}, nil, "devinfo-cni.io/inject=true", off},
		{[]string{"*"}, []string{"shop"}, "", off},
		{[]string{"shop"}, nil, "devinfo-cni.io/inject=false", off},
		{nil, nil, "devinfo-cni.io/inject=true", on},
		{nil, nil, "devinfo-cni.io/inject=nein", on},
	} {
		r := newRig(t)
		r.options.Only, r.options.Except = test.only, test.except
		r.attach("sriov-net", sandbox, "net1", vfInfo)
		r.make(r.opened(), pod(test.annotation), container())
		difftest.Same(t, fmt.Sprintf("%+v", test), r.decisions(), []string{test.want})
		difftest.Same(t, fmt.Sprintf("%+v: a warning", test), strings.Contains(r.logged(), "annotation ignored"), strings.HasSuffix(test.annotation, "nein"))
	}
}

func TestPolicyDecidesAboutMissingInformation(t *testing.T) {
	gone := func(r *rig) { difftest.Must(r.t, os.Remove(r.node.DeviceInfoDir+"/sriov-net-"+sandbox+"_net1")) }
	for name, test := range map[string]struct {
		annotations []string
		prepare     func(*rig)
		reason      string // "" = nothing is missing
		problem     string
	}{
		"no information":        {nil, func(*rig) {}, "", ""},
		"an interface of veths": {[]string{"devinfo-cni.io/require="}, func(r *rig) { r.attach("bridge", sandbox, "net2", "") }, "", ""},
		"a file":                {nil, gone, "file", "interface net1: cannot use the device-info file: DIR/infos/sriov-net-" + sandbox + "_net1: read: no such file or directory: delete the pod, so that its networks are attached again"},
		"a valid file": {nil, func(r *rig) {
			difftest.Must(r.t, os.WriteFile(r.node.DeviceInfoDir+"/sriov-net-"+sandbox+"_net1", []byte("{"), 0o644))
		}, "file", "_net1: corrupt: device-info is not JSON (Device Information Specification, 4): byte 1: unexpected end of JSON input: delete the pod"},
		"a valid entry": {nil, func(r *rig) {
			difftest.Must(r.t, os.WriteFile(r.node.StateDir+"/attachments/sriov-net@"+sandbox+"@net1", []byte("{"), 0o644))
		}, "file", "interface net1: cannot use the journal entry: DIR/state/attachments/sriov-net@" + sandbox + "@net1: corrupt"},
		"information of a required interface": {[]string{"devinfo-cni.io/require=net1, net2"}, func(r *rig) { r.attach("bridge", sandbox, "net2", "") },
			"required", "interface net2, required by the annotation devinfo-cni.io/require, has no device information: add"},
		"the device of a required interface": {[]string{"devinfo-cni.io/require=net2"}, func(r *rig) {
			r.attach("lan", sandbox, "net2", "", func(e *journal.Entry) { e.Reason = "no device found for interface net2: set deviceID" })
		}, "required", "interface net2, required by the annotation devinfo-cni.io/require, has no device information: no device found for interface net2: set deviceID; remove the interface"},
		"the entry of a required interface": {[]string{"devinfo-cni.io/require=net2"}, func(*rig) {}, "required", "interface net2, required by"},
		"a required interface": {[]string{"devinfo-cni.io/require=net3,net1"}, func(*rig) {}, "required",
			"the pod has no interface net3 (it has net1): correct the annotation devinfo-cni.io/require, or attach the network"},
		"the only interface": {[]string{"devinfo-cni.io/require=net3"}, func(r *rig) { r.detach("sriov-net", sandbox, "net1") },
			"required", "the pod has no interface net3 (it has none): "},
		"the file of a required interface": {[]string{"devinfo-cni.io/require=net1"}, gone, "file", "interface net1: cannot use the device-info file: "},
		"a file of another interface": {[]string{"devinfo-cni.io/require=net2"}, func(r *rig) {
			r.attach("sriov-b", sandbox, "net2", strings.Replace(vfInfo, "00.3", "00.4", 1))
			gone(r)
		}, "file", "interface net1: cannot use the device-info file: "},
		"the namespace of a device to grant": {nil, func(r *rig) {
			r.node.InjectDeviceNodes, r.options.Finder.Interfaces = true, failing{r.options.Finder.Interfaces, link.ErrNoNetns}
		}, "failed", "interface net1: no such network namespace: mount the node's network namespaces into the agent"},
		"the namespace of a device to grant, and a pod with requirements": {[]string{"devinfo-cni.io/require=net1"}, func(r *rig) {
			r.node.InjectDeviceNodes, r.options.Finder.Interfaces = true, failing{r.options.Finder.Interfaces, link.ErrNoNetns}
		}, "failed", "interface net1: no such network namespace: mount the node's network namespaces into the agent"},
		"no required information": {[]string{"devinfo-cni.io/require=net1"}, func(*rig) {}, "", ""},
		"a writable directory":    {nil, func(r *rig) { r.options.StageDir = "/proc/none" }, "failed", "/proc/none"},
		"a writable directory, and a pod with requirements": {[]string{"devinfo-cni.io/require=net1"}, func(r *rig) { r.options.StageDir = "/proc/none" },
			"failed", "/proc/none"},
	} {
		for _, policy := range []inject.MissingInfo{inject.Allow, inject.Reject} {
			t.Run(name+", "+string(policy), func(t *testing.T) {
				r := newRig(t)
				r.options.MissingInfo = policy
				r.attach("sriov-net", sandbox, "net1", vfInfo)
				test.prepare(r)
				a := r.agent()
				if !strings.HasPrefix(r.options.StageDir, "/proc") {
					a = r.opened()
				}
				required := test.annotations != nil && name != "a file of another interface"
				refused := test.reason != "" && (required || policy == inject.Reject)
				c := container()
				if refused { // of a container that is not created nothing else is said
					c.Env = append(c.Env, "PCIDEVICE_X=0000:3b:00.5")
				}
				_, _, err := a.CreateContainer(t.Context(), pod(test.annotations...), c)
				want := "injected"
				switch {
				case refused:
					want = "rejected " + test.reason
				case test.reason != "":
					want = "allowed " + test.reason
				}
				r.expect(want)
				logged := r.logged()
				if refused {
					logged = fmt.Sprint(err)
				}
				difftest.Contains(t, strings.ReplaceAll(logged, r.dir, "DIR"), test.problem)
				difftest.Same(t, "refused, with the container's name", strings.HasPrefix(fmt.Sprint(err), "pod shop/web, container app: "), refused)
				difftest.Same(t, "an error", err != nil, refused)
			})
		}
	}
}

// faults are reads of a decision that fail. An attachment with a file is on record.
var faults = map[string]func(r *rig){
	"the settings": func(r *rig) { r.broken.Store(true) },
	"the journal":  func(r *rig) { r.loop("state/attachments") },
	"the files":    func(r *rig) { r.loop("infos") },
	"whose file it is": func(r *rig) {
		r.loop("state/leases/file/default-" + sandbox + "_net2")
		difftest.Write(r.t, r.node.DeviceInfoDir+"/default-"+sandbox+"_net2", vfInfo, 0o444)
	},
	"the interface": func(r *rig) { r.options.Finder.Interfaces = failing{r.options.Finder.Interfaces, syscall.EIO} },
}

// loop puts a link to itself in place of a file or directory.
func (r *rig) loop(name string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	difftest.Must(r.t, os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(filepath.Base(path), path))
}

type failing struct {
	discovery.Interfaces
	err error
}

func (f failing) Interface(string, string) (link.Interface, error) { return link.Interface{}, f.err }

// The agent may be unable to read because of a fault of the node. Pods without networks must start nevertheless, and no other
// without the information: one that names networks, one for which the journal has an attachment, or one with a container that
// has got the information.
func TestFailureOfTheAgentRejectsOnlyPodsWithNetworks(t *testing.T) {
	const injected = "injected before"
	for what, spoil := range faults {
		for pods, want := range map[string]bool{
			"": what != "the settings" && what != "the journal", "k8s.v1.cni.cncf.io/networks=sriov-net": true, "v1.multus-cni.io/default-network=sriov-net": true,
			"devinfo-cni.io/require=net1": true, injected: true,
		} {
			for _, policy := range []inject.MissingInfo{inject.Allow, inject.Reject} {
				r := newRig(t)
				r.options.MissingInfo = policy
				r.attach("sriov-net", sandbox, "net1", vfInfo)
				if pods == injected {
					r.make(r.opened(), pod(), container())
				}
				copies := r.staged(sandbox)
				spoil(r)
				got, _, err := r.opened().CreateContainer(t.Context(), pod(pods), container())
				difftest.Same(t, fmt.Sprintf("%s, %q, %s: %v, %q", what, pods, policy, err, r.decisions()), err != nil, want)
				difftest.Same(t, what+": what the container gets", r.text(got), "")
				difftest.Same(t, what, r.staged(sandbox), copies)
			}
		}
	}
}

// The agent mounts only socket directories that belong to one pod. A pod that has the socket in a volume
// does not need the mount.
func TestSocketInVolumeIsNotWithheld(t *testing.T) {
	r := newRig(t)
	switchDir := r.dir + "/vpp"
	difftest.Must(t, os.Mkdir(switchDir, 0o755))
	r.attach("memif-net", sandbox, "net1", `{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"`+switchDir+`/m.sock","mode":"ip"}}`)
	c := container()
	c.Mounts = []*api.Mount{{Source: switchDir, Destination: "/sockets", Type: "bind", Options: []string{"rbind", "rw"}}}
	difftest.Contains(t, r.text(r.make(r.opened(), pod(), c)), "DEVINFO_NET1_SOCKET=/sockets/m.sock")
	difftest.Lacks(t, r.logged(), "not given", "withheld")
	r.make(r.agent(), pod(), container())
	difftest.Contains(t, r.logged(), "level=WARN", "withheld from the container", "the socket "+switchDir+"/m.sock")
	c.Mounts = append(c.Mounts, &api.Mount{Source: "/x", Destination: "/var/run/k8s.cni.cncf.io/devinfo", Type: "bind"})
	r.make(r.agent(), pod(), c)
	difftest.Contains(t, r.logged(), `level=INFO msg="withheld from the container" pod=shop/web container=app device="the directory /var/run/k8s.cni.cncf.io/devinfo"`)
	r.expect("injected", "withheld policy", "injected", "withheld mount", "injected")
}

// The socket's directory belongs to the pod, so its containers get it, unless they could not make the socket there.
func TestSocketDirectoryOfThePodIsGiven(t *testing.T) {
	const mount = "/sockets/" + podUID + " on /run/sock bind bind,rw,nosuid,nodev,noexec\n"
	user := &api.LinuxNamespace{Type: "user"}
	for _, test := range []struct {
		info        string
		own, shared bool // a user namespace of the container, or of the pod
		given       bool
	}{
		{`memif","memif":{"role":"slave","mode":"ip"`, false, true, true}, {`memif","memif":{"role":"master","mode":"ip"`, false, true, false},
		{`vhost-user","vhost-user":{"mode":"client"`, true, false, true}, {`vhost-user","vhost-user":{"mode":"server"`, true, false, false},
		{`vhost-user","vhost-user":{"mode":"server"`, false, false, true},
	} {
		r := newRig(t)
		dir := r.node.SocketDirs[0] + "/" + podUID
		difftest.Must(t, os.MkdirAll(dir, 0o755))
		r.attach("socket-net", sandbox, "net1", `{"version":"1.1.0","type":"`+test.info+`,"path":"/run/sock/m.sock"}}`, func(e *journal.Entry) { e.SocketDir = dir })
		p, c := pod(), container()
		if test.shared {
			p.Linux.Namespaces = append(p.Linux.Namespaces, user)
		}
		if test.own {
			c.Linux.Namespaces = append(c.Linux.Namespaces, user)
		}
		difftest.Same(t, fmt.Sprintf("%+v", test), strings.Contains(r.text(r.make(r.opened(), p, c)), mount), test.given)
	}
}

func TestDevicePluginVariableThatContradictsNetworksIsLogged(t *testing.T) {
	const second = `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"v","driver":"vhost","path":"/dev/v","pci-address":"0000:3B:00.4"}}` // hexadecimal
	for _, test := range []struct {
		env  string
		want []string
	}{
		{"PCIDEVICE_X=0000:3b:00.3", nil},
		{"PCIDEVICE_X=0000:3b:00.3,0000:3b:00.4", nil},
		{"PCIDEVICE_X=0000:3b:00.4,0000:3b:00.3", []string{"disagrees order"}},
		{"PCIDEVICE_X=0000:3b:00.5", []string{"disagrees device"}},
		{"PCIDEVICE_X=0000:3b:00.3,0000:3b:00.5,0000:3b:00.6", []string{"disagrees device"}},
		{`PCIDEVICE_X_INFO={"0000:3b:00.5":{"generic":{"deviceID":"0000:3b:00.5"}}}`, nil},
		{"OTHER=0000:3b:00.5", nil},
	} {
		r := newRig(t)
		a := r.opened()
		c := container()
		c.Env = append(c.Env, test.env)
		r.attach("macvlan-net", sandbox, "net1", "")
		r.make(a, pod(), c)
		r.expect("injected") // the pod's networks have no devices
		r.attach("sriov-net", sandbox, "net2", vfInfo)
		r.attach("vdpa-net", sandbox, "net10", second)
		r.make(a, pod(), c)
		difftest.Same(t, test.env, r.decisions()[1:], append(test.want, "injected"))
		difftest.Same(t, test.env+": the log has the networks", strings.Contains(r.logged(), "net2 has 0000:3b:00.3, net10 has 0000:3b:00.4"), test.want != nil)
		difftest.Must(t, os.Remove(r.node.DeviceInfoDir+"/vdpa-net-"+sandbox+"_net10"))
		r.make(a, pod(), c)
		difftest.Same(t, test.env+", and one device is unknown", r.decisions()[2+len(test.want):], []string{"allowed file"})
	}
}

// A reader of network-info.json finds each file that it names, even if the agent is killed
// between two writes. The test simulates the kill with a directory at the path of the second file.
func TestNetworkInfoNamesOnlyExistingFiles(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	for n := range 20 { // if the order were random, 20 correct rounds would have a chance of 1 in a million
		p := pod()
		p.Id = fmt.Sprint("pod", n)
		dir := filepath.Join(r.options.StageDir, p.Id, "devinfo")
		file, all := filepath.Join(dir, "net1.json"), filepath.Join(dir, "network-info.json")
		r.attach("sriov-net", p.Id, "net1", vfInfo)
		difftest.Must(t, os.MkdirAll(file, 0o755))
		r.make(a, p, container())
		_, err := os.Stat(all)
		difftest.Is(t, err, os.ErrNotExist) // before the file of net1
		difftest.Must(t, os.Remove(file))

		r.make(a, p, container())
		difftest.Must(t, os.Remove(all), os.Mkdir(all, 0o755))
		r.detach("sriov-net", p.Id, "net1")
		r.attach("macvlan-net", p.Id, "net2", "")
		r.make(a, p, container())
		_, err = os.Stat(file)
		difftest.Must(t, err) // network-info.json names it
	}
}

// The end of a veth on the host may have the same name, and a device without a kernel interface has only a result.
func TestAddressAndMTUAreThoseOfThePodsInterface(t *testing.T) {
	r := newRig(t)
	r.attach("dpdk-net", sandbox, "net7", "", func(e *journal.Entry) {
		e.Result = []byte(`{"cniVersion":"1.1.0","interfaces":[{"name":"net7","mac":"02:00:00:00:00:01","mtu":1},{"name":"net8","mac":"02:00:00:00:00:02","mtu":2,"sandbox":"/a"},
			{"name":"net7","mac":"02:00:00:00:00:03","mtu":3,"sandbox":"/a"}]}`)
	})
	r.make(r.opened(), pod(), container())
	difftest.Contains(t, compact(t, r.staged(sandbox)["network-info.json"]), `"mac":"02:00:00:00:00:03","mtu":3`)
}

// ADD writes the journal entry before the file. Later, a program that writes the file anew may leave none for a moment.
func TestNetworkIsListedOnceItsFileExists(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	file, copied := "sriov-net-"+sandbox+"_net1", filepath.Join(r.options.StageDir, sandbox, "devinfo/net1.json")
	refresh := func(lists ...string) {
		t.Helper()
		a.Refresh(inject.State{})
		text := r.staged(sandbox)["network-info.json"]
		difftest.Contains(t, text, lists...)
		difftest.Same(t, text, strings.Count(text, `"interface"`), len(lists))
	}
	r.attach("macvlan-net", sandbox, "net2", "")
	r.attach("sriov-net", sandbox, "net1", "", func(e *journal.Entry) { e.Wrote = true })
	r.make(a, pod(), container())
	refresh("net2")
	difftest.Contains(t, r.logged(), "cannot use the device-info file")
	difftest.Must(t, store.Open(r.node.DeviceInfoDir).Write(file, []byte(vfInfo)))
	refresh("net1", "net2")
	before, err := os.Stat(copied)
	difftest.Must(t, err, os.Remove(r.node.DeviceInfoDir+"/"+file))
	r.attach("macvlan-net", sandbox, "net3", "")
	refresh("net1", "net2", "net3")
	difftest.Equal(t, compact(t, difftest.Read(t, copied)), vfInfo)
	now, err := os.Stat(copied)
	difftest.Must(t, err)
	difftest.Same(t, "a file of the same content stays, and what containers mount on it", os.SameFile(before, now), true)
}

// With delegates the file may exist long before ADD ends. If an interface has two entries, the
// complete one is used, in any order of reading.
func TestNetworkIsNotListedWhileItsDelegatesRun(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	adding := func(e *journal.Entry) { e.Complete = false }
	r.attach("macvlan-net", sandbox, "net2", "")
	r.attach("sriov-net", sandbox, "net1", vfInfo, adding)
	for _, want := range []string{"", `"other-net"`} {
		if want != "" {
			r.attach("other-net", sandbox, "net1", "")
			r.attach("a-net", sandbox, "net2", "", adding)
		}
		r.make(a, pod(), container())
		got := r.staged(sandbox)["network-info.json"]
		difftest.Contains(t, got, want, `"macvlan-net"`)
		difftest.Same(t, got, []bool{strings.Contains(got, "net1"), slices.Contains(r.names(sandbox), "net1.json")}, []bool{want != "", want != ""})
	}
	r.attach("m-net", sandbox, "net5", "", func(e *journal.Entry) { e.Wrote = true }) // its file is missing
	r.attach("a-net", sandbox, "net5", "")
	r.attach("z-net", sandbox, "net5", "")
	r.make(a, pod(), container())
	difftest.Equal(t, r.decisions()[2:], []string{"allowed file"})
}

// The author of a pod chooses the names of its interfaces. CNI allows all names that the kernel
// allows, which excludes only slash, colon and space.
func TestMaliciousInterfaceNamesAreHarmless(t *testing.T) {
	r := newRig(t)
	nri := r.running()
	for _, ifName := range []string{`a"b`, "x=y", "\x1b[31m", "$(id)", "..net1", "ü", "network-info"} {
		r.attach("sriov-net", sandbox, ifName, vfInfo)
	}
	got := nri.make(pod(), container())
	want := []string{"$(id).json", "..net1.json", "\x1b[31m.json", `a"b.json`, "network-info.json", "x=y.json", "ü.json"}
	slices.Sort(want)
	difftest.Equal(t, r.names(sandbox), want)
	var all struct{ Interfaces []struct{ Interface string } }
	difftest.Must(t, json.Unmarshal([]byte(r.staged(sandbox)["network-info.json"]), &all))
	difftest.Equal(t, len(all.Interfaces), 7)
	for _, e := range got.GetEnv() {
		difftest.Same(t, "variable "+e.Key, strings.Trim(e.Key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"), "")
	}
	difftest.Holds(t, r.options.StageDir, sandbox)
}

// An annotation may have 256 KiB, and its value appears in logs and events.
func TestLongAnnotationIsShortenedInLogs(t *testing.T) {
	r := newRig(t)
	nri := r.running()
	huge := strings.Repeat("x\n\x1b", 80_000)
	_, err := nri.create(pod("devinfo-cni.io/require="+huge), container())
	if err == nil || len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), "pod shop/web, container app: the pod has no interface ") {
		t.Errorf("the runtime gets %.1000q", err)
	}
	nri.make(pod("devinfo-cni.io/inject="+huge), container())
	if text := r.logged(); len(text) > 3000 || strings.Contains(text, "\x1b") || !strings.Contains(text, "annotation ignored") {
		t.Errorf("%d bytes of log", len(text))
	}
	r.expect("rejected required", "nothing")
}

func byClaim(e *journal.Entry) {
	e.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_RESOURCE_CLAIM=vf"
}

// CDI injects a claim into the containers that list it. The agent does not know which
// containers these are.
func TestAttachmentsOfClaimsAreLeftToCDI(t *testing.T) {
	r := newRig(t)
	r.options.MissingInfo = inject.Reject
	nri := r.running()
	claimed := attachment.ClaimFileName("other-net", sandbox, "net3") // written by a plugin without a journal entry
	r.attach("sriov-net", sandbox, "net1", vfInfo, byClaim)
	r.attach("delegating", sandbox, "net4", vfInfo, byClaim, func(e *journal.Entry) { e.Complete = false })
	difftest.Must(t, store.Open(r.node.DeviceInfoDir).Write(claimed, []byte(vfInfo)))
	difftest.Equal(t, r.text(nri.make(pod(), container())), "")
	difftest.Equal(t, r.staged(sandbox), map[string]string(nil))

	r.attach("macvlan-net", sandbox, "net2", "")
	difftest.Equal(t, r.text(nri.make(pod("devinfo-cni.io/require=net1"), container())), theDirectory)
	all := `{"interfaces":[{"network":"macvlan-net","mac":"4e:3b:00:00:00:08","mtu":1500,"interface":"net2"}]}`
	difftest.Equal(t, compact(t, r.staged(sandbox)["network-info.json"]), all)
	difftest.Equal(t, r.names(sandbox), []string{"network-info.json"})
	r.expect("nothing", "injected")
}
