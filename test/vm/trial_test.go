//go:build vm

package vm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containernetworking/cni/libcni"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/test/difftest"
)

// An example is a file in deploy/examples that needs a device. Libcni runs its network unchanged, with the additions
// of Multus. devinfo and host-device are real, and standin replaces sriov-cni, ovs-cni and rdma-cni. NRI then
// requests a container from the agent. test/e2e runs the examples without a device in pods, with the real Multus.
type example struct {
	name     string // name of the file without .yaml
	deviceID string
	pool     string   // device-info file of the device plugin; "" = none
	settings string   // node settings in JSON
	binDir   string   // directory of plugins that come first; "" = none
	ifName   string   // "" = net1
	host     string   // interface on the host that moves into the pod; "" = none
	port     string   // representor that is in the bridge br-hw meanwhile; "" = none
	left     []string // files that sriov-cni leaves

	info  string   // expected device-info file
	nodes []string // expected device nodes of a container

	firstDel string // error of the first DEL; "" = it succeeds
}

// A trial is a running example.
type trial struct {
	example
	*attachment
	made struct { // result of ADD
		Interfaces []madeInterface
		IPs        []struct{ Address string }
	}
	hardware   string   // MAC of the interface that moves
	command    []string // command of the example's container
	nri        *adaptation.Adaptation
	adjustment *api.ContainerAdjustment
}

type madeInterface struct{ Name, Mac, Sandbox string }

const sandboxID = "5be2c0ffee"

// begin attaches the example's network, and checks the file and a container.
func (e example) begin(t *testing.T) *trial {
	t.Helper()
	if e.ifName == "" {
		e.ifName = "net1"
	}
	settings := filepath.Join(t.TempDir(), "node.json")
	write(t, settings, e.settings)
	t.Setenv("DEVINFO_NODE_CONFIG", settings)
	r := &trial{example: e, nri: nri(t)}
	if e.host != "" {
		r.hardware = mac(t, e.host)
	}
	config, resource := r.load(t)
	n := newNetworkOf(t, config)
	if e.binDir != "" {
		n.cni = libcni.NewCNIConfigWithCacheDir([]string{e.binDir, plugins}, t.TempDir(), n.exec())
	}
	r.attachment = n.attachment(sandboxID, e.ifName, e.deviceID)
	if e.pool != "" { // Multus copies the file
		file := poolDir + "/" + strings.ReplaceAll(resource, "/", "-") + "-" + e.deviceID + "-device.json"
		must(t, os.MkdirAll(poolDir, 0o755), os.MkdirAll(infoDir, 0o755))
		write(t, file, e.pool)
		t.Cleanup(func() {
			same(t, file, read(t, file), e.pool)
			os.Remove(file)
		})
		write(t, r.path(), e.pool)
	}
	text := r.attach()
	t.Cleanup(func() {
		if t.Failed() {
			_, _ = r.tryDel(), r.tryDel()
		}
	})
	r.check()
	r.silent()
	file := read(t, r.path())
	same(t, r.path(), indent(t, file), indent(t, e.info))
	must(t, json.Unmarshal([]byte(text), &r.made))
	found := slices.IndexFunc(r.made.Interfaces, func(i madeInterface) bool { return i.Name == e.ifName && i.Sandbox == r.rt.NetNS })
	if found < 0 { // otherwise Multus writes no device-info into network-status
		t.Fatalf("the result has no interface of the pod: %s", text)
	}
	if got := r.made.Interfaces[found].Mac; e.host != "" && (got != r.hardware || onHost(e.host) || !inPod(sandboxID, e.ifName)) {
		t.Errorf("%s is not in the pod: %s", e.host, text)
	}
	if e.port != "" {
		same(t, "bridge of "+e.port, bridgeOf(e.port), "br-hw")
	}
	r.adjustment = r.container(r.nri)
	given(t, r.adjustment, e.ifName, file, e.nodes...)
	return r
}

// load reads the example's file. It returns the network's configuration as Multus passes it, and the network's
// resource. It also sets the command of the pod.
func (r *trial) load(t *testing.T) (config []byte, resource string) {
	t.Helper()
	var list map[string]any
	for document := range strings.SplitSeq(read(t, "examples/"+r.name+".yaml"), "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				Config     string
				Containers []struct{ Command []string }
			}
		}
		must(t, yaml.Unmarshal([]byte(document), &object))
		if object.Kind == "NetworkAttachmentDefinition" {
			must(t, json.Unmarshal([]byte(object.Spec.Config), &list))
			resource = object.Metadata.Annotations["k8s.v1.cni.cncf.io/resourceName"]
		}
		if object.Kind == "Pod" {
			r.command = object.Spec.Containers[0].Command
		}
	}
	for _, plugin := range list["plugins"].([]any) {
		plugin.(map[string]any)["deviceID"], plugin.(map[string]any)["pciBusID"] = r.deviceID, r.deviceID
	}
	config, err := json.Marshal(list)
	must(t, err)
	return config, resource
}

// end ends the pod like a runtime, and checks that no state remains.
func (r *trial) end() {
	r.t.Helper()
	if r.firstDel != "" {
		if err := r.tryDel(); err == nil || !strings.Contains(fullText(err), r.firstDel) {
			r.t.Errorf("first DEL: %s, want %s", fullText(err), r.firstDel)
		}
		r.lines.Reset() // they contain the error too
	}
	if err := r.tryDel(); err != nil {
		r.t.Fatalf("DEL: %s\n%s", fullText(err), r.warnings())
	}
	r.silent()
	if exists(r.path()) {
		r.t.Errorf("%s is still there", r.path())
	}
	if err := r.nri.RemovePodSandbox(r.t.Context(), &adaptation.RemovePodSandboxRequest{Pod: r.sandbox()}); err != nil {
		r.t.Error(err)
	}
	eventually(r.t, "the container's files are removed", func() bool { return !exists(r.adjustment.Mounts[0].Source) })
	if r.host != "" && (!onHost(r.host) || mac(r.t, r.host) != r.hardware) {
		r.t.Errorf("%s is not back", r.host)
	}
	if r.port != "" {
		same(r.t, "bridge of "+r.port, bridgeOf(r.port), "")
	}
	nothingBut(r.t, sriovDir, r.left...)
	nothingBut(r.t, "/var/lib/cni/ovs-cni")
	if leases, _ := filepath.Glob("/var/lib/cni/networks/*/*.*.*.*"); len(leases) > 0 {
		r.t.Errorf("left behind: %s", leases)
	}
}

// nothingBut fails the test if a directory contains other files, and removes the expected ones.
func nothingBut(t *testing.T, dir string, want ...string) {
	t.Helper()
	var found []string
	for _, path := range difftest.Files(t, dir) {
		found = append(found, strings.TrimPrefix(path, dir+"/"))
		must(t, os.Remove(path))
	}
	if !slices.Equal(found, want) {
		t.Errorf("%s has %s, want %s", dir, found, want)
	}
}

const sriovDir = "/var/lib/cni/sriov"

// poolPCI returns the file that the SR-IOV device plugin writes for a VF without RDMA.
func poolPCI(address string) string {
	return fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":%q}}`, address)
}

// group returns the device node of a device's IOMMU group.
func group(t *testing.T, address string) string {
	t.Helper()
	target, err := os.Readlink("/sys/bus/pci/devices/" + address + "/iommu_group")
	must(t, err)
	return "/dev/vfio/" + filepath.Base(target)
}
