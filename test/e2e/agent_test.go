//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"devinfo-cni.io/test/difftest"
)

// An agent is the installed driver.
type agent struct {
	kill  func(*testing.T) // with SIGKILL; returns when the driver is ready again
	stop  func(*testing.T) // with SIGTERM; returns when the driver has ended
	crash func(*testing.T) // with SIGKILL; nil = not possible, because the driver would be restarted at once
	start func(*testing.T) // after stop or crash; returns when the driver is ready
	log   func() string
}

// explain logs the last lines of the driver's log.
func (a *agent) explain(t *testing.T) {
	lines := strings.Split(a.log(), "\n")
	t.Logf("the driver's log:\n%s", strings.Join(lines[max(0, len(lines)-40):], "\n"))
}

// away stops the driver, and returns a function that starts it again. If the test does not call it, the end of the
// test does.
func (a *agent) away(t *testing.T, end func(*testing.T)) (back func()) {
	t.Helper()
	end(t)
	back = sync.OnceFunc(func() { a.start(t) })
	t.Cleanup(back)
	return back
}

const root = "../.." // the repository's root

// startProcess runs the driver as a process of the node, with the rights of its service account and additional flags.
func startProcess(t *testing.T, flags ...string) *agent {
	t.Cleanup(func() { uninstall(t) })
	for _, file := range []string{"namespace", "rbac", "admission", "deviceclass"} {
		shell(t, "kubectl apply -f deploy/cni-dra-driver/"+file+".yaml")
	}
	onNode(t, binary(t, "devinfoctl"), "install", "--cni-bin-dir", "/opt/cni/bin")
	node := onlyNode(t)
	dir := newDir(t)
	p := &process{log: filepath.Join(dir, "log"), health: fmt.Sprintf("http://%s:9809/healthz", address(node))}
	p.command = append([]string{binary(t, "cni-dra-driver"), "--node-name=" + node.Name, "--enable-device-metadata", "-v4",
		"--kubeconfig=" + credentials(t, dir, node), "--metrics-address=" + address(node) + ":9809"}, flags...)
	p.start(t)
	t.Cleanup(func() { p.stop(t) })
	return &agent{
		start: p.start, stop: p.stop, crash: p.kill,
		kill: func(t *testing.T) { p.kill(t); p.start(t) },
		log:  func() string { text, _ := os.ReadFile(p.log); return string(text) },
	}
}

func onlyNode(t *testing.T) *corev1.Node {
	nodes, err := cluster.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("want one node: %v, %v", nodes, err)
	}
	return &nodes.Items[0]
}

func address(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// process is a driver that the tests have started.
type process struct {
	command []string
	log     string // file
	health  string // URL
	running *exec.Cmd
}

// credentials writes a kubeconfig with a token of the service account that is valid for a day. The token is bound to
// the node, like the tokens in the DaemonSet's pods.
func credentials(t *testing.T, dir string, node *corev1.Node) string {
	day := int64(24 * 60 * 60)
	request := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
		ExpirationSeconds: &day,
		BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
	}}
	answer, err := cluster.client.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), system, request, metav1.CreateOptions{})
	must(t, err)
	config, err := clientcmd.LoadFromFile(cluster.kubeconfig)
	must(t, err)
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &api.AuthInfo{Token: answer.Status.Token}
	}
	path := filepath.Join(dir, "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, path))
	return path
}

func (p *process) start(t *testing.T) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer log.Close()
	p.running = nodeCommand(p.command...)
	p.running.Stderr = log
	must(t, p.running.Start())
	eventually(t, 2*time.Minute, func() error {
		_, err := get(p.health)
		if err != nil {
			said, _ := os.ReadFile(p.log)
			err = fmt.Errorf("%w\n%s", err, said)
		}
		return err
	})
}

// get returns an answer over HTTP. It is also part of the error.
func get(url string) (text string, err error) {
	answer, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, answer.Status, body)
	}
	return string(body), err
}

func (p *process) kill(t *testing.T) {
	cluster.killed = true
	p.signal(t, "-KILL")
}

func (p *process) stop(t *testing.T) { p.signal(t, "-TERM") }

