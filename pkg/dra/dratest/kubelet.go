package dratest

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/test/difftest"
)

// Driver is the name of the driver.
const Driver = "cni.dra.networking.x-k8s.io"

// APIServer returns a fake API server with these objects. mutate changes each ResourceSlice before it is stored.
func APIServer(mutate func(*resourceapi.ResourceSlice), objects ...runtime.Object) *fake.Clientset {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "node-uid"}}
	client := fake.NewClientset(append(objects, node)...)
	stored := func(action clienttesting.Action) (bool, runtime.Object, error) {
		slice := action.(clienttesting.UpdateAction).GetObject().(*resourceapi.ResourceSlice)
		if action.GetVerb() == "create" {
			slice.Name, slice.UID = slice.GenerateName+"1", "uid"
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

// StartKubelet starts the rig's agent as a DRA plugin until the test ends.
func (r *Rig) StartKubelet(client *fake.Clientset, limit int) *dra.Kubelet {
	r.T.Helper()
	t := r.T
	var k *dra.Kubelet
	r.start(func(agent *dra.Agent) (hangUp func()) {
		var err error
		k, err = dra.StartKubelet(context.Background(), agent, dra.KubeletOptions{
			Node: "node1", Client: client, PluginDir: r.Dir, RegistrarDir: r.Dir, Limit: limit, Metadata: !r.NoMetadata,
			Withdraw: r.Withdraw, Fatal: func(err error) { t.Error(err) },
		})
		difftest.Must(t, err)
		return k.Stop
	})
	return k
}

// PrepareByKubelet prepares claims through the kubelet's API and returns the responses by UID.
func (r *Rig) PrepareByKubelet(claims ...*resourceapi.ResourceClaim) map[string]*drapb.NodePrepareResourceResponse {
	r.T.Helper()
	answers := r.AskToPrepare(claims...)
	for uid, a := range answers {
		difftest.Same(r.T, uid, a.GetError(), "")
	}
	return answers
}

// AskToPrepare is PrepareByKubelet for claims that may be refused.
func (r *Rig) AskToPrepare(claims ...*resourceapi.ResourceClaim) map[string]*drapb.NodePrepareResourceResponse {
	r.T.Helper()
	plugin, references := CallAsKubelet(r, claims)
	answer, err := plugin.NodePrepareResources(r.T.Context(), &drapb.NodePrepareResourcesRequest{Claims: references})
	difftest.Must(r.T, err)
	return answer.GetClaims()
}

// UnprepareByKubelet unprepares claims through the kubelet's API.
func (r *Rig) UnprepareByKubelet(claims ...*resourceapi.ResourceClaim) {
	r.T.Helper()
	plugin, references := CallAsKubelet(r, claims)
	answer, err := plugin.NodeUnprepareResources(r.T.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: references})
	difftest.Must(r.T, err)
	for uid, a := range answer.Claims {
		difftest.Same(r.T, uid, a.GetError(), "")
	}
}

// CallAsKubelet returns the plugin of the kubelet's API, and references to claims.
func CallAsKubelet(r *Rig, claims []*resourceapi.ResourceClaim) (plugin drapb.DRAPluginClient, references []*drapb.Claim) {
	r.T.Helper()
	for _, c := range claims {
		references = append(references, &drapb.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return drapb.NewDRAPluginClient(Dial(r.T, filepath.Join(r.Dir, "dra.sock"))), references
}

// Dial connects to a socket until the test ends.
func Dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	difftest.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// WaitDevices waits until exactly these devices are published.
func WaitDevices(t *testing.T, client *fake.Clientset, want ...string) (all map[string]resourceapi.Device) {
	t.Helper()
	WaitUntil(t, func() string {
		all = map[string]resourceapi.Device{}
		list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		difftest.Must(t, err)
		for _, s := range list.Items {
			for _, d := range s.Spec.Devices {
				all[d.Name] = d
			}
		}
		return gocmp.Diff(want, slices.Sorted(maps.Keys(all)))
	})
	return all
}

// StartOffering starts the rig's agent as a DRA plugin that offers the devices of a node.
func (r *Rig) StartOffering(client *fake.Clientset, n *Node) *dra.Agent {
	r.T.Helper()
	r.Options.DelMaxFailures = 2
	r.Options.Devices.Inventory, r.Options.Devices.Finder = n.Inventory(), n.Finder()
	r.StartKubelet(client, 0)
	return r.Agent
}

// MetadataFile returns the path of the metadata of a claim's request r, in the directory of a rig.
func MetadataFile(dir string, claim *resourceapi.ResourceClaim) string {
	return filepath.Join(dir, "dra-device-metadata", claim.Namespace+"_"+claim.Name, "r", "metadata.json")
}
