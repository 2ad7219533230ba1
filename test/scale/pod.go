package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deviceOf is the name that a VF has in its slice.
func deviceOf(address string) string {
	return "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(address)
}

func nodeSelector(node string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}
}

// pod is one as a Deployment makes it, and its kubelet and Multus have filled it in: of 8 KB.
func (f *fleet) pod(n int) (*corev1.Pod, error) {
	status, err := f.networkStatus(n)
	if err != nil {
		return nil, err
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.space(n), Name: f.name(n),
			Labels:      map[string]string{"app": "dpdk", "app.kubernetes.io/name": "dpdk", "app.kubernetes.io/instance": "dpdk-blue", "pod-template-hash": "7f8b9c6d5f", "team": f.space(n)},
			Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "sriov, sriov", "k8s.v1.cni.cncf.io/network-status": status, "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"},
		},
		Spec: corev1.PodSpec{
			NodeName: f.node(n), ServiceAccountName: "default", AutomountServiceAccountToken: new(true),
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "dpdk"}}}},
				{Name: "hugepages", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumHugePages}}},
			},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: fmt.Sprintf("10.250.%d.%d", n%f.nodes>>8, n%f.nodes&0xff), PodIP: fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&0xff, n&0xff),
			StartTime: new(metav1.Now()), QOSClass: corev1.PodQOSGuaranteed,
		},
	}
	p.Status.PodIPs, p.Status.HostIPs = []corev1.PodIP{{IP: p.Status.PodIP}}, []corev1.HostIP{{IP: p.Status.HostIP}}
	for _, name := range []string{"dpdk", "exporter"} {
		p.Spec.Containers = append(p.Spec.Containers, container(name))
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090}}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, Started: new(true), Image: "registry.example.com/net/" + name + ":v1.2.3",
			ImageID:     "registry.example.com/net/" + name + "@sha256:" + strings.Repeat("0123456789abcdef", 4),
			ContainerID: fmt.Sprintf("containerd://%064x", n), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	for _, kind := range []corev1.PodConditionType{"PodReadyToStartContainers", corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	if f.claimed(n) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net2", ResourceClaimTemplateName: new("blue")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "net2"}}
	}
	return p, nil
}

func container(name string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "registry.example.com/net/" + name + ":v1.2.3", Args: []string{"--config=/etc/dpdk/config.yaml", "--log-level=info"},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/dpdk", ReadOnly: true}, {Name: "hugepages", MountPath: "/dev/hugepages"},
		},
	}
	for n := range 10 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", n), Value: "what the application is told"})
	}
	all := corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}
	c.Resources = corev1.ResourceRequirements{Requests: all, Limits: all}
	return c
}
