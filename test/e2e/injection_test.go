//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/test/difftest"
)

// limit is the time limit for actions that take seconds.
const limit = 2 * time.Minute

const infoDir = "/var/run/k8s.cni.cncf.io/devinfo/"

// given is the device information that a container has.
type given struct {
	Files       []string          // names below infoDir
	Environment map[string]string // DEVINFO_*
	SocketDirs  []string
	Nodes       []string
}

// given returns the container's device information. It leaves out variables that repeat the content of a file.
func (v *view) given() given {
	g := given{Environment: map[string]string{}, SocketDirs: v.SocketDirs, Nodes: v.Nodes}
	maps.Copy(g.Environment, v.Environment)
	handed := func(socket string) string {
		if slices.Contains(v.SocketDirs, filepath.Dir(socket)) {
			return socket
		}
		return ""
	}
	for _, path := range slices.Sorted(maps.Keys(v.DeviceInfo)) {
		g.Files = append(g.Files, strings.TrimPrefix(path, infoDir))
		info, err := devinfo.Parse(v.DeviceInfo[path])
		if err != nil { // the file of all networks
			continue
		}
		for _, fact := range cdispec.Variables(cdispec.Variable(strings.TrimSuffix(strings.TrimPrefix(path, infoDir), ".json")), info, handed) {
			name, value, _ := strings.Cut(fact, "=")
			if g.Environment[name] == value {
				delete(g.Environment, name)
			} else {
				g.Environment[name] = "not " + value
			}
		}
	}
	return g
}

// files returns the device information of a container that gets only the files of these interfaces.
func files(interfaces ...string) given {
	g := given{Environment: map[string]string{}}
	for _, name := range interfaces {
		g.Files = append(g.Files, name+".json")
		g.Environment["DEVINFO_"+strings.ToUpper(name)] = infoDir + name + ".json"
	}
	if g.Files != nil {
		g.Files = append(g.Files, "network-info.json")
	}
	return g
}

// has compares the device information in the view of a container.
func (s *space) has(of string, v *view, want given) {
	s.Helper()
	difftest.Same(s.T, of, v.given(), want, cmpopts.EquateEmpty())
}

// lan creates a macvlan network with devinfo, which writes a file without a resource. The node may be a network
// namespace whose interface does not belong to the card, so the network declares the card.
func (s *space) lan(name, subnet string) map[string]any {
	s.Helper()
	network := s.macvlan(subnet, map[string]any{"type": "devinfo", "deviceInfoFile": "auto", "deviceInfo": declaredCard()})
	s.nad(name, "", network)
	return network
}

// declaredCard returns the card as a configuration declares it.
func declaredCard() map[string]any {
	return map[string]any{"type": "pci", "pci": map[string]any{"pci-address": cluster.card}}
}

// card creates a network with devinfo as the only plugin, which declares the node's card.
func (s *space) card() {
	s.Helper()
	info := map[string]any{"type": "pci", "pci": map[string]any{"pci-address": cluster.card, "vhost-net": "/dev/vhost-net"}}
	s.nad("card", "", s.network("card", map[string]any{"type": "devinfo", "deviceInfoFile": "auto", "deviceInfo": info}))
}

// socket creates a network with a socket in the sandbox's directory.
func (s *space) socket() {
	s.Helper()
	s.nad("socket", "", s.network("socket", map[string]any{
		"type": "devinfo", "deviceInfoFile": "auto", "delegates": []map[string]any{{"type": "userspace"}},
		"deviceInfo": map[string]any{"type": "vhost-user", "vhost-user": map[string]any{"mode": "client", "path": userspaceDir + "{containerID:12}/{ifName}"}},
	}))
}

