package dra

import (
	"context"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/status"
)

// ReadClaim returns a function for [claim.Options.Read] that reads claims from the API server.
func ReadClaim(client kubernetes.Interface) func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
	return func(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
		claim, err := client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case status.Missing(err), err == nil && claim.UID != ref.UID:
			return nil, nil
		case err != nil:
			return nil, err
		}
		return claim, nil
	}
}

// ReadLabels returns a function that reads the labels of a Node object from the API server's cache.
func ReadLabels(client kubernetes.Interface, name string) func(context.Context) (map[string]string, error) {
	return func(ctx context.Context) (map[string]string, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		return node.Labels, nil
	}
}

// PostNotices returns a function that creates an Event for each notice and does not wait for the API server.
// Failures are only logged, because the claim's status has the same information.
func PostNotices(client kubernetes.Interface, driver, node string, log *slog.Logger) func(claim.Notice) {
	const patience, longest, rest = 30 * time.Second, 1024, "..." // an Event's note has at most 1024 bytes
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
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if _, err := client.EventsV1().Events(n.Pod.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
				log.Warn("cannot create an Event", "pod", n.Pod, "error", err)
			}
		}()
	}
}
