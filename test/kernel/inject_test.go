package kernel_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/agent/inject/injecttest"
	"devinfo-cni.io/test/node"
)

const (
	stageDir  = "/run/agent/stage"
	injected  = "/var/run/k8s.cni.cncf.io/devinfo/"
	sandboxID = "c0ffee"
	withSpec  = `"cdi": {"name": "{podUID}-{ifName}"},` // keys of a configuration with a CDI spec
)

// injector returns an agent on the stage.
func injector(t *testing.T) *inject.Plugin {
	t.Helper()
	must(t, os.MkdirAll(stageDir, 0o755))
	c, err := injecttest.Config(node.Settings, stageDir, injecttest.Uncounted{})
	must(t, err)
	return inject.New(c)
}

// adjust applies the agent's adjustment to a container, like containerd and CRI-O.
func adjust(t *testing.T, a *inject.Plugin, pod string, spec *oci.Spec) {
	t.Helper()
	adjustment, _, err := a.CreateContainer(t.Context(), &api.PodSandbox{
		Id: sandboxID, Uid: "6e0c", Namespace: "shop", Name: "web",
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: pod}}},
	}, &api.Container{
		Name: "app", User: &api.User{Uid: spec.Process.User.UID, Gid: spec.Process.User.GID}, Env: spec.Process.Env, Mounts: api.FromOCIMounts(spec.Mounts),
		Linux: &api.LinuxContainer{Devices: api.FromOCILinuxDevices(spec.Linux.Devices), Namespaces: api.FromOCILinuxNamespaces(spec.Linux.Namespaces)},
	})
	must(t, err)
	must(t, generate.SpecGenerator(&editor{spec: spec}).Adjust(adjustment))
}

// An editor is the part of the generator in github.com/opencontainers/runtime-tools that adds mounts, variables and
// devices.
type editor struct {
	generate.UnderlyingGenerator
	spec *oci.Spec
}

func (e *editor) Spec() *oci.Spec           { return e.spec }
func (e *editor) Mounts() []oci.Mount       { return e.spec.Mounts }
func (e *editor) AddMount(m oci.Mount)      { e.spec.Mounts = append(e.spec.Mounts, m) }
func (e *editor) ClearMounts()              { e.spec.Mounts = nil }
func (e *editor) ClearProcessEnv()          { e.spec.Process.Env = nil }
func (e *editor) AddProcessEnv(k, v string) { e.spec.Process.Env = append(e.spec.Process.Env, k+"="+v) }

func (e *editor) RemoveMount(destination string) {
	e.spec.Mounts = slices.DeleteFunc(e.spec.Mounts, func(m oci.Mount) bool { return m.Destination == destination })
}

func (e *editor) AddDevice(d oci.LinuxDevice) { e.spec.Linux.Devices = append(e.spec.Linux.Devices, d) }

func (e *editor) RemoveDevice(path string) {
	e.spec.Linux.Devices = slices.DeleteFunc(e.spec.Linux.Devices, func(d oci.LinuxDevice) bool { return d.Path == path })
}

func (e *editor) AddLinuxResourcesDevice(allow bool, kind string, major, minor *int64, access string) {
	e.spec.Linux.Resources.Devices = append(e.spec.Linux.Resources.Devices, oci.LinuxDeviceCgroup{Allow: allow, Type: kind, Major: major, Minor: minor, Access: access})
}

// add attaches an interface.
func add(t *testing.T, pod, ifName, more string) {
	t.Helper()
	conf := `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "deviceID": "` + onVFIO + `",` + more + `
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoDir + "/net-" + sandboxID + "_" + ifName + `"}}`
	call(t, "ADD", pod, conf, podUID, "CNI_IFNAME="+ifName).ok(t)
}

// inContainer runs a container. If the container waits for a line, inContainer first calls meanwhile.
func inContainer(t *testing.T, dir string, spec oci.Spec, meanwhile func()) string {
	t.Helper()
	run := runc(t, dir, spec)
	var stderr, said bytes.Buffer
	run.Stderr = &stderr
	in, err := run.StdinPipe()
	must(t, err)
	out, err := run.StdoutPipe()
	must(t, err)
	must(t, run.Start())
	hangs := time.AfterFunc(2*time.Minute, func() { _ = run.Process.Kill() })
	defer hangs.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "waiting" {
			meanwhile()
			_, err := io.WriteString(in, "\n")
			must(t, err)
			continue
		}
		fmt.Fprintln(&said, lines.Text())
	}
	if err := run.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, &said, &stderr)
	}
	return said.String()
}

