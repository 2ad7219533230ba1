package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/status"
)

// ReadClaim returns a function for [claim.Options.Read] that reads claims from the API server.
func ReadClaim(client kubernetes.Interface) func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
	return func(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
		claim, err := client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if exists, err := status.Exists(claim, ref.UID, err); !exists {
			return nil, err
		}
		return claim, nil
	}
}

// ClaimsOf returns a function for [claim.Options.ClaimsOf] that reads pods from the API server. The client needs
// [Limit].
func ClaimsOf(client kubernetes.Interface) func(context.Context, state.Pod) ([]string, error) {
	return func(ctx context.Context, of state.Pod) (names []string, err error) {
		pod, err := client.CoreV1().Pods(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if errors.As(err, new(*http.MaxBytesError)) {
			return nil, fmt.Errorf("the pod has more than %d bytes", podLimit)
		}
		if exists, err := status.Exists(pod, types.UID(of.UID), err); !exists {
			return nil, err
		}
		for name := range resourceclaim.PodClaims(pod) {
			names = append(names, name)
		}
		return names, nil
	}
}

// podLimit is the size of the largest pod that the driver reads. Users can create larger ones.
const podLimit = 1 << 20

// An API server ends a request after a minute, and a watch when the client asks for it, which is after ten at most. What is
// between it and the client may not answer at all, and most requests of Kubernetes' libraries have no deadline.
const requestLimit, watchLimit = 90 * time.Second, 15 * time.Minute

// Limit is a wrapper for the transport of a client. It ends requests that are not answered, and reads at most 1 MiB of the
// answer to a request for a pod.
func Limit(next http.RoundTripper) http.RoundTripper { return limited{next} }

type limited struct{ next http.RoundTripper }

func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	limit := requestLimit
	if request.URL.Query().Has("watch") {
		limit = watchLimit
	}
	ctx, cancel := context.WithTimeout(request.Context(), limit)
	answer, err := l.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = body{answer.Body, cancel}
	if strings.Contains(request.URL.Path, "/pods/") {
		answer.Body = http.MaxBytesReader(nil, answer.Body, podLimit)
	}
	return answer, nil
}

type body struct {
	io.ReadCloser
	end context.CancelFunc
}

func (b body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// ReadLabels returns a function that reads the labels of a Node object from the API server's cache.
func ReadLabels(client kubernetes.Interface, name string) func(context.Context) (map[string]string, error) {
	return func(ctx context.Context) (map[string]string, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
		if err = status.Answered(node, err); err != nil {
			return nil, err
		}
		return node.Labels, nil
	}
}

// PostNotices returns a function that creates an Event for each notice and does not wait for the API server.
// Failures are only logged, because the claim's status has the same information.
func PostNotices(client kubernetes.Interface, driver, node string, log *slog.Logger) func(claim.Notice) {
	const longest, rest = 1024, "..." // an Event's note has at most 1024 bytes
	node = node[:min(len(node), 128)] // an Event's reportingInstance has at most 128
	return func(n claim.Notice) {
		if len(n.Text) > longest {
			n.Text = strings.ToValidUTF8(n.Text[:longest-len(rest)], "") + rest // do not split a character
		}
		event := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: n.Pod.Namespace, GenerateName: n.Pod.Name + "-"},
			EventTime:  metav1.NowMicro(), ReportingController: driver, ReportingInstance: node,
			Type: corev1.EventTypeWarning, Reason: n.Reason, Action: "AttachNetworks", Note: n.Text,
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.Pod.Namespace, Name: n.Pod.Name, UID: types.UID(n.Pod.UID)},
		}
		go func() {
			made, err := client.EventsV1().Events(n.Pod.Namespace).Create(context.Background(), event, metav1.CreateOptions{})
			if err = status.Answered(made, err); err != nil {
				log.Warn("cannot create an Event", "pod", n.Pod, "error", err)
			}
		}()
	}
}

// Shared returns the device that any number of claims share. It needs DRAConsumableCapacity, which is on by
// default since Kubernetes 1.36. If limit is positive, at most limit claims can hold it at a time.
func Shared(limit int) []resourceapi.Device {
	device := resourceapi.Device{Name: devices.SoftwareDevice, AllowMultipleAllocations: new(true)}
	if limit > 0 {
		device.Capacity = inventory.OnePerClaim(int64(limit))
	}
	return []resourceapi.Device{device}
}

// RefusesLists reports whether err means that the API server has dropped the list of [inventory.NUMANode] and then
// refused the attribute, because it has no value.
func RefusesLists(err error) bool {
	return slices.ContainsFunc(status.Causes(err), func(c metav1.StatusCause) bool { return strings.Contains(c.Field, string(inventory.NUMANode)) })
}

// withdraw removes the node's ResourceSlices.
func (k *Kubelet) withdraw(ctx context.Context) {
	if err := removeSlices(ctx, k.options.Client, k.agent.Options.Driver, k.options.Node); err != nil && ctx.Err() == nil {
		k.agent.Options.Log.Error("cannot remove the node's ResourceSlices; the scheduler may still allocate its devices", "error", err)
	}
}

// publish publishes the current devices of the node. The first call waits until the API server can be reached.
func (k *Kubelet) publish(ctx context.Context) error {
	node := k.agent.Node
	var software []resourceapi.Device
	if node.Sharing() {
		software = Shared(k.options.Limit)
	}
	own, ok := node.Slices(ctx)
	if !ok {
		return nil
	}
	list := append([]inventory.Slice{{Devices: software}}, own...)
	if last := k.last.Swap(&list); last != nil && equality.Semantic.DeepEqual(*last, list) {
		return nil
	}
	pool := resourceslice.Pool{}
	for _, s := range list {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: s.Devices})
	}
	err := k.helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{k.options.Node: pool}})
	if err != nil {
		k.last.Store(nil)
	}
	return err
}