// injected creates a pod in three networks: a macvlan, the node's card by name, and a socket. With the card the
// settings grant /dev/net/tun.
func injected(t *testing.T, _ *nodeAgent) {
	s := begin(t)
	s.lan("lan", "10.11.80.0/24")
	s.card()
	s.socket()
	pod := withNetworks("a", nil, "lan", "card", "socket")
	once := pod.Spec.Containers[0]
	once.Name, once.Command = "first", []string{"/pod-view", "-once"}
	pod.Spec.InitContainers = []corev1.Container{once}
	s.create(pod)
	view := s.running("a")
	want := files("net1", "net2", "net3")
	want.SocketDirs = []string{userspaceDir + s.sandboxOf("a")[:12]}
	want.Nodes = []string{"/dev/net/tun 0" + strings.ReplaceAll(onNode(t, "stat", "-c", "%a_%u:%g", "/dev/net/tun"), "_", " ")}
	s.has("container", view, want)
	s.has("init container", s.prints("a", "first"), want)
	s.tells(view, "net1", cardInfo().Encode())
	s.knows(view)
	s.delete("a")
	clean(t)
	eventually(t, limit, func() error {
		if out := onNode(t, "find", "/var/run/devinfo-agent/", "-name", "*.json"); out != "" {
			return fmt.Errorf("the agent's directory has still:\n%s", out)
		}
		return nil
	})
}

// tells compares the device-info file of an interface in a view.
func (s *space) tells(v *view, ifName string, want []byte) {
	s.Helper()
	var is, should any
	must(s.T, json.Unmarshal(want, &should))
	_ = json.Unmarshal(v.DeviceInfo[infoDir+ifName+".json"], &is)
	difftest.Same(s.T, ifName+".json", is, should)
}

// knows compares network-info.json with the interfaces that the container sees.
func (s *space) knows(v *view) {
	s.Helper()
	var info struct {
		Interfaces []struct {
			Interface, MAC string
			DeviceInfo     json.RawMessage
		}
	}
	must(s.T, json.Unmarshal(v.DeviceInfo[infoDir+"network-info.json"], &info))
	macs := map[string]string{}
	for _, i := range v.Interfaces {
		macs[i.Name] = i.MAC
	}
	for _, i := range info.Interfaces {
		if i.MAC != macs[i.Interface] || i.DeviceInfo == nil {
			s.Errorf("network-info.json says %+v, the container has %v", i, macs)
		}
	}
	if len(info.Interfaces) != len(v.DeviceInfo)-1 {
		s.Errorf("network-info.json has %d interfaces, and there are %d files", len(info.Interfaces), len(v.DeviceInfo)-1)
	}
}

// userNamespace creates a pod whose root is an unprivileged user on the node.
func userNamespace(t *testing.T, a *nodeAgent) {
	// A node in a namespace may have mounts in its /proc. The kernel lets a pod in a user namespace mount a proc only
	// if one without such mounts is visible.
	const proc = "/run/e2e-proc"
	onNode(t, "mkdir", "-p", proc)
	onNode(t, "mount", "-t", "proc", "proc", proc)
	t.Cleanup(func() { onNode(t, "umount", proc) })
	s := begin(t)
	s.lan("lan", "10.11.84.0/24")
	s.card()
	pod := withNetworks("a", nil, "lan", "card")
	pod.Spec.HostUsers = new(bool)
	s.create(pod)
	view := s.running("a")
	want := files("net1", "net2")
	if mode := onNode(t, "stat", "-c", "%a", "/dev/net/tun"); strings.HasSuffix(mode, "6") {
		want.Nodes = []string{"/dev/net/tun 0" + mode + " 65534:65534"} // the node's own device node
	} else if log := a.log(t); !strings.Contains(log, "/dev/net/tun why=\"it has mode 0"+mode+" on the host; a pod in a user namespace needs read and write permission for other users") {
		t.Errorf("the agent does not say why it withholds /dev/net/tun:\n%s", log)
	}
	s.has("container", view, want)
}