// injection runs a test of injection on the stage, with a pod that has the interface net1. more are keys of net1's
// configuration.
func injection(t *testing.T, more string, f func(t *testing.T, a *inject.Plugin, pod string)) {
	needRunc(t)
	onStage(t, func(t *testing.T, pod string) {
		nodeSettings(t, map[string]any{"cdiDir": cdiDir, "allowedDevices": []string{"0000:01:00.0"}, "injectDeviceNodes": true})
		devices(t)
		add(t, pod, "net1", more)
		f(t, injector(t), pod)
	})
}

// Output of the probe for device nodes, and for a directory without write permission.
const (
	nodesOpened = "/dev/vfio/vfio 2 <nil>\n/dev/vfio/15 2 <nil>\n"
	isReadOnly  = injected + " <nil> open " + injected + "x: read-only file system\n"
	oneFile     = "net1.json true <nil>\nnetwork-info.json true <nil>\n" + isReadOnly
	twoFiles    = "net1.json true <nil>\nnet2.json true <nil>\nnetwork-info.json true <nil>\n" + isReadOnly
	firstFile   = injected + "net1.json\n" + onVFIOFile + "<nil>\nopen " + injected + "net1.json: "
)

func TestInjectedContainerReadsFilesAndOpensDeviceNodes(t *testing.T) {
	injection(t, "", func(t *testing.T, a *inject.Plugin, pod string) {
		dir, spec := ociSpec(t, pod, "DEVINFO_NET1", "/dev/vfio/vfio", "/dev/vfio/15", injected, "-", injected)
		adjust(t, a, pod, &spec)
		got := inContainer(t, dir, spec, func() { // another container of the pod, with a network that was attached later
			add(t, pod, "net2", "")
			_, other := ociSpec(t, pod, "DEVINFO_NET2")
			adjust(t, a, pod, &other)
		})
		same(t, "output of the container", got, firstFile+"permission denied\n"+nodesOpened+oneFile+"- <nil>\n"+twoFiles)
	})
}

func TestInjectedContainerWithoutRootOpensDeviceNodes(t *testing.T) {
	injection(t, "", func(t *testing.T, a *inject.Plugin, pod string) {
		must(t, os.Chmod("/dev/vfio/15", 0o600))
		dir, spec := ociSpec(t, pod, "DEVINFO_NET1", "/dev/vfio/vfio", "/dev/vfio/15", injected)
		spec.Process.User = oci.User{UID: 107, GID: 108}
		must(t, os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755))
		adjust(t, a, pod, &spec)
		same(t, "output of the container", inContainer(t, dir, spec, nil), firstFile+"permission denied\n"+nodesOpened+oneFile)
	})
}

// The runtime mounts the directory read-only before it mounts CDI's files below it. The journal may lack these files,
// because the DRA driver may have attached net1 with another plugin.
func TestInjectionAndCDIWorkTogether(t *testing.T) {
	injection(t, withSpec, func(t *testing.T, _ *inject.Plugin, pod string) {
		add(t, pod, "net2", withSpec)
		const elsewhere = infoDir + "/of-another-name"
		for _, info := range []string{infoDir + "/net-" + sandboxID + "_net1", elsewhere} {
			must(t, os.RemoveAll(stageDir))
			a := injector(t)
			dir, spec := ociSpec(t, pod, "DEVINFO_NET1", "/dev/vfio/vfio", "/dev/vfio/15", injected)
			withCDI(t, &spec, cdiDevice)
			if info == elsewhere {
				must(t, os.Remove(stateDir+"/attachments/net@"+sandboxID+"@net1"), os.Rename(infoDir+"/net-"+sandboxID+"_net1", elsewhere))
				n := slices.IndexFunc(spec.Mounts, func(m oci.Mount) bool { return m.Destination == injected+"net1.json" })
				spec.Mounts[n].Source = elsewhere
			}
			adjust(t, a, pod, &spec)
			same(t, "output of the container", inContainer(t, dir, spec, nil), firstFile+"read-only file system\n"+nodesOpened+twoFiles)
		}
	})
}

