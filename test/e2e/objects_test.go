//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
)

// A space is the namespace of one test, with the network classes that the test created.
type space struct {
	*testing.T
	ctx  context.Context
	name string
}

// begin creates a space with the objects in these manifests. The end of the test removes it, and fails the test if pods have
// left state on the node.
func begin(t *testing.T, manifests ...string) *space {
	t.Helper()
	s := &space{T: t, ctx: t.Context()}
	ns, err := cluster.client.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	must(t, err)
	s.name = ns.Name
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
		defer cancel()
		if t.Failed() {
			s.Log(shell(t, "kubectl -n "+s.name+" get pods,events 2>&1 || true"))
		}
		s.deletePods(ctx)
		if err := cluster.client.CoreV1().Namespaces().Delete(ctx, s.name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		clean(t)
	})
	for _, text := range manifests {
		s.apply(text)
	}
	return s
}

// deletePods deletes all pods, and waits until they no longer exist.
func (s *space) deletePods(ctx context.Context) {
	s.Helper()
	s.deletePodsWithin(ctx, 10*time.Minute, 1)
}

func (s *space) deletePodsWithin(ctx context.Context, limit time.Duration, graceSeconds int64) {
	s.Helper()
	options := metav1.DeleteOptions{GracePeriodSeconds: &graceSeconds}
	if err := cluster.client.CoreV1().Pods(s.name).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
		s.Error(err)
	}
	s.gone(ctx, limit)
}

// gone waits until no pod exists.
func (s *space) gone(ctx context.Context, limit time.Duration) {
	s.Helper()
	s.until(ctx, limit, func(pods []corev1.Pod) error {
		if len(pods) > 0 {
			return fmt.Errorf("%d pods are not gone", len(pods))
		}
		return nil
	})
}

// until waits until the pods of the space pass a check.
func (s *space) until(ctx context.Context, limit time.Duration, check func([]corev1.Pod) error) {
	s.Helper()
	eventually(s.T, limit, func() error {
		list, err := cluster.client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		return check(list.Items)
	})
}

// class creates a DeviceClass with a network; see opaque.
func (s *space) class(ifName string, config map[string]any) string {
	s.Helper()
	return s.classWhere("true", opaque(ifName, config))
}

// opaque returns the configuration {ifName, config} for a class or a claim. It leaves out an empty ifName and a nil
// config.
func opaque(ifName string, config map[string]any) resourceapi.DeviceConfiguration {
	parameters := map[string]any{}
	if ifName != "" {
		parameters["ifName"] = ifName
	}
	if config != nil {
		parameters["config"] = config
	}
	return opaqueWith(parameters)
}

func opaqueWith(parameters map[string]any) resourceapi.DeviceConfiguration {
	parameters["apiVersion"], parameters["kind"] = "cni.networking.x-k8s.io/v1alpha1", "CNIConfig"
	raw, err := json.Marshal(parameters)
	if err != nil {
		panic(err) // cannot happen with the maps of the tests
	}
	return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: raw}}}
}

// network returns a network with these plugins.
func (s *space) network(name string, plugins ...map[string]any) map[string]any {
	return map[string]any{"cniVersion": "1.0.0", "name": s.name + "-" + name, "plugins": plugins}
}

// on returns a network with these plugins. The first one assigns addresses of the subnet.
func (s *space) on(subnet string, plugins ...map[string]any) map[string]any {
	plugins[0]["ipam"] = map[string]any{"type": "host-local", "ranges": [][]map[string]any{{{"subnet": subnet}}}}
	return s.network(strings.NewReplacer(".", "-", "/", "-").Replace(subnet), plugins...)
}

// macvlan returns a network with a macvlan on the nodes' interface, followed by other plugins.
func (s *space) macvlan(subnet string, then ...map[string]any) map[string]any {
	first := map[string]any{"type": "macvlan", "master": cluster.master, "mode": "bridge"}
	return s.on(subnet, append([]map[string]any{first}, then...)...)
}

// template creates a ResourceClaimTemplate.
func (s *space) template(spec resourceapi.ResourceClaimSpec) string {
	s.Helper()
	t := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}}
	t, err := cluster.client.ResourceV1().ResourceClaimTemplates(s.name).Create(s.ctx, t, metav1.CreateOptions{})
	must(s.T, err)
	return t.Name
}