// signal sends a signal to the driver. The driver is the child of the command that runs it on the node.
func (p *process) signal(t *testing.T, signal string) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.running.Process.Pid))
	pids := strings.Fields(string(children))
	if err != nil || len(pids) != 1 {
		t.Fatalf("the driver is not running: %v, %v", pids, err)
	}
	if out, err := exec.Command("kill", signal, pids[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := p.running.Wait(); signal == "-TERM" && err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// daemonSet installs the driver. On an existing cluster it uses the installed one.
func daemonSet(t *testing.T) *agent {
	if cluster.kit != "" {
		// The driver uninstalls only a plugin that it has installed, so remove the plugin of earlier tests.
		onNode(t, append([]string{"rm", "-f"}, agentFiles()...)...)
		install(t)
		t.Cleanup(func() { uninstall(t) })
	}
	ready(t, system, system)
	place := func(t *testing.T, selector string) {
		patch := `{"spec": {"template": {"spec": {"nodeSelector": ` + selector + `}}}}`
		shell(t, "kubectl -n "+system+" patch daemonset "+system+" --type merge -p '"+patch+"'")
		ready(t, system, system)
	}
	return &agent{
		kill:  func(t *testing.T) { killOnNode(t, "cni-dra-driver"); ready(t, system, system) },
		stop:  func(t *testing.T) { place(t, `{"e2e": "nowhere"}`) },
		start: func(t *testing.T) { place(t, "null") },
		log:   func() string { return logOf(t, system, system, 40) },
	}
}

// uninstall removes the driver's objects from the cluster, because Helm refuses to install over existing objects.
func uninstall(t *testing.T) {
	shell(t, "kubectl delete --ignore-not-found -k deploy/cni-dra-driver")
	shell(t, "kubectl delete resourceslices --field-selector spec.driver="+driver)
}

// driverRemoved removes the driver as docs/remove.md describes for kustomize, while a pod has a claim. The driver
// removes nothing before the pod has been deleted.
func driverRemoved(t *testing.T, _ *agent) {
	s, _ := beginWith(t, "10.11.55.0/24")
	out := applyWith(t, "cni-dra-driver", "cni-dra-driver/components/uninstall")
	logged(t, system, system, "claims are on record, 1 in all: delete their pods while the driver runs: pod "+s.name+"/a ")
	onNode(t, "test", "-x", "/opt/cni/bin/cni-dra-gate")
	s.in("a", "net1", "10.11.55.")
	s.delete("a")
	out += shell(t, "kubectl -n cni-dra-driver rollout status daemonset/cni-dra-driver --timeout=15m")
	left := feedOnNode(t, `find /opt/cni/bin -name 'devinfo' -o -name 'cni-dra-gate*' -o -name '.*.sha256'
find /var/run/cdi/ /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry -name '`+driver+`*'
true`, "sh")
	left += shell(t, "kubectl get resourceslices --field-selector spec.driver="+driver+" -o name")
	if left != "" {
		t.Errorf("not removed:\n%s\n%s", left, out)
	}
}

// ready waits until all expected pods of a DaemonSet are ready and no other pods exist.
func ready(t *testing.T, namespace, name string) {
	t.Helper()
	ctx := context.Background() // the test's context has ended in a cleanup
	eventually(t, 5*time.Minute, func() error {
		ds, err := cluster.client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := cluster.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(ds.Spec.Selector)})
		s := ds.Status
		if s.ObservedGeneration != ds.Generation || s.NumberReady != s.DesiredNumberScheduled || s.UpdatedNumberScheduled != s.DesiredNumberScheduled || len(pods.Items) != int(s.DesiredNumberScheduled) {
			err = errors.Join(fmt.Errorf("DaemonSet: %+v, %d pods", s, len(pods.Items)), err)
		}
		return err
	})
}

// install runs the driver of this clone in the cluster, with kustomize, and the pod of an example.
func install(t *testing.T) {
	out := shell(t, `make build
export KUBECONFIG=$($E2E_CLUSTER up)
$E2E_CLUSTER image cni-dra-driver bin/{cni-dra-driver,cni-dra-gate,devinfo,devinfoctl}
CGO_ENABLED=0 go build -o bin/ ./test/e2e/pod-view && $E2E_CLUSTER image pod-view bin/pod-view
kubectl apply -k deploy/cni-dra-driver
kubectl -n cni-dra-driver rollout status daemonset/cni-dra-driver --timeout=2m
kubectl apply -f deploy/cni-dra-driver/examples/macvlan-class.yaml
kubectl wait --for=condition=Ready pod/demo-a --timeout=1m
kubectl logs demo-a
kubectl get resourceclaims -o yaml`)
	difftest.Contains(t, out, `"name": "net1"`, `"interfaceName": "net1"`, "10.10.1.")
	shell(t, "kubectl delete -f deploy/cni-dra-driver/examples/macvlan-class.yaml")
}

// shell runs commands in the root of the repository.
func shell(t *testing.T, commands string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", commands)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.kubeconfig, "E2E_CLUSTER="+cluster.kit)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}
