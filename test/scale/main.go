// Scale measures kubectl devinfo beside kubectl get, on an API server that it fills with a
// fleet: nodes with the slices of their VFs, and pods with two attachments each, by Multus or,
// of some, one by a claim, all as Multus, the scheduler and cni-dra-driver write them. It
// fails when a gate is missed.
//
//	make apiserver scale
//	make scale SCALE=10
//
// Times are ratios to kubectl's, for absolute ones differ from machine to machine; memory is
// the most that a program had resident; bytes are those on the wire. The API server of a fleet
// of -scale 10 takes 12 GB and some minutes to fill.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"devinfo-cni.io/test/controlplane"
)

var (
	bin    = flag.String("bin", "bin", "`directory` of kube-apiserver, etcd and kubectl-devinfo")
	scale  = flag.Float64("scale", 1, "how many times 200 nodes, 3,000 pods and 1,000 claims there are, where the three flags do not say it")
	nodes  = flag.Int("nodes", 0, "nodes; 0 = by -scale")
	pods   = flag.Int("pods", 0, "pods; 0 = by -scale")
	claims = flag.Int("claims", 0, "of them with a claim; 0 = by -scale")
	vfs    = flag.Int("vfs", 256, "VFs of each node, at least two for each of its pods")
	rounds = flag.Int("rounds", 3, "how often each command is timed")
	limit  = flag.Duration("limit", 30*time.Minute, "for all of it")
	getter = flag.String("kubectl", "kubectl", "the kubectl to compare with; where it is not found, a client that lists the same")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch flag.Arg(0) {
	case "run": // see runner
		err = runAlone(flag.Args()[1:])
	case "get":
		err = get(ctx, flag.Args()[1:])
	default:
		ctx, cancel := context.WithTimeout(ctx, *limit)
		defer cancel()
		err = measure(ctx, fleetOf(*scale))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// fleetOf is as big as the flags say.
func fleetOf(scale float64) *fleet {
	or := func(flag int, small float64) int {
		if flag != 0 {
			return flag
		}
		return max(1, int(small*scale))
	}
	return &fleet{nodes: or(*nodes, 200), vfs: *vfs, pods: or(*pods, 3000), claims: or(*claims, 1000)}
}

func measure(ctx context.Context, f *fleet) error {
	devinfo, err := filepath.Abs(filepath.Join(*bin, "kubectl-devinfo"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(devinfo); err != nil {
		return fmt.Errorf("%w: make build", err)
	}
	if err := errors.Join(f.check(), controlplane.Built(*bin)); err != nil {
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
	began := time.Now()
	if err := f.fill(ctx, client); err != nil {
		return fmt.Errorf("fill the API server: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%d nodes with %d VFs each, %d pods, %d claims: filled in %.0f s\n", f.nodes, f.vfs, f.pods, f.claims, time.Since(began).Seconds())
	r, err := newRunner(plane, devinfo)
	if err != nil {
		return err
	}
	defer r.close()
	return f.compare(ctx, r, os.Stdout)
}

// kubectl is how kubectl get is run: by itself, or in its place.
func kubectl() []string {
	if path, err := exec.LookPath(*getter); err == nil {
		return []string{path, "get"}
	}
	return []string{"/proc/self/exe", "get"}
}