// request returns a request for one device of a class.
func request(name, class string) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}
}

func requests(r ...resourceapi.DeviceRequest) resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: r}}
}

// pod creates a pod with a claim of each template. The pod's names for them are net0, net1 and so on.
func (s *space) pod(name string, templates ...string) {
	s.Helper()
	s.create(podWith(name, templates...))
}

func (s *space) create(pod *corev1.Pod) *corev1.Pod {
	s.Helper()
	made, err := cluster.client.CoreV1().Pods(s.name).Create(s.ctx, pod, metav1.CreateOptions{})
	must(s.T, err)
	return made
}

// podWith returns a pod with a claim of each template.
func podWith(name string, templates ...string) *corev1.Pod {
	second := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &second,
			Containers:                    []corev1.Container{{Name: "view", Image: cluster.image, Command: []string{"/pod-view"}}},
		},
	}
	for n := range templates {
		claim := fmt.Sprintf("net%d", n)
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimTemplateName: &templates[n]})
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: claim})
	}
	return pod
}

// running waits until the container runs, and returns its view.
func (s *space) running(name string) *view {
	s.Helper()
	var v *view
	eventually(s.T, 3*time.Minute, func() error {
		pod, err := cluster.client.CoreV1().Pods(s.name).Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
		}
		v, err = s.printed(name, "")
		return err
	})
	for _, p := range v.Problems {
		s.Errorf("pod %s: %s", name, p)
	}
	return v
}

// view is the output of pod-view.
type view struct {
	Interfaces []struct {
		Name, MAC string
		Addresses []string
	}
	Claims      map[string]*v1beta1.DeviceMetadata
	DeviceInfo  map[string]json.RawMessage
	Environment map[string]string
	SocketDirs  []string
	Nodes       []string
	Problems    []string
}

// printed returns the view that a container of a pod has printed. container "" means the only one. In CRI-O's logs,
// warnings of runc may precede it.
func (s *space) printed(pod, container string) (*view, error) {
	log, err := cluster.client.CoreV1().Pods(s.name).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(s.ctx)
	if err != nil {
		return nil, err
	}
	v := new(view)
	if err := json.Unmarshal(log[max(bytes.IndexByte(log, '{'), 0):], v); err != nil {
		return nil, fmt.Errorf("a container says %q: %w", log, err)
	}
	return v, nil
}

// prints waits until a container of a pod has printed its view, and returns it.
func (s *space) prints(pod, container string) (v *view) {
	s.Helper()
	eventually(s.T, 3*time.Minute, func() (err error) {
		v, err = s.printed(pod, container)
		return err
	})
	return v
}

func (s *space) get(pod string) *corev1.Pod {
	s.Helper()
	p, err := cluster.client.CoreV1().Pods(s.name).Get(s.ctx, pod, metav1.GetOptions{})
	must(s.T, err)
	return p
}

// claims returns the claims that were created for a pod, by the pod's names for them.
func (s *space) claims(pod string) map[string]*resourceapi.ResourceClaim {
	s.Helper()
	all := map[string]*resourceapi.ResourceClaim{}
	for _, st := range s.get(pod).Status.ResourceClaimStatuses {
		claim, err := cluster.client.ResourceV1().ResourceClaims(s.name).Get(s.ctx, *st.ResourceClaimName, metav1.GetOptions{})
		must(s.T, err)
		all[st.Name] = claim
	}
	return all
}

// delete deletes a pod, and waits until it no longer exists.
func (s *space) delete(pod string) {
	s.Helper()
	pods := cluster.client.CoreV1().Pods(s.name)
	must(s.T, pods.Delete(s.ctx, pod, metav1.DeleteOptions{}))
	eventually(s.T, 3*time.Minute, func() error {
		if _, err := pods.Get(s.ctx, pod, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(fmt.Errorf("pod %s is not gone", pod), err)
		}
		return nil
	})
}

// event waits for an event of a pod that contains all texts.
func (s *space) event(pod string, texts ...string) {
	s.Helper()
	eventually(s.T, 3*time.Minute, func() error {
		list, err := cluster.client.CoreV1().Events(s.name).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			text := e.Reason + ": " + e.Message
			if containsAll(text, texts) {
				return nil
			}
			seen = append(seen, text)
		}
		return fmt.Errorf("no event of %s has %q:\n%s", pod, texts, strings.Join(seen, "\n"))
	})
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
