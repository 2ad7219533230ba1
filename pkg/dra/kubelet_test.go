package dra_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/cniconfig"
)

const driverName = "cni.dra.networking.x-k8s.io"

// server is an API server of objects that need no network; mutate changes ResourceSlices
// as they are stored.
func server(mutate func(*resourceapi.ResourceSlice), objects ...runtime.Object) *fake.Clientset {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "node-uid"}}
	client := fake.NewClientset(append(objects, node)...)
	stored := func(action clienttesting.Action) (bool, runtime.Object, error) {
		var slice *resourceapi.ResourceSlice
		switch a := action.(type) {
		case clienttesting.CreateActionImpl:
			slice = a.GetObject().(*resourceapi.ResourceSlice)
			slice.Name = slice.GenerateName + "1"
		case clienttesting.UpdateActionImpl:
			slice = a.GetObject().(*resourceapi.ResourceSlice)
		}
		if mutate != nil {
			mutate(slice)
		}
		return false, nil, nil
	}
	client.PrependReactor("create", "resourceslices", stored)
	client.PrependReactor("update", "resourceslices", stored)
	return client
}

// kubelet starts an agent's Kubelet in directories of its own.
func kubelet(t *testing.T, client *fake.Clientset, limit int, change ...func(*dra.Options)) (k *dra.Kubelet, dir string) {
	t.Helper()
	k, _, dir = kubeletOf(t, client, limit, change...)
	return k, dir
}

// kubeletOf also gives the agent.
func kubeletOf(t testing.TB, client *fake.Clientset, limit int, change ...func(*dra.Options)) (k *dra.Kubelet, agent *dra.Agent, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	options := dra.Options{
		Driver: driverName, Policy: cniconfig.Policy{Driver: driverName, Pool: "node1"}, Log: log,
		StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cni"), CDIDir: filepath.Join(dir, "cdi"),
		DeviceInfoDir: filepath.Join(dir, "info"), CNIBinDirs: []string{dir}, BootID: "b",
	}
	for _, f := range change {
		f(&options)
	}
	agent, err = dra.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Close() })
	k, err = dra.StartKubelet(t.Context(), agent, dra.KubeletOptions{
		Node: "node1", Client: client, PluginDir: dir, RegistrarDir: dir, Limit: limit, Metadata: true,
		Fatal: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); agent.Run(ctx) }()
	t.Cleanup(func() { k.Stop(); cancel(); <-done })
	return k, agent, dir
}

func dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// published waits for a ResourceSlice with those devices.
func published(t *testing.T, client *fake.Clientset, want []resourceapi.Device) {
	t.Helper()
	var diff string
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		diff = fmt.Sprintf("%d slices", len(list.Items))
		if len(list.Items) == 1 {
			if diff = cmp.Diff(want, list.Items[0].Spec.Devices); diff == "" {
				if pool := list.Items[0].Spec.Pool.Name; pool != "node1" {
					t.Errorf("pool %s", pool)
				}
				return
			}
		}
	}
	t.Error(diff)
}

func TestANodeOffersOneDeviceThatAllShare(t *testing.T) {
	yes := true
	for _, limit := range []int{0, 7} {
		client := server(nil)
		kubelet(t, client, limit)
		want := []resourceapi.Device{{Name: "cni", AllowMultipleAllocations: &yes}}
		if limit > 0 {
			one := resource.MustParse("1")
			want[0].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"attachments": {
				Value: resource.MustParse("7"), RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: &one, ValidValues: []resource.Quantity{one}},
			}}
		}
		published(t, client, want)
	}
}

// drop takes out of a slice what servers without DRAConsumableCapacity do not know.
func drop(slice *resourceapi.ResourceSlice) {
	for n := range slice.Spec.Devices {
		slice.Spec.Devices[n].AllowMultipleAllocations = nil
		for name, c := range slice.Spec.Devices[n].Capacity {
			c.RequestPolicy = nil
			slice.Spec.Devices[n].Capacity[name] = c
		}
	}
}

func TestAServerThatCannotShareGetsNumberedDevices(t *testing.T) {
	for limit, count := range map[int]int{0: 128, 5: 5, 1000: 128} {
		client := server(drop)
		cut := make(chan int, 1)
		kubelet(t, client, limit, func(o *dra.Options) { o.Metrics.Cut = func(n int) { cut <- n } })
		if limit > 128 {
			if n := <-cut; n != limit-128 {
				t.Errorf("%d are not offered", n)
			}
		}
		var want []resourceapi.Device
		for n := range count {
			want = append(want, resourceapi.Device{Name: fmt.Sprintf("cni-%d", n)})
		}
		published(t, client, want)
	}
}

func TestTheKubeletSaysWhetherItUsesThePlugin(t *testing.T) {
	k, dir := kubelet(t, server(nil), 0)
	if err := k.Registered(); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("before: %v", err)
	}
	registration := registerapi.NewRegistrationClient(dial(t, filepath.Join(dir, driverName+"-reg.sock")))
	info, err := registration.GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil || info.Name != driverName || info.Endpoint != filepath.Join(dir, "dra.sock") {
		t.Fatalf("got %v, %v", info, err)
	}
	_, _ = registration.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "too old"})
	if err := k.Registered(); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("refused: %v", err)
	}
	if _, err := registration.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Fatal(err)
	}
	if err := k.Registered(); err != nil {
		t.Errorf("registered: %v", err)
	}
}

func TestAClaimThatIsRefusedDoesNotHinderAnother(t *testing.T) {
	_, dir := kubelet(t, server(nil, allocated("bad", "no-such-group/v1", "net1"), allocated("good", "cni.networking.x-k8s.io/v1alpha1", "net2")), 0)
	plugin := drapb.NewDRAPluginClient(dial(t, filepath.Join(dir, "dra.sock")))
	claims := []*drapb.Claim{{Namespace: "ns", Name: "bad", Uid: "uid-bad"}, {Namespace: "ns", Name: "good", Uid: "uid-good"}}
	answer, err := plugin.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: claims})
	if err != nil {
		t.Fatal(err)
	}
	if text := answer.Claims["uid-bad"].Error; !strings.Contains(text, "no-such-group") {
		t.Errorf("the refusal names no rule: %q", text)
	}
	good := answer.Claims["uid-good"]
	if good.Error != "" || len(good.Devices) != 1 || len(good.Devices[0].CdiDeviceIds) != 2 { // the gate, and the metadata
		t.Errorf("got %v", good)
	}
	gone, err := plugin.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	if err != nil || gone.Claims["uid-bad"].Error+gone.Claims["uid-good"].Error != "" {
		t.Errorf("got %v, %v", gone, err)
	}
}

// allocated is a claim of one request, with the network from its class.
func allocated(name, apiVersion, ifName string) *resourceapi.ResourceClaim {
	raw := fmt.Sprintf(`{"apiVersion": %q, "kind": "CNIConfig", "ifName": %q, "config": {"cniVersion": "1.0.0", "name": "n", "type": "x"}}`, apiVersion, ifName)
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "c", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}},
		}}},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod", UID: "pod-uid"}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Request: "r", Driver: driverName, Pool: "node1", Device: "cni"}},
				Config: []resourceapi.DeviceAllocationConfiguration{{
					Source: resourceapi.AllocationConfigSourceClass,
					DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
						Driver: driverName, Parameters: runtime.RawExtension{Raw: []byte(raw)},
					}},
				}},
			}},
		},
	}
}
