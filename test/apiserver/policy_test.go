package apiserver_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/mistakes"
)

const parametersPolicy = "../../deploy/cni-dra-driver/components/admission-policy/policy.yaml"

var (
	policy sync.Once
	// mistaken is a class that is older than the policy, and has a mistake.
	mistaken = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "older"}}
)

// withPolicy returns the shared control plane with the policy for parameters. The first call installs it.
func withPolicy(t *testing.T) *controlPlane {
	t.Helper()
	p := server(t)
	policy.Do(func() {
		text := difftest.Read(t, parametersPolicy)
		with := strings.Replace(text, `expression: "[]"`, `expression: "['`+mistakes.Allowed+`']"`, 1)
		if with == text {
			t.Fatal("the policy has no variable for the allowed plugins")
		}
		var err error
		_, mistaken.Spec, _ = mistakes.Cases["eth0 in a class"].Documents(t)
		mistaken, err = p.Client.ResourceV1().DeviceClasses().Create(t.Context(), mistaken, metav1.CreateOptions{})
		must(t, err, p.create([]byte(with)))
	})
	difftest.Eventually(t, "the policy holds", func() bool {
		err, _, _ := p.refusals(t, mistaken.Spec, resourceapi.DeviceClaim{})
		return err != nil
	})
	return p
}

// refusals returns the API server's errors for a class, a claim, and a template of the claim. It creates none of them.
func (p *controlPlane) refusals(t *testing.T, class resourceapi.DeviceClassSpec, devices resourceapi.DeviceClaim) (ofClass, ofClaim, ofTemplate error) {
	dry, name, spec := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ObjectMeta{Name: "tried"}, resourceapi.ResourceClaimSpec{Devices: devices}
	api := p.Client.ResourceV1()
	_, ofClass = api.DeviceClasses().Create(t.Context(), &resourceapi.DeviceClass{ObjectMeta: name, Spec: class}, dry)
	_, ofClaim = api.ResourceClaims("default").Create(t.Context(), &resourceapi.ResourceClaim{ObjectMeta: name, Spec: spec}, dry)
	_, ofTemplate = api.ResourceClaimTemplates("default").Create(t.Context(), &resourceapi.ResourceClaimTemplate{
		ObjectMeta: name, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}}, dry)
	return ofClass, ofClaim, ofTemplate
}

// The policy, devinfoctl validate and Prepare agree, except for mistakes that the policy cannot see.
func TestPolicyRefusesWhatPrepareRefuses(t *testing.T) {
	p := withPolicy(t)
	for _, name := range slices.Sorted(maps.Keys(mistakes.Cases)) {
		c := mistakes.Cases[name]
		t.Run(name, func(t *testing.T) {
			list, class, devices := c.Documents(t)
			var refused error
			for _, claim := range mistakes.Allocated(class, devices) {
				if err := mistakes.Prepare(claim); err != nil {
					refused = err
				}
			}
			docs, validated := validate.Parse("file", []byte(list)), 0
			validate.Checker{ClaimTypes: []string{mistakes.Allowed}}.Check(docs, "")
			for _, d := range docs {
				validated += d.Errors()
			}
			ofClass, ofClaim, ofTemplate := p.refusals(t, class, devices)
			isRefused := ofClass != nil || ofClaim != nil
			if (ofClaim == nil) != (ofTemplate == nil) || isRefused != (refused != nil && c.Unseen == "") || (validated > 0) != (refused != nil) {
				t.Errorf("Prepare: %v\nvalidate: %d errors\nthe policy: class %v\nclaim %v\ntemplate %v", refused, validated, ofClass, ofClaim, ofTemplate)
			}
		})
	}
}

func TestPolicyAllowsChangesOfOlderObjects(t *testing.T) {
	classes := withPolicy(t).Client.ResourceV1().DeviceClasses()
	older, err := classes.Get(t.Context(), mistaken.Name, metav1.GetOptions{})
	must(t, err)
	older.Labels = map[string]string{"a": "b"}
	older, err = classes.Update(t.Context(), older, metav1.UpdateOptions{})
	must(t, err)
	older.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "true"}}}
	if _, err = classes.Update(t.Context(), older, metav1.UpdateOptions{}); err == nil {
		t.Error("its spec can be changed although it has a mistake")
	}
}

// If the evaluation exceeded the API server's limit, the policy would refuse the claim, whoever's it is.
func TestPolicyAllowsLargestClaims(t *testing.T) {
	p := withPolicy(t)
	for _, driver := range []string{driver, "gpu.example.com"} {
		var devices resourceapi.DeviceClaim
		for n := range resourceapi.DeviceRequestsMaxSize {
			r := resourceapi.DeviceRequest{Name: fmt.Sprint("r", n)}
			for m := range resourceapi.FirstAvailableDeviceRequestMaxSize {
				r.FirstAvailable = append(r.FirstAvailable, resourceapi.DeviceSubRequest{Name: fmt.Sprint("s", m), DeviceClassName: "c"})
			}
			devices.Requests = append(devices.Requests, r)
			config := resourceapi.DeviceClaimConfiguration{Requests: []string{r.Name}}
			config.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: driver}
			config.Opaque.Parameters.Raw = fmt.Appendf(nil, `{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNIConfig","ifName":"net%d"}`, n)
			devices.Config = append(devices.Config, config)
		}
		_, ofClaim, ofTemplate := p.refusals(t, resourceapi.DeviceClassSpec{}, devices)
		must(t, ofClaim, ofTemplate)
	}
}

// The policy of the GPU examples admits their pods, and none that could change the settings of a NIC's port.
func TestPolicyOfGPUExamplesRefusesCapabilities(t *testing.T) {
	const examples = "../../deploy/examples/gpu/"
	p, yes := server(t), true
	must(t, p.create([]byte(`{apiVersion: v1, kind: Namespace, metadata: {name: fabric, labels: {example.com/fabric: "true"}}}`+"\n---\n"+difftest.Read(t, examples+"policy.yaml"))))
	documents := strings.Split(difftest.Read(t, examples+"eight-pairs.yaml"), "\n---\n")
	var pod corev1.Pod
	must(t, yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &pod))
	pods, own := p.Client.CoreV1().Pods("fabric"), pod.Spec.Containers[0].SecurityContext
	for what, context := range map[string]*corev1.SecurityContext{
		"privileged": {Privileged: &yes},
		"NET_ADMIN":  {Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"IPC_LOCK", "NET_ADMIN"}}},
		"ALL":        {Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"ALL"}}},
	} {
		for _, init := range []bool{false, true} {
			tried := pod.DeepCopy()
			if init {
				tried.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "x"}}
				tried.Spec.InitContainers[0].SecurityContext = context
			} else {
				tried.Spec.Containers[0].SecurityContext = context
			}
			difftest.Eventually(t, what+" is refused", func() bool { // the policy holds a moment after its creation
				_, err := pods.Create(t.Context(), tried, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err != nil && strings.Contains(err.Error(), "may add only IPC_LOCK")
			})
		}
	}
	made, err := pods.Create(t.Context(), &pod, metav1.CreateOptions{})
	must(t, err)
	for _, context := range []*corev1.SecurityContext{own, {Privileged: &yes}} {
		made.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "x", SecurityContext: context}}}
		_, err := pods.UpdateEphemeralContainers(t.Context(), made.Name, made, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if refused := err != nil; refused != (context != own) {
			t.Errorf("ephemeral container with %+v: %v", context, err)
		}
	}
}
