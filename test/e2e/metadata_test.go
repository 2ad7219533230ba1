//go:build e2e

package e2e

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/test/difftest"
)

// eachItsOwn creates a pod with an init container and two containers. Each names other requests of a template's claim
// and of a claim that the pod names directly, and is told of these only.
func eachItsOwn(t *testing.T, _ *agent) {
	s := begin(t)
	one := request("one", s.class("net1", s.macvlan("10.11.64.0/26")))
	two := request("two", s.class("net2", s.macvlan("10.11.64.64/26")))
	three := request("three", s.class("net3", s.macvlan("10.11.64.128/26")))
	direct := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "direct"}, Spec: requests(three)}
	_, err := cluster.client.ResourceV1().ResourceClaims(s.name).Create(s.ctx, direct, metav1.CreateOptions{})
	must(t, err)

	pod := podWith("a", s.template(requests(one, two)))
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "named", ResourceClaimName: &direct.Name})
	container := func(name string, claims ...corev1.ResourceClaim) corev1.Container {
		c := *pod.Spec.Containers[0].DeepCopy()
		c.Name, c.Resources.Claims = name, claims
		return c
	}
	early := container("early", corev1.ResourceClaim{Name: "net0", Request: "two"})
	early.Command = append(early.Command, "-once")
	pod.Spec.InitContainers = []corev1.Container{early}
	pod.Spec.Containers = []corev1.Container{
		container("first", corev1.ResourceClaim{Name: "net0", Request: "one"}),
		container("second", corev1.ResourceClaim{Name: "net0", Request: "two"}, corev1.ResourceClaim{Name: "named"}),
		container("none"),
	}
	s.create(pod)
	for name, want := range map[string][]string{
		"early":  {"resourceclaimtemplates/net0/two"},
		"first":  {"resourceclaimtemplates/net0/one"},
		"second": {"resourceclaims/direct/three", "resourceclaimtemplates/net0/two"},
		"none":   nil,
	} {
		v := s.prints("a", name)
		difftest.Equal(t, slices.Sorted(maps.Keys(v.Claims)), want)
	}
}
