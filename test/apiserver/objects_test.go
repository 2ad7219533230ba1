package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/status"
)

const (
	driver    = "cni.dra.networking.x-k8s.io"
	namespace = "cni-dra-driver" // the agent's namespace and service account
	node      = "node-a"         // the agent's node
	other     = "node-b"
)

// install creates the objects in deploy/ except the DaemonSet and some other files. It also creates two nodes.
func (p *controlPlane) install() error {
	for _, file := range []string{"namespace.yaml", "rbac.yaml", "admission.yaml", "deviceclass.yaml"} {
		data, err := os.ReadFile(filepath.Join("../../deploy/cni-dra-driver", file))
		if err != nil {
			return err
		}
		if err := p.create(data); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return p.create([]byte("{apiVersion: v1, kind: Node, metadata: {name: " + node + "}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: " + other + "}}"))
}

// create creates the objects in YAML documents.
func (p *controlPlane) create(data []byte) error {
	dyn, err := dynamic.NewForConfig(p.Admin)
	if err != nil {
		return err
	}
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return err
		}
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		if _, err := dyn.Resource(plural).Namespace(object.GetNamespace()).Create(context.Background(), &object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			return err
		}
	}
	return nil
}

// account returns a client with a token of a service account. The token is bound to a node unless node is "".
func (p *controlPlane) account(t *testing.T, namespace, name, node string) kubernetes.Interface {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		n, err := p.Client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		must(t, err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: n.Name, UID: n.UID}
	}
	token, err := p.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, request, metav1.CreateOptions{})
	must(t, err)
	config := rest.AnonymousClientConfig(p.Admin)
	config.BearerToken, config.QPS, config.Burst = token.Status.Token, 1000, 1000
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

// agent returns a client with the rights of the agent on node.
func (p *controlPlane) agent(t *testing.T) kubernetes.Interface {
	t.Helper()
	return p.account(t, namespace, namespace, node)
}

// bound creates a service account with the rights of a ClusterRole. It returns a client with a token of this account
// that is bound to the agent's node.
func (p *controlPlane) bound(t *testing.T, namespace, name, role string) kubernetes.Interface {
	t.Helper()
	must(t, p.create(fmt.Appendf(nil, `{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: %[1]s, name: %[2]s}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %[2]s},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[3]s}, subjects: [{kind: ServiceAccount, namespace: %[1]s, name: %[2]s}]}`, namespace, name, role)))
	return p.account(t, namespace, name, node)
}

// without returns a client with the agent's rights except one verb on one resource.
func (p *controlPlane) without(t *testing.T, verb, resource string) kubernetes.Interface {
	t.Helper()
	role, err := p.Client.RbacV1().ClusterRoles().Get(t.Context(), namespace, metav1.GetOptions{})
	must(t, err)
	less := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "less-"}}
	dropped := false
	for _, rule := range role.Rules {
		if n := slices.Index(rule.Verbs, verb); n >= 0 && slices.Contains(rule.Resources, resource) {
			rule.Verbs, dropped = slices.Delete(slices.Clone(rule.Verbs), n, n+1), true
		}
		if len(rule.Verbs) > 0 {
			less.Rules = append(less.Rules, rule)
		}
	}
	if !dropped {
		t.Fatalf("%s %s is not in %v", verb, resource, role.Rules)
	}
	less, err = p.Client.RbacV1().ClusterRoles().Create(t.Context(), less, metav1.CreateOptions{})
	must(t, err)
	client := p.bound(t, namespace, less.Name, less.Name)
	for { // until the role is in effect
		_, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err == nil {
			return client
		}
		if !apierrors.IsForbidden(err) || t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A share is a device that is allocated for a request.
type share struct {
	request, driver, device string
	id                      types.UID // "" = not shared
}

// ours returns a share of the driver's only device.
func ours(request string, id types.UID) share { return share{request, driver, "cni", id} }

// claim creates a claim, allocates it for the agent's node, and reserves it for a pod. The end of the test deletes
// it.
func (p *controlPlane) claim(t *testing.T, name string, shares ...share) *resourceapi.ResourceClaim {
	t.Helper()
	claims := p.Client.ResourceV1().ResourceClaims("default")
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, s := range shares {
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: s.request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "cni.networking.x-k8s.io"},
		})
	}
	c, err := claims.Create(t.Context(), c, metav1.CreateOptions{})
	must(t, err)
	// The test may have deleted it.
	t.Cleanup(func() { _ = claims.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	allocation := &resourceapi.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	for _, s := range shares {
		result := resourceapi.DeviceRequestAllocationResult{Request: s.request, Driver: s.driver, Pool: node, Device: s.device}
		if s.id != "" {
			result.ShareID = &s.id
		}
		allocation.Devices.Results = append(allocation.Devices.Results, result)
	}
	c.Status.Allocation = allocation
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "demo", UID: "680f0a77-8d0b-4e21-8599-62581e335ed6"}}
	c, err = claims.UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
	must(t, err)
	return c
}

// devices returns the devices in the present status of a claim.
func (p *controlPlane) devices(t *testing.T, c *resourceapi.ResourceClaim) []resourceapi.AllocatedDeviceStatus {
	t.Helper()
	return p.get(t, c).Status.Devices
}

func (p *controlPlane) get(t *testing.T, c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	t.Helper()
	now, err := p.Client.ResourceV1().ResourceClaims(c.Namespace).Get(t.Context(), c.Name, metav1.GetOptions{})
	must(t, err)
	return now
}

func addresses(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("10.0.0.%d/8", i))
	}
	return list
}

// The API server encodes the data again and measures the result. If one field is too long, it refuses the whole
// status.
func TestServerAcceptsLargestStatus(t *testing.T) {
	p := server(t)
	agent := p.agent(t)
	c := p.claim(t, "fits", ours("net", one))
	for name, result := range map[string]string{
		"10 KiB":     `{"cniVersion":"1.0.0","a":"` + strings.Repeat("x", 10240-29) + `"}`,
		"escapes":    `{"cniVersion":"1.0.0","a":"` + strings.Repeat("<", 1700) + `"}`,
		"more":       `{"cniVersion":"1.0.0","a":"` + strings.Repeat("&\u2028\u00e9", 700) + `"}`,
		"numbers":    `{"cniVersion":"1.0.0","a":[1e3,0.10,12345678901234567890,-0]}`,
		"routes":     `{"cniVersion":"1.0.0","routes":[` + strings.TrimSuffix(strings.Repeat(`{"dst":"10.0.0.0/8"},`, 400), ",") + `]}`,
		"an IP list": `{"cniVersion":"1.0.0","ips":[{"address":"` + strings.Join(append([]string{"::ffff:10.0.0.1/104", "FD00::1/64"}, addresses(20)...), `"},{"address":"`) + `"}]}`,
		"128 bytes":  `{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"/a","mac":"` + strings.Repeat("m", 128) + `"}]}`,
	} {
		network, _, err := metadata.NetworkData(json.RawMessage(result), "net1", "/a")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := deviceOf(one, result, network, metav1.Condition{Status: metav1.ConditionTrue, Reason: "NetworkInterfaceReady"})
		if s.Data == nil {
			t.Errorf("%s: there is no data", name)
		}
		if err := status.Apply(t.Context(), agent, report(c, s)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
