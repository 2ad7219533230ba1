package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/status"
)

// Agent attaches the pods of a node to the networks of their claims.
type Agent = claim.Engine

// KubeletOptions configures a [Kubelet]. All fields except Limit, Metadata and Withdraw are required.
type KubeletOptions struct {
	Node         string // name of the Node object
	Client       kubernetes.Interface
	PluginDir    string      // this driver's directory: state, and the socket for the kubelet
	RegistrarDir string      // plugin registration directory of the kubelet
	Limit        int         // maximum number of attachments on the node; 0 = no limit
	Metadata     bool        // write device metadata for containers
	Withdraw     bool        // offer no devices and remove the ResourceSlices, because the driver is being uninstalled
	Fatal        func(error) // called when the process must exit
}

// Kubelet is the DRA plugin for the kubelet, which finds it by its socket, and publishes the node's ResourceSlices. It
// does not support rolling updates, because the agent locks the state directory.
type Kubelet struct {
	agent      *Agent
	options    KubeletOptions
	registered atomic.Pointer[registerapi.RegistrationStatus]
	started    chan struct{} // closed when helper is set
	helper     *kubeletplugin.Helper
	publishing sync.WaitGroup
	ctx        context.Context
	cancel     context.CancelFunc                // ends publishing
	last       atomic.Pointer[[]inventory.Slice] // last published slices; nil = none, or the library may have dropped some
	metadata   *metadataFiles
	wakes      *wakes
	checked    *registerapi.RegistrationStatus // registration after which the Node object was last read; used by checkNode
	node       types.UID                       // of the Node object then; "" = not read yet
}

// StartKubelet creates the sockets and publishes the node's devices in the background, until ctx ends or [Kubelet.Stop]
// is called. Call it before [claim.Engine.Run]. It does not wait for the kubelet or the API server.
func StartKubelet(ctx context.Context, agent *Agent, o KubeletOptions) (*Kubelet, error) {
	files := newMetadataFiles(agent, o)
	k := &Kubelet{agent: agent, options: o, started: make(chan struct{}), metadata: files, wakes: newWakes()}
	k.ctx, k.cancel = context.WithCancel(ctx)
	agent.SetMetadata(k)
	agent.SetOpened(k.wakes.wake)
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(agent.Options.Driver), kubeletplugin.NodeName(o.Node), kubeletplugin.KubeClient(o.Client),
		kubeletplugin.PluginDataDirectoryPath(o.PluginDir), kubeletplugin.RegistrarDirectoryPath(o.RegistrarDir),
		kubeletplugin.CDIDirectory(agent.Options.CDIDir), kubeletplugin.GRPCInterceptor(k.intercept),
		// The engine serializes the steps of each claim. A pod must not wait for the DEL of another pod.
		kubeletplugin.Serialize(false),
		// Even with metadata off, kubeletplugin updates and removes the files of claims that were prepared with it.
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion}),
		kubeletplugin.MetadataFileOps(kubeletplugin.MetadataFileOperations{
			WriteFile: files.write, Remove: files.remove, MkdirAll: func(string, os.FileMode) error { return nil }, // write does that
		}),
	}
	helper, err := kubeletplugin.Start(ctx, k, options...)
	if err != nil {
		return nil, fmt.Errorf("start the DRA plugin in %s: %w", o.PluginDir, err)
	}
	k.helper = helper
	close(k.started)
	ctx = k.ctx
	k.publishing.Go(func() { // waits for the API server
		if o.Withdraw {
			wait.UntilWithContext(ctx, k.withdraw, agent.Options.Sweep)
			return
		}
		for failed := o.Fatal; ctx.Err() == nil; {
			if err := k.publish(ctx); err != nil && ctx.Err() == nil {
				failed(err)
			}
			failed = func(err error) { agent.Options.Log.Error("cannot publish the node's ResourceSlices", "error", err) }
			select {
			case <-agent.Node.Changed():
			case <-ctx.Done():
			}
		}
	})
	k.publishing.Go(func() { agent.Node.Watch(ctx) })
	k.publishing.Go(func() { wait.UntilWithContext(ctx, k.checkNode, agent.Options.Sweep) })
	k.publishing.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			if err := files.tidy(); err != nil {
				agent.Options.Log.Error("cannot remove device metadata of claims that have ended, or restore its CDI specs for the others", "error", err)
			}
			if err := k.checkSockets(); err != nil {
				o.Fatal(err)
			}
		}, agent.Options.Sweep)
	})
	return k, nil
}

