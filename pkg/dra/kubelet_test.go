package dra_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/test/difftest"
)

const driverName = "cni.dra.networking.x-k8s.io"

// apiServer returns a fake API server with these objects. mutate changes each ResourceSlice before it is stored.
func apiServer(mutate func(*resourceapi.ResourceSlice), objects ...runtime.Object) *fake.Clientset {
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

// startKubelet starts the rig's agent as a DRA plugin until the test ends.
func (r *rig) startKubelet(client *fake.Clientset, limit int) *dra.Kubelet {
	r.t.Helper()
	agent, t := r.newAgent(), r.t
	k, err := dra.StartKubelet(context.Background(), agent, dra.KubeletOptions{
		Node: "node1", Client: client, PluginDir: r.dir, RegistrarDir: r.dir, Limit: limit, Metadata: !r.noMetadata,
		Withdraw: r.withdraw, Fatal: func(err error) { t.Error(err) },
	})
	must(t, err)
	r.run(agent, k.Stop)
	return k
}

// prepareByKubelet prepares claims through the kubelet's API and returns the responses by UID.
func (r *rig) prepareByKubelet(claims ...*resourceapi.ResourceClaim) map[string]*drapb.NodePrepareResourceResponse {
	r.t.Helper()
	all := r.askToPrepare(claims...)
	for uid, a := range all {
		if a.GetError() != "" {
			r.t.Fatalf("%s: %s", uid, a.Error)
		}
	}
	return all
}

// askToPrepare is prepareByKubelet, but the responses may have errors.
func (r *rig) askToPrepare(claims ...*resourceapi.ResourceClaim) map[string]*drapb.NodePrepareResourceResponse {
	r.t.Helper()
	plugin, references := r.callAsKubelet(claims)
	answer, err := plugin.NodePrepareResources(r.t.Context(), &drapb.NodePrepareResourcesRequest{Claims: references})
	must(r.t, err)
	return answer.Claims
}

// unprepareByKubelet unprepares claims through the kubelet's API.
func (r *rig) unprepareByKubelet(claims ...*resourceapi.ResourceClaim) {
	r.t.Helper()
	plugin, references := r.callAsKubelet(claims)
	answer, err := plugin.NodeUnprepareResources(r.t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: references})
	must(r.t, err)
	for uid, a := range answer.Claims {
		difftest.Same(r.t, uid, a.GetError(), "")
	}
}

// callAsKubelet returns the plugin of the kubelet's API, and references to claims.
func (r *rig) callAsKubelet(claims []*resourceapi.ResourceClaim) (plugin drapb.DRAPluginClient, references []*drapb.Claim) {
	r.t.Helper()
	for _, c := range claims {
		references = append(references, &drapb.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return drapb.NewDRAPluginClient(dial(r.t, filepath.Join(r.dir, "dra.sock"))), references
}

func dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestNodePublishesSharedSoftwareDevice(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 7} {
		client := apiServer(nil)
		newRig(t).startKubelet(client, limit)
		want := resourceapi.Device{Name: "cni", AllowMultipleAllocations: new(true)}
		if limit > 0 {
			one := resource.MustParse("1")
			want.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"attachments": {
				Value: resource.MustParse("7"), RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: &one, ValidValues: []resource.Quantity{one}},
			}}
		}
		difftest.Equal(t, waitDevices(t, client, "cni")["cni"], want)
	}
}

// dropSharingFields removes the fields that servers without DRAConsumableCapacity do not know.
func dropSharingFields(slice *resourceapi.ResourceSlice) {
	for n := range slice.Spec.Devices {
		slice.Spec.Devices[n].AllowMultipleAllocations = nil
		for name, c := range slice.Spec.Devices[n].Capacity {
			c.RequestPolicy = nil
			slice.Spec.Devices[n].Capacity[name] = c
		}
	}
}

func TestRegisteredReportsAnswerOfKubelet(t *testing.T) {
	r := newRig(t)
	k, dir := r.startKubelet(apiServer(nil), 0), r.dir
	says(t, k.Registered(), dir)
	registration := registerapi.NewRegistrationClient(dial(t, filepath.Join(dir, driverName+"-reg.sock")))
	info, err := registration.GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil || info.Name != driverName || info.Endpoint != filepath.Join(dir, "dra.sock") {
		t.Fatalf("got %v, %v", info, err)
	}
	_, _ = registration.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "too old"})
	says(t, k.Registered(), "too old")
	_, err = registration.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
	must(t, err, k.Registered())
}

