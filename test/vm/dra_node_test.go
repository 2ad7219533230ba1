//go:build vm

package vm_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Where things are on a node, by the defaults of everybody.
const (
	driverName   = "cni.dra.networking.x-k8s.io"
	pluginDir    = "/var/lib/kubelet/plugins/" + driverName
	registrarDir = "/var/lib/kubelet/plugins_registry"
	podResources = "/var/lib/kubelet/pod-resources/kubelet.sock"
	nriSocket    = "/var/run/nri/nri.sock"
	cdiDir       = "/var/run/cdi"
	nodeSettings = "/etc/cni/devinfo/node.json"
)

// A draNode is the machine as a node of a cluster: the program cni-dra-driver as a process,
// with its flags and paths as everywhere, the real NRI adaptation of a container runtime,
// and what the kubelet does with the program's sockets. The API server is a [server].
type draNode struct {
	t *testing.T
	*server
	runtime *adaptation.Adaptation
	synced  chan struct{}              // the agent has connected to the runtime
	running map[string]*api.PodSandbox // that the runtime has, by ID; of no use to others while it is synchronized
	rules   string                     // file
	agent   *exec.Cmd                  // nil = it does not run
}

// newDRANode starts the agent with these rules. At the end of the test nothing may be left
// of any claim.
func newDRANode(t *testing.T, rules string) *draNode {
	t.Helper()
	n := &draNode{t: t, server: newServer(t), synced: make(chan struct{}, 1), running: map[string]*api.PodSandbox{}}
	n.rules = filepath.Join(t.TempDir(), "devices.yaml")
	write(t, n.rules, rules)
	for _, dir := range []string{filepath.Dir(pluginDir), registrarDir, filepath.Dir(podResources), filepath.Dir(nriSocket), filepath.Dir(nodeSettings)} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	write(t, nodeSettings, `{"cdiDevices": ["*"]}`)
	t.Cleanup(func() { os.Remove(nodeSettings) })
	n.startRuntime()
	n.start()
	t.Cleanup(func() {
		if n.agent != nil {
			n.kill()
		}
		n.expectNothing()
		for _, dir := range []string{pluginDir, cdiDir, sriovDir} {
			os.RemoveAll(dir)
		}
	})
	return n
}

func (n *draNode) startRuntime() {
	n.t.Helper()
	list := func(ctx context.Context, tell adaptation.SyncCB) error {
		var pods []*api.PodSandbox
		for _, sandbox := range n.running {
			pods = append(pods, sandbox)
		}
		_, err := tell(ctx, pods, nil)
		n.synced <- struct{}{}
		return err
	}
	n.runtime = listenNRI(n.t, nriSocket, list)
	n.t.Cleanup(n.runtime.Stop)
	serveNoneGiven(n.t)
}

// noneGiven is a kubelet whose device plugins have given nothing away. It knows a pod, the
// driver's own: one that knows none is not believed at once.
type noneGiven struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (noneGiven) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{Name: "cni-dra-driver", Namespace: "cni-dra-driver"}}}, nil
}

// serveNoneGiven answers where the agent asks.
func serveNoneGiven(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", podResources)
	ok(t, "kubelet", err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, noneGiven{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop) // which removes the socket
}

// start starts the agent, and returns once runtime and kubelet are connected.
func (n *draNode) start() {
	n.t.Helper()
	n.agent = exec.Command(plugins+"/cni-dra-driver", "--node-name="+nodeName, "--kubeconfig="+n.kubeconfig, "--devices="+n.rules,
		"--enable-device-metadata", "--del-patience=4s")
	n.agent.Stdout, n.agent.Stderr = n.t.Output(), n.t.Output()
	must(n.t, n.agent.Start())
	n.register()
	select {
	case <-n.synced:
		n.runtime.BlockPluginSync().Unblock() // it knows the agent only after that
	case <-time.After(patient):
		n.t.Fatal("the agent does not connect to the runtime")
	}
}

// in is the node in a subtest.
func (n *draNode) in(t *testing.T) *draNode {
	whole := n.t
	n.t = t
	t.Cleanup(func() { n.t = whole })
	return n
}

// kill ends the agent as a lack of memory does.
func (n *draNode) kill() {
	n.t.Helper()
	must(n.t, n.agent.Process.Kill())
	_ = n.agent.Wait()
	n.agent = nil
}

// restart kills the agent, and starts the next one.
func (n *draNode) restart() {
	n.t.Helper()
	n.kill()
	n.start()
}

// connect is a connection of the kubelet's, to one call.
func connect(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	return conn
}

// register does what the kubelet does with a socket in its directory of plugins.
func (n *draNode) register() {
	n.t.Helper()
	conn := connect(n.t, registrarDir+"/"+driverName+"-reg.sock")
	defer conn.Close()
	client := registerapi.NewRegistrationClient(conn)
	var info *registerapi.PluginInfo
	n.eventually("the agent answers the kubelet", patient, func() (ok bool) {
		var err error
		if n.agent.Process.Signal(syscall.Signal(0)) != nil {
			n.t.Fatal("the agent has ended")
		}
		info, err = client.GetInfo(n.t.Context(), &registerapi.InfoRequest{})
		conn.ResetConnectBackoff()
		return err == nil
	})
	if info.Type != registerapi.DRAPlugin || info.Name != driverName || info.Endpoint != pluginDir+"/dra.sock" {
		n.t.Fatalf("the agent says it is %v", info)
	}
	if _, err := client.NotifyRegistrationStatus(n.t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		n.t.Fatal(err)
	}
}

// plugin is the driver as the kubelet calls it.
func (n *draNode) plugin() (client drapb.DRAPluginClient, hangUp func() error) {
	n.t.Helper()
	conn := connect(n.t, pluginDir+"/dra.sock")
	return drapb.NewDRAPluginClient(conn), conn.Close
}

// expectNothing wants that no claim has left anything on the node.
func (n *draNode) expectNothing() {
	n.t.Helper()
	var left []string
	for _, pattern := range []string{
		pluginDir + "/state/*.json", pluginDir + "/cni/*", pluginDir + "/*metadata*/*", cdiDir + "/*", infoDir + "/*",
		stateDir + "/*/*@*", sriovDir + "/*-*", "/run/netns/*",
	} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	if len(left) > 0 {
		n.t.Errorf("left behind: %s", left)
	}
}