// Stop unregisters the plugin and waits for running calls. The ResourceSlices remain, so that pods can be
// scheduled and wait for the next start of the driver.
func (k *Kubelet) Stop() {
	k.cancel()
	k.helper.Stop()
	k.publishing.Wait()
}

// checkSockets returns an error if a socket no longer exists. The kubelet unregisters a plugin whose registration socket is
// removed, and the library creates sockets only when it starts.
func (k *Kubelet) checkSockets() error {
	registrar := filepath.Join(k.options.RegistrarDir, k.agent.Options.Driver+"-reg.sock")
	for _, socket := range []string{registrar, filepath.Join(k.options.PluginDir, "dra.sock")} {
		if _, err := os.Lstat(socket); errors.Is(err, fs.ErrNotExist) && k.ctx.Err() == nil { // Stop removes them too
			return fmt.Errorf("%s was removed, so that the kubelet cannot reach the driver; the driver must restart", socket)
		}
	}
	return nil
}

// Registered returns an error if the kubelet does not use the plugin.
func (k *Kubelet) Registered() error {
	switch s := k.registered.Load(); {
	case s == nil:
		return fmt.Errorf("the kubelet has not registered the driver; check that the kubelet's plugin registration directory is %s", k.options.RegistrarDir)
	case !s.PluginRegistered:
		return errors.New("the kubelet refused to register the driver: " + s.Error)
	}
	return nil
}

// intercept records the kubelet's answer to the registration. After Prepare it rewrites the metadata of
// attached networks, because kubeletplugin has just written the devices that Prepare returned, possibly over
// newer facts from ADD. kubeletplugin only logs metadata that it cannot write, and the kubelet does not prepare
// such a claim again. Therefore intercept fails the claim.
func (k *Kubelet) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if s, ok := request.(*registerapi.RegistrationStatus); ok {
		k.registered.Store(s)
	}
	answer, err := handle(ctx, request)
	prepared, ok := answer.(*drapb.NodePrepareResourcesResponse)
	if err != nil || !ok {
		return answer, err
	}
	for uid, claim := range prepared.Claims {
		if claim.Error != "" {
			continue
		}
		err := k.agent.RewriteMetadata(uid)
		if err == nil {
			err = k.settleMetadata(uid, claim)
		}
		if err != nil {
			claim.Error, claim.Devices = err.Error(), nil
		}
	}
	return answer, nil
}

// checkNode reads the Node object after each registration, which follows its creation, and ends the process if it was deleted
// and created again. kubeletplugin would keep publishing slices with the old owner, and the garbage collector would remove
// them.
func (k *Kubelet) checkNode(ctx context.Context) {
	registered := k.registered.Load()
	if registered == k.checked {
		return
	}
	node, err := k.options.Client.CoreV1().Nodes().Get(ctx, k.options.Node, metav1.GetOptions{})
	if err = status.Answered(node, err); err != nil {
		k.agent.Options.Log.Warn("cannot read the Node object", "retryIn", k.agent.Options.Sweep, "error", err)
		return
	}
	if k.node != "" && k.node != node.UID {
		k.options.Fatal(fmt.Errorf("node %s was deleted and registered again; the driver must restart, because its ResourceSlices need a new owner", k.options.Node))
	}
	k.node, k.checked = node.UID, registered
}

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (k *Kubelet) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	first := k.agent.Orders(len(claims))
	return forEach(ctx, claims, func(ctx context.Context, n int, claim *resourceapi.ResourceClaim) (types.UID, kubeletplugin.PrepareResult) {
		devices, err := k.agent.Prepare(ctx, claim, first+n)
		if err != nil {
			k.agent.Options.Log.Error("cannot prepare a claim", "claim", filepath.Join(claim.Namespace, claim.Name), "claimUID", claim.UID, "error", err)
		}
		return claim.UID, kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}), nil
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (k *Kubelet) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	return forEach(ctx, claims, func(ctx context.Context, _ int, claim kubeletplugin.NamespacedObject) (types.UID, error) {
		err := k.agent.Unprepare(ctx, string(claim.UID))
		if err != nil {
			k.agent.Options.Log.Error("cannot unprepare a claim", "claim", claim.String(), "error", err)
		}
		return claim.UID, err
	}), nil
}