func TestRejectedClaimDoesNotAffectAnother(t *testing.T) {
	r := newRig(t)
	good, bad := ownClaim("good", "cni", network(`{"type":"x"}`)), ownClaim("bad", "cni", network(`{"type":"x"}`))
	raw := &bad.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	*raw = bytes.Replace(*raw, []byte("cni.networking.x-k8s.io/v1alpha1"), []byte("no-such-group/v1"), 1)
	r.startKubelet(apiServer(nil, good, bad), 0)
	all := r.askToPrepare(bad, good)
	difftest.Contains(t, all["bad"].Error, "no-such-group")
	if a := all["good"]; a.Error != "" || len(a.Devices) != 1 || len(a.Devices[0].CdiDeviceIds) != 2 { // the gate and the metadata
		t.Errorf("got %v", a)
	}
	r.unprepareByKubelet(bad, good)
}

// The kubelet does not prepare a prepared claim again, so its response must have the error.
func TestPrepareFailsIfMetadataCannotBeWritten(t *testing.T) {
	for _, full := range []string{"dra-device-metadata", "cdi"} {
		r, claim := newRig(t), claimIn("", "net", "u1", "pod", netRequest{"r", "net1", ""})
		r.options.Exec = newPlugins()
		r.startKubelet(apiServer(nil, claim), 0)
		must(t, os.WriteFile(filepath.Join(r.dir, full), nil, 0o644)) // fails the write, like a full disk
		difftest.Contains(t, r.askToPrepare(claim)["u1"].GetError(), filepath.Join(r.dir, full))
		must(t, os.Remove(filepath.Join(r.dir, full)))
		difftest.Same(t, full, len(r.prepareByKubelet(claim)["u1"].Devices[0].CdiDeviceIds), 2)
		must(t, r.runPod(r.sandbox("s1", "pod")))
	}
}

func TestRemovedCDISpecsOfMetadataAreRestored(t *testing.T) {
	r, claim := newRig(t), claimIn("", "net", "u1", "pod", netRequest{"r", "net1", ""})
	r.options.Exec = newPlugins()
	clear := func() {
		for _, name := range r.files("cdi") {
			must(t, os.Remove(filepath.Join(r.dir, "cdi", name)))
		}
	}
	both := func() bool { return len(r.files("cdi")) == 2 } // the gate and the metadata
	r.startKubelet(apiServer(nil, claim), 0)
	r.prepareByKubelet(claim)
	must(t, r.runPod(r.sandbox("s1", "pod")))
	clear()
	difftest.Eventually(t, "both specs are written again", both)
	r.startKubelet(apiServer(nil, claim), 0) // the next process first has to read the specs
	clear()
	difftest.Eventually(t, "both specs are written again by the next process", both)
	clear()
	r.unprepareByKubelet(claim)
	time.Sleep(10 * r.options.Sweep)
	r.expectFiles("cdi", 0)
}

func TestDriverStartsDespiteUnreadableMetadataSpecs(t *testing.T) {
	r := newRig(t)
	spec := func(claim string) string { return filepath.Join(r.dir, "cdi", driverName+"_metadata_"+claim+"_r.json") }
	must(t, os.MkdirAll(spec("directory"), 0o755))
	must(t, os.Symlink("nowhere", spec("link")))
	must(t, os.WriteFile(spec("large"), make([]byte, 2<<20), 0o644))
	r.startKubelet(apiServer(nil), 0)
}

// The library serves the sockets in goroutines, which may run only after Stop. test/apiserver checks that a real API server
// returns the error for a list of NUMA nodes.
func TestOnlyLastingErrorsAreFatal(t *testing.T) {
	slice := schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceSlice"}
	refused := func(attribute string) error {
		path := field.NewPath("spec", "devices").Index(0).Child("attributes").Key(attribute)
		invalid := apierrors.NewInvalid(slice, "s", field.ErrorList{field.Required(path, "exactly one value must be specified")})
		return fmt.Errorf("create: %w", errors.Join(kubeletplugin.ErrRecoverable, invalid))
	}
	agent := newRig(t).start()
	for _, test := range []struct {
		err   error
		fatal []string // parts of the error; nil = the process goes on
	}{
		{fmt.Errorf("serve: %w", grpc.ErrServerStopped), nil},
		{os.ErrPermission, []string{"publish: permission denied"}},
		{refused("devinfo-cni.io/mtu"), nil},
		{refused("resource.kubernetes.io/numaNode"), []string{"publish: create: ", "DRAListTypeAttributes", "--numa-node=scalar"}},
	} {
		var fatal []error
		k := dra.Unstarted(agent, dra.KubeletOptions{Fatal: func(err error) { fatal = append(fatal, err) }})
		k.HandleError(t.Context(), test.err, "publish")
		if len(fatal) > 1 || (len(fatal) == 1) != (test.fatal != nil) {
			t.Errorf("%v: fatal %v", test.err, fatal)
		}
		if test.fatal != nil {
			says(t, errors.Join(fatal...), test.fatal...)
		}
	}
}
