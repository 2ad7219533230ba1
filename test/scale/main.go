// Scale compares kubectl devinfo with kubectl get on an API server that it fills with pods. It fails if a ratio or a
// peak exceeds its gate. It needs kubectl.
//
//	make deps-apiserver bench-scale
//	make bench-scale SCALE=10
//
// Times are ratios to kubectl's, because seconds differ between machines. Memory is a program's peak resident memory.
// With -scale 10 the API server takes 12 GB, and filling it takes some minutes.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/test/controlplane"
)

var (
	bin   = flag.String("bin", "bin", "`directory` of kube-apiserver, etcd and kubectl-devinfo")
	scale = flag.Int("scale", 1, "thousands of claims, and thrice as many pods")
)

const rounds = 3 // runs of a command; the median counts

func main() {
	flag.Parse()
	var err error
	if flag.Arg(0) == "run" {
		err = runAlone(flag.Args()[1:])
	} else {
		err = measure(context.Background(), 3*1000*(*scale))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// A row is a command of kubectl devinfo with its gates. It is compared with kubectl get pods -A.
type row struct {
	args  []string
	lines int     // minimum number of printed lines
	ratio float64 // limit of its time divided by kubectl's; 0 = no limit
	peak  float64 // limit in MB
}

func rows(pods int) []row {
	n := pods/2 - pods/2%3 + 2 // a pod with a claim
	return []row{
		{[]string{"-A"}, 2 * pods, 1.3, 300},
		{[]string{"holder", mac(n, 0)}, 2, 1.3, 300},
		{[]string{"holder", vf(n, 1), "--node", node(n)}, 2, 0, 100},
		{[]string{"-n", space(n)}, 2 * podsOfSpace, 0, 100},
		{[]string{"pod", name(n), "-n", space(n)}, 20, 0, 80},
	}
}

// measure fills an API server, and prints the cost of each row. It returns an error if a limit is exceeded.
func measure(ctx context.Context, pods int) error {
	if err := controlplane.Built(*bin); err != nil {
		return err
	}
	plane, err := controlplane.Start(*bin, "--max-requests-inflight=0", "--enable-priority-and-fairness=false")
	if err != nil {
		return err
	}
	defer plane.End()
	config := rest.CopyConfig(plane.Admin)
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := fill(ctx, client, pods); err != nil {
		return fmt.Errorf("fill the API server: %w", err)
	}
	kubectl, err := cost(plane, pods, "kubectl", "get", "pods", "-A")
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "command\tseconds\tx kubectl\tpeak MB\nkubectl get pods -A\t%.2f\t\t%.0f\n", kubectl.Seconds, kubectl.Peak)
	missed := 0
	for _, row := range rows(pods) {
		c, err := cost(plane, row.lines, filepath.Join(*bin, "kubectl-devinfo"), row.args...)
		if err != nil {
			return err
		}
		ratio, miss := c.Seconds/kubectl.Seconds, ""
		if c.Peak > row.peak || row.ratio > 0 && ratio > row.ratio {
			missed++
			miss = fmt.Sprintf("MISS: the gates are %.1f x kubectl, %.0f MB", row.ratio, row.peak)
		}
		fmt.Fprintf(w, "kubectl devinfo %s\t%.2f\t%.2f\t%.0f\t%s\n", strings.Join(row.args, " "), c.Seconds, ratio, c.Peak, miss)
	}
	if err := w.Flush(); err != nil || missed == 0 {
		return err
	}
	return fmt.Errorf("%d gates missed", missed)
}

// took is the cost of a command.
type took struct {
	Seconds, Peak float64 // Peak in MB
	Lines         int     // printed lines
}

// cost runs a command several times. It returns the median of the times, and the highest peak. A small process runs
// the command, because the kernel's peak includes the parent's memory.
func cost(plane *controlplane.Plane, lines int, command string, args ...string) (c took, err error) {
	var seconds []float64
	for range rounds {
		cmd := exec.Command("/proc/self/exe", append([]string{"run", command, "--server=" + plane.Admin.Host,
			"--token=" + plane.Admin.BearerToken, "--certificate-authority=" + plane.Admin.CAFile}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG=/dev/null", "HOME="+plane.Dir)
		cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.Output()
		var t took
		if err == nil {
			err = json.Unmarshal(out, &t)
		}
		if err == nil && t.Lines < lines {
			err = fmt.Errorf("prints %d lines, not %d", t.Lines, lines)
		}
		if err != nil {
			return c, fmt.Errorf("%s %s: %w", command, strings.Join(args, " "), err)
		}
		seconds, c.Peak = append(seconds, t.Seconds), max(c.Peak, t.Peak)
	}
	slices.Sort(seconds)
	c.Seconds = seconds[rounds/2]
	return c, nil
}

// runAlone runs a command, and prints its cost.
func runAlone(command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	var t took
	cmd.Stdout, cmd.Stderr = (*lines)(&t.Lines), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	t.Seconds = time.Since(began).Seconds()
	t.Peak = float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1000
	return json.NewEncoder(os.Stdout).Encode(t)
}

// lines counts the lines that are written to it.
type lines int

func (l *lines) Write(p []byte) (int, error) {
	*l += lines(strings.Count(string(p), "\n"))
	return len(p), nil
}

const (
	driver      = "cni.dra.networking.x-k8s.io"
	podsOfSpace = 300 // pods per namespace
	podsOfNode  = 15
)

func node(pod int) string  { return fmt.Sprintf("node-%04d", pod/podsOfNode) }
func space(pod int) string { return fmt.Sprintf("team-%03d", pod/podsOfSpace) }
func name(pod int) string  { return fmt.Sprintf("dpdk-%05d", pod) }

// claimed reports whether a pod's second attachment uses a claim.
func claimed(pod int) bool { return pod%3 == 2 }

// vf returns the PCI address of an attachment's VF.
func vf(pod, attachment int) string {
	n := pod%podsOfNode*2 + attachment
	return fmt.Sprintf("0000:3b:%02x.%d", 2+n/8, n%8)
}

func mac(pod, attachment int) string {
	n := 2*pod + attachment
	return fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff)
}

// fill creates the namespaces, pods and claims.
func fill(ctx context.Context, client kubernetes.Interface, pods int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for n := 0; n < pods; n += podsOfSpace {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space(n)}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	workqueue.ParallelizeUntil(ctx, 16, pods, func(n int) {
		if err := attach(ctx, client, n); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

// attach creates a pod with two attachments, and its claim if claimed.
func attach(ctx context.Context, client kubernetes.Interface, n int) error {
	pod, err := client.CoreV1().Pods(space(n)).Create(ctx, pod(n), metav1.CreateOptions{})
	if err != nil || !claimed(n) {
		return err
	}
	wanted := claim(n, pod)
	made, err := client.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status = wanted.Status
	_, err = client.ResourceV1().ResourceClaims(pod.Namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// pod returns a pod of 8 KB, like those of Deployments.
func pod(n int) *corev1.Pod {
	status := []string{`{"name": "cbr0", "interface": "eth0", "ips": ["10.128.0.9"], "default": true, "dns": {}}`}
	for a := range 2 {
		if a == 0 || !claimed(n) {
			status = append(status, fmt.Sprintf(`{"name": %q, "interface": "net%d", "mac": %q, "dns": {}, "device-info": {"type": "pci", "version": "1.1.0", "pci": {
				"pci-address": %q, "pf-pci-address": "0000:3b:00.0", "rdma-device": "mlx5_%d", "representor-device": "eth%d"}}}`,
				space(n)+"/sriov", a+1, mac(n, a), vf(n, a), n, n))
		}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: space(n), Name: name(n), UID: types.UID(name(n)), // the API server replaces the UID
			Annotations: map[string]string{cluster.StatusAnnotation: "[" + strings.Join(status, ",\n") + "]"},
		},
		Spec: corev1.PodSpec{NodeName: node(n)},
	}
	for _, name := range []string{"dpdk", "exporter"} {
		container := corev1.Container{Name: name, Image: "registry.example.com/net/" + name + ":v1.2.3"}
		for n := range 40 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", n), Value: "a value that the application reads when it starts"})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	if claimed(n) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net2", ResourceClaimName: &p.Name}}
	}
	return p
}

// claim returns the claim of a pod's second attachment, with the fields that the scheduler and cni-dra-driver set.
func claim(n int, pod *corev1.Pod) *resourceapi.ResourceClaim {
	const request, device = "vf", "vf1"
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "vf.example.com"}}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: request, Driver: driver, Pool: node(n), Device: device}},
	}}
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: driver, Pool: node(n), Device: device,
		NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net2", HardwareAddress: mac(n, 1), IPs: []string{"10.9.0.2/24"}},
		Data: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"cniVersion": "1.1.0", %q: {"type": "pci", "device": %q, "pf": "0000:3b:00.0", "rdma": "mlx5_%d"}}`,
			view.Key, vf(n, 1), n)},
	}}
	return c
}
