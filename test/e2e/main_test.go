//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	driver = "cni.dra.networking.x-k8s.io"
	system = "cni-dra-driver" // namespace, DaemonSet and service account
)

// cluster is the cluster of the tests.
var cluster struct {
	client     kubernetes.Interface
	nads       dynamic.NamespaceableResourceInterface // NetworkAttachmentDefinitions
	kubeconfig string
	kit        string   // E2E_CLUSTER; "" = an existing cluster
	node       []string // command that runs a command on the node; empty = not available
	master     string   // interface of the nodes
	image      string   // image of pod-view
	card       string   // PCI address of the node's network card: findCard
	killed     bool     // a program on the node was killed since the last check for leftovers
}

func TestMain(m *testing.M) {
	if pools := os.Getenv(poolsVariable); pools != "" {
		fmt.Fprintln(os.Stderr, "e2e: device plugin:", servePools(pools))
		os.Exit(1)
	}
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func setUp() error {
	cluster.master = cmp.Or(os.Getenv("E2E_MASTER"), "eth0")
	cluster.image = cmp.Or(os.Getenv("E2E_IMAGE"), "cluster.local/pod-view:1")
	cluster.node = strings.Fields(os.Getenv("E2E_NODE"))
	cluster.kubeconfig = os.Getenv("KUBECONFIG")
	if cluster.kubeconfig == "" {
		kit := os.Getenv("E2E_CLUSTER")
		if kit == "" {
			return fmt.Errorf("set KUBECONFIG, or E2E_CLUSTER to a program that makes a cluster: see go doc ./test/e2e")
		}
		var err error
		if cluster.kit, err = filepath.Abs(kit); err != nil {
			return err
		}
		cmd := exec.Command(cluster.kit, "up")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s up: %w", kit, err)
		}
		cluster.kubeconfig = strings.TrimSpace(string(out))
		if out, err := exec.Command(cluster.kit, "image", "pod-view", filepath.Join(root, "bin/pod-view")).CombinedOutput(); err != nil {
			return fmt.Errorf("%s image pod-view: %w: %s", kit, err, out)
		}
		cluster.node = []string{cluster.kit, "node"}
	}
	config, err := clientcmd.BuildConfigFromFlags("", cluster.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100
	if cluster.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	cluster.nads = client.Resource(schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"})
	_, err = cluster.client.ResourceV1().DeviceClasses().List(context.Background(), metav1.ListOptions{})
	return err
}

// scenarios test the driver. All run with the driver as a process. Those that depend on its mounts, rights or
// roll-outs also run with the DaemonSet.
var scenarios = []struct {
	name      string
	run       func(*testing.T, *agent)
	daemonSet bool
}{
	{"ContainerGetsVhostUserSocket", vhostUserPort, true},
	{"ForbiddenClaimIsRefusedWithReason", forbidden, true},
	{"PodWithFailedNetworkDoesNotStartButCanBeDeleted", givenUp, false},
	{"StoppedSandboxIsReplaced", stopped, true},
	{"SlowNetworkHoldsNoOtherPod", slowNetwork, true},
	{"JobRunsOverSlowNetworks", jobOverSlowNetworks, true},
	{"SlowEndHoldsNoOtherPod", slowEnd, false},
	{"RuntimeCanRequireDriver", driverRequired, false},
	{"ContainerIsToldOfItsOwnRequests", eachItsOwn, false},
	{"SandboxCreatedWithoutDriverGetsNetworkLater", unheard, false},
	{"KilledDriverLosesNoAttachment", killAgent, true},
	{"PodWaitsForDriver", waits, true},
	{"KilledRuntimeLosesNoAttachment", killRuntime, true},
	{"KilledKubeletLosesNoAttachment", killKubelet, false},
	{"HundredPodsLeaveNoState", hundred, false},
}

func TestDriverAsProcess(t *testing.T) {
	needsKit(t, "the driver is installed on that of KUBECONFIG")
	runAll(t, startProcess(t), false)
}

func TestDriverAsDaemonSet(t *testing.T) {
	a := daemonSet(t)
	runAll(t, a, cluster.kit != "") // only these tests run in an existing cluster
	if cluster.kit != "" {
		play(t, a, a.explain, []scenario[*agent]{{"DriverIsRemovedAfterPodsWithClaims", driverRemoved}})
	}
}

func runAll(t *testing.T, a *agent, short bool) {
	var list []scenario[*agent]
	for _, s := range scenarios {
		if !short || s.daemonSet {
			list = append(list, scenario[*agent]{s.name, s.run})
		}
	}
	play(t, a, a.explain, list)
}

// A scenario is a test on a prepared node.
type scenario[N any] struct {
	name string
	run  func(*testing.T, N)
}

// play runs scenarios. If one fails it calls explain to log details.
func play[N any](t *testing.T, n N, explain func(*testing.T), list []scenario[N]) {
	for _, s := range list {
		if ok := t.Run(s.name, func(t *testing.T) { s.run(t, n) }); !ok {
			explain(t)
		}
	}
}