// The replacement of a file detaches CDI's mount on it, so the container sees the newer file.
func TestContainerSeesFileReplacedBelowCDIMount(t *testing.T) {
	injection(t, withSpec, func(t *testing.T, a *inject.Plugin, pod string) {
		dir, spec := ociSpec(t, pod, "DEVINFO_NET1", "-", injected+"net1.json")
		withCDI(t, &spec, cdiDevice)
		adjust(t, a, pod, &spec)
		newer := strings.Replace(onVFIOFile, "1.1.0", "1.0.0", 1)
		got := inContainer(t, dir, spec, func() {
			must(t, os.WriteFile(infoDir+"/other", []byte(newer), 0o644))
			must(t, os.Rename(infoDir+"/other", infoDir+"/net-"+sandboxID+"_net1"))
			_, other := ociSpec(t, pod, "DEVINFO_NET1")
			adjust(t, a, pod, &other)
		})
		same(t, "output of the container", got, firstFile+"read-only file system\n- <nil>\n"+newer+"<nil>\n")
	})
}

// In a user namespace the container has only the permissions of other users, so it can use the copies of files, and
// device nodes with mode 0666.
func TestUserNamespaceCanUseFilesForOtherUsers(t *testing.T) {
	injection(t, "", func(t *testing.T, a *inject.Plugin, pod string) {
		must(t, os.Chmod("/dev/vfio/15", 0o600))
		dir, spec := ociSpec(t, pod, "DEVINFO_NET1", "/dev/vfio/vfio", "/dev/vfio/15", injected)
		const first = 100_000
		inUserNamespace(&spec, first)
		adjust(t, a, pod, &spec)
		inNetns(&spec, "") // the pod's network namespace does not belong to this user namespace, as it normally would
		must(t, os.Chown(dir+"/rootfs", first, first), os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755))
		same(t, "output of the container", inContainer(t, dir, spec, nil),
			firstFile+"permission denied\n/dev/vfio/vfio 2 <nil>\n/dev/vfio/15 0 open /dev/vfio/15: no such file or directory\n"+oneFile)
	})
}

// A pod may mount the node's /run with mountPropagation Bidirectional. The runtime's mounts below it in the container
// then appear on the node, over the files of all pods.
func TestInjectedMountDoesNotAppearOnNode(t *testing.T) {
	injection(t, "", func(t *testing.T, a *inject.Plugin, pod string) {
		must(t, unix.Mount("", "/run", "", unix.MS_SHARED|unix.MS_REC, ""))
		dir, spec := ociSpec(t, pod, "DEVINFO_NET1", "-")
		must(t, os.Mkdir(dir+"/rootfs/var", 0o755))
		must(t, os.Symlink("../run", dir+"/rootfs/var/run")) // like in most images
		spec.Linux.RootfsPropagation = "rshared"             // the setting of containerd and CRI-O for Bidirectional
		spec.Mounts = append(spec.Mounts, oci.Mount{Destination: "/run", Source: "/run", Type: "bind", Options: []string{"rbind", "rshared"}})
		adjust(t, a, pod, &spec)
		asked := false
		inContainer(t, dir, spec, func() {
			asked = true
			if _, err := os.Stat(infoDir + "/net-" + sandboxID + "_net1"); err != nil {
				t.Errorf("while the container runs: %v", err)
			}
		})
		if !asked {
			t.Error("the container did not run")
		}
	})
}

// chained returns devinfo's configuration after a plugin that has created net1.
func chained(netns, more string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", ` + more + `
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoFile + `"},
		"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "` + netns + `"}]}}`
}

// warnings returns the messages of the warnings in the log.
func (a answer) warnings() string {
	var list []string
	for line := range strings.Lines(a.stderr) {
		if _, text, ok := strings.Cut(line, "level=WARN msg="); ok {
			list = append(list, strings.TrimSpace(text))
		}
	}
	return strings.Join(list, "\n")
}