// agentRequired configures the runtime's validator (docs/injection.md). It refuses a container without the agent if
// its pod requires the agent.
func agentRequired(t *testing.T, a *nodeAgent) {
	validate(t, a.restart)
	s := begin(t)
	s.lan("lan", "10.11.89.0/24")
	pod := withNetworks("a", nil, "lan")
	pod.Annotations["required-plugins.noderesource.dev"] = `["devinfo-agent"]`
	t.Run("Away", func(t *testing.T) {
		a.away(t)
		s.create(pod)
		s.event("a", "devinfo-agent", "required")
		s.notRunning("a")
		s.create(withNetworks("b", nil, "lan"))
		s.has("container of a pod that does not require it", s.running("b"), files())
	})
	s.has("container once the agent is back", s.running("a"), files("net1"))
}

// validate adds the documented lines to the runtime's configuration until the end of the test. restart restarts the runtime.
func validate(t *testing.T, restart func(t *testing.T, runtime string)) {
	t.Helper()
	section := "[plugins.'io.containerd.nri.v1.nri'.default_validator]"
	runtime := containerRuntime(t)
	if runtime == "crio" {
		section = "[crio.nri.default_validator]"
	}
	lines := difftest.Block(t, filepath.Join(root, "docs"), "toml", section)
	config := configurationOf(t, runtime)
	file := filepath.Join(newDir(t), "runtime")
	difftest.Write(t, file, onNode(t, "cat", config)+"\n"+lines, 0o600)
	onNode(t, "mount", "--bind", file, config)
	t.Cleanup(func() {
		onNode(t, "umount", config)
		restart(t, runtime)
	})
	restart(t, runtime)
}

// restart kills the runtime, and waits until the agent is connected again.
func (a *nodeAgent) restart(t *testing.T, runtime string) {
	t.Helper()
	reconnected(t, runtime, func() string { return a.log(t) })
	a.well(t)
}

// reconnected kills the runtime, and waits until the program with this log is connected to it again.
func reconnected(t *testing.T, runtime string, log func() string) {
	t.Helper()
	connections := func() int { return strings.Count(log(), "container runtime connected") }
	before := connections()
	killOnNode(t, runtime)
	eventually(t, limit, func() error {
		if connections() == before {
			return errors.New("the program is not connected to the container runtime again")
		}
		return nil
	})
}

// configurationOf returns the configuration file of a running program.
func configurationOf(t *testing.T, program string) string {
	t.Helper()
	processes := strings.Fields(onNode(t, "pidof", program)) // newest first, and the newest may be a child
	words := strings.Split(onNode(t, "cat", "/proc/"+processes[len(processes)-1]+"/cmdline"), "\x00")
	for n, word := range words {
		if word == "--config" {
			return words[n+1]
		}
	}
	t.Fatalf("%s has no --config: %q", program, words)
	return ""
}

// bothAgents runs cni-dra-driver beside devinfo-agent, and a pod with a network of each. CDI mounts the claim's file
// below the directory that the agent mounts.
func bothAgents(t *testing.T, _ *nodeAgent) {
	startProcess(t)
	s := begin(t)
	s.lan("lan", "10.11.93.0/24")
	claimed := s.macvlan("10.11.94.0/24", map[string]any{"type": "devinfo", "capabilities": capability, "deviceInfo": declaredCard()})
	pod := withNetworks("a", nil, "lan")
	with := podWith("a", s.template(requests(request("lan", s.class("net9", claimed)))))
	pod.Spec.ResourceClaims, pod.Spec.Containers[0].Resources = with.Spec.ResourceClaims, with.Spec.Containers[0].Resources
	other := *with.Spec.Containers[0].DeepCopy()
	other.Name, other.Resources.Claims = "unclaimed", nil
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, other)
	pod.Spec.InitContainers[0].Command = []string{"/pod-view", "-once"}
	s.create(pod)
	s.attached("a", "net0", "lan", "net9", "10.11.94.")
	view := s.running("a")
	s.has("container with the claim", view, files("net1", "net9"))
	s.tells(view, "net1", cardInfo().Encode())
	s.tells(view, "net9", cardInfo().Encode())
	without := s.prints("a", "unclaimed")
	s.has("container without the claim", without, files("net1"))
	s.knows(without)
}