// forEach calls f for all claims of a call of the kubelet at the same time, and returns the results by UID. The time of
// f ends before that of the call, so that a claim that waits is answered by itself and does not fail the others.
func forEach[C, R any](ctx context.Context, claims []C, f func(context.Context, int, C) (types.UID, R)) map[types.UID]R {
	if end, ok := ctx.Deadline(); ok {
		earlier, cancel := context.WithDeadline(ctx, end.Add(-time.Until(end)/10)) // the kubelet waits 45 s
		defer cancel()
		ctx = earlier
	}
	results, mu := map[types.UID]R{}, sync.Mutex{}
	var calls sync.WaitGroup
	for n, claim := range claims {
		calls.Go(func() {
			uid, result := f(ctx, n, claim)
			mu.Lock()
			defer mu.Unlock()
			results[uid] = result
		})
	}
	calls.Wait()
	return results
}

// HandleError implements [kubeletplugin.DRAPlugin].
func (k *Kubelet) HandleError(_ context.Context, err error, msg string) {
	a := k.agent
	dropped, _ := errors.AsType[*resourceslice.DroppedFieldsError](err)
	switch {
	case errors.Is(err, grpc.ErrServerStopped): // Stop was called before the library served the socket
	case !errors.Is(err, kubeletplugin.ErrRecoverable):
		k.options.Fatal(fmt.Errorf("%s: %w", msg, err))
	case RefusesLists(err):
		k.options.Fatal(fmt.Errorf("%s: %w: enable the feature gate DRAListTypeAttributes in kube-apiserver and kube-scheduler, "+
			"or set --numa-node=scalar (chart: dra.numaNode)", msg, err))
	case dropped != nil && dropped.ActualSlice.UID == "": // the library now takes the answer for what the driver wants
		a.Options.Log.Error(msg+": publishing again", "error", "the API server's answer is not an object")
		k.last.Store(nil)
		time.AfterFunc(a.Options.Sweep, a.Node.Publish)
	case dropped != nil && slices.Contains(dropped.DisabledFeatures(), "DRADeviceTaints"): // once for each slice
		if a.Node.WithoutTaints() {
			a.Options.Log.Warn("offering no device that should have a taint; taints need Kubernetes 1.36 or feature gate DRADeviceTaints")
			a.Node.Publish()
		}
	case dropped == nil || !slices.Contains(dropped.DisabledFeatures(), "DRAConsumableCapacity"):
		a.Options.Log.Error(msg, "error", err)
	case a.Node.WithoutSharing():
		a.Options.Log.Warn("offering exclusive devices only; shared devices need Kubernetes 1.36 or feature gate DRAConsumableCapacity")
		a.Node.Publish()
	}
}

// WatchHealthStatus implements [kubeletplugin.DRAPlugin] (KEP-4680). The kubelet copies the health of devices
// into the status of their pods. WatchHealthStatus reports changes immediately, and all devices periodically.
// It also sends empty reports, because without them the kubelet reconnects every 5 s and logs an error. A report also
// wakes the pods whose networks have been attached: see [wakes].
func (k *Kubelet) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for every := time.Tick(10 * time.Second); ; { // the kubelet treats health that is 30 s old as unknown
		list, changed := k.agent.Node.Health(k.options.Node)
		k.wakes.mark(list)
		select {
		case <-ctx.Done():
			return nil
		case reports <- kubeletplugin.DeviceHealthReport{Devices: list}:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-every:
		case <-changed:
		case <-k.wakes.asked:
			k.wakes.gather(ctx)
		}
	}
}
