package kernel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"devinfo-cni.io/pkg/link/linktest"
)

// cnitool runs that runtime with the one conflist; the file's path and the device
// are passed as Multus does.
func cnitool(t *testing.T, verb, network, netns string) answer {
	t.Helper()
	cmd := exec.Command(filepath.Join(binDir(t), "cnitool"), verb, network, netns)
	cmd.Env = append(os.Environ(), "NETCONFPATH=/run/net.d", "CNI_IFNAME=net1",
		`CAP_ARGS={"CNIDeviceInfoFile": "`+infoFile+`", "deviceID": "`+vf+`"}`)
	return finish(t, cmd)
}

func conflist(t *testing.T, text string) {
	t.Helper()
	must(t, os.MkdirAll("/run/net.d", 0o755))
	must(t, os.WriteFile("/run/net.d/net.conflist", []byte(text), 0o644))
}

// last is our part of the conflists.
const last = `{"type": "devinfo", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}`

func TestCnitoolMacvlanThenDevinfo(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		other := linktest.NewNetns(t)
		linktest.AddVeth(t, "nic", "peer", other)
		conflist(t, `{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "macvlan", "master": "nic", "mode": "bridge"}, `+last+`]}`)

		cnitool(t, "status", "net", pod).ok(t)
		result := cnitool(t, "add", "net", pod).ok(t)
		same(t, "result", compact(t, result),
			`{"cniVersion":"1.1.0","interfaces":[{"mac":"MAC","name":"net1","pciID":"0000:01:10.0","sandbox":"NETNS"}]}`)
		same(t, "device-info file", read(t, infoFile), vfFile)
		same(t, "interfaces in the pod", podLinks(t, pod), "net1")

		cnitool(t, "check", "net", pod).ok(t)
		same(t, "device-info file after CHECK", read(t, infoFile), vfFile)
		cnitool(t, "del", "net", pod).ok(t)
		nothingLeft(t, pod)
		cnitool(t, "del", "net", pod).ok(t)
	})
}

const bridgeConf = `{"type": "bridge", "bridge": "br0", "capabilities": {"mac": true, "ips": true},
	"ipam": {"type": "host-local", "dataDir": "` + ipamDir + `", "subnet": "10.1.2.0/24"}}`

// cnitool's GC deletes what is in its cache, and then passes no list of valid
// attachments on: that must not be taken for an empty one.
func TestCnitoolGCDeletesOnlyItsOwn(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		conflist(t, `{"cniVersion": "1.1.0", "name": "net", "plugins": [`+last+`]}`)
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

// standalone is a configuration that records the VF in a file.
func standalone(path string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "deviceID": "` + vf + `",
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + path + `"}}`
}
