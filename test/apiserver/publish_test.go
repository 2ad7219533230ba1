package apiserver_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/publish"
)

// The agent's own client, with the rights of agent.publish.
func TestTheAgentAnnotatesThePodsOfItsNode(t *testing.T) {
	p := server(t)
	pods := p.Client.CoreV1().Pods("default")
	create := func(name, node string) publish.Pod {
		pod, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"of": "others"}, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		}, metav1.CreateOptions{})
		must(t, err)
		return publish.Pod{Namespace: "default", Name: name, UID: string(pod.UID)}
	}
	mine, theirs := create("mine", node), create("theirs", other)

	dir := t.TempDir()
	ca, err := os.ReadFile(p.Admin.CAFile)
	must(t, err)
	token := p.token(t, "devinfo", "devinfo-agent", node)
	for name, content := range map[string][]byte{"ca.crt": ca, "token": []byte(token)} {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	agent, err := publish.Open(p.Admin.Host, dir)
	must(t, err)
	networks := []publish.Network{{Name: "mem", Interface: "net1", DeviceInfo: json.RawMessage(`{"type":"memif"}`)}}
	difftest.Eventually(t, "the policy holds", func() bool { err = agent.Annotate(t.Context(), theirs, networks); return err != nil })
	if !errors.Is(err, publish.ErrRefused) || !strings.Contains(err.Error(), "the agent of node node-a annotates no pod of another node") {
		t.Errorf("another node's: %v", err)
	}
	must(t, agent.Annotate(t.Context(), mine, networks))
	first, err := pods.Get(t.Context(), "mine", metav1.GetOptions{})
	must(t, err)
	if got := first.Annotations[publish.Annotation]; got != `[{"name":"mem","interface":"net1","device-info":{"type":"memif"}}]` || first.Annotations["of"] != "others" {
		t.Errorf("annotations %q", first.Annotations)
	}
	must(t, agent.Annotate(t.Context(), mine, networks))
	if again, err := pods.Get(t.Context(), "mine", metav1.GetOptions{}); err != nil || again.ResourceVersion != first.ResourceVersion {
		t.Errorf("the same once more is a write: %v", err)
	}
	replaced := mine
	replaced.UID = theirs.UID // a pod of that name has come since
	if err := agent.Annotate(t.Context(), replaced, nil); !errors.Is(err, publish.ErrGone) {
		t.Errorf("another pod of that name: %v", err)
	}

	// What else somebody does with the agent's token.
	config := rest.AnonymousClientConfig(p.Admin)
	config.BearerToken = token
	bound, err := kubernetes.NewForConfig(config)
	must(t, err)
	config = rest.CopyConfig(config)
	config.BearerToken = p.token(t, "devinfo", "devinfo-agent", "")
	unbound, err := kubernetes.NewForConfig(config)
	must(t, err)
	patch := func(client kubernetes.Interface, text string) error {
		_, err := client.CoreV1().Pods("default").Patch(t.Context(), "mine", types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	const ours = `{"metadata": {"annotations": {"devinfo-cni.io/network-info": "[]"}}}`
	_, read := bound.CoreV1().Pods("default").Get(t.Context(), "mine", metav1.GetOptions{})
	for what, test := range map[string]struct {
		err  error
		want string
	}{
		"a token of no pod":    {patch(unbound, ours), "only with a token that is bound to a pod"},
		"another annotation":   {patch(bound, `{"metadata": {"annotations": {"a": "b"}}}`), "writes only the annotation"},
		"another's changed":    {patch(bound, `{"metadata": {"annotations": {"of": "mine"}}}`), "writes only the annotation"},
		"another's taken away": {patch(bound, `{"metadata": {"annotations": {"of": null}}}`), "writes only the annotation"},
		"a label":              {patch(bound, `{"metadata": {"labels": {"a": "b"}}}`), "changes nothing of a pod but an annotation"},
		"all labels":           {patch(bound, `{"metadata": {"labels": null}}`), "changes nothing of a pod but an annotation"},
		"a finalizer":          {patch(bound, `{"metadata": {"finalizers": ["a.example/b"]}}`), "changes nothing of a pod but an annotation"},
		"an owner":             {patch(bound, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}}`), "changes nothing of a pod but an annotation"},
		"an image":             {patch(bound, `{"spec": {"containers": [{"name": "app", "image": "evil", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}]}}`), "changes nothing of a pod but an annotation"},
		"reading":              {read, "forbidden"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: %v", what, test.err)
		}
	}
	if err := patch(bound, ours); err != nil {
		t.Error(err)
	}
}
