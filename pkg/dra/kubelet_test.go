package dra_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// kubeletplugin logs an error if a stream is silent for 30 s. If a stream ends, the kubelet starts another after 5 s.
func TestHealthStreamReportsPeriodicallyUntilCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reports, done := make(chan kubeletplugin.DeviceHealthReport), make(chan error, 1)
		agent := &dra.Agent{Node: devices.New(devices.Options{}, nil)}
		k := dra.Unstarted(agent, dra.KubeletOptions{Node: "node1"})
		go func() { done <- k.WatchHealthStatus(ctx, reports) }()
		began := time.Now()
		for range 20 {
			last := time.Now()
			select {
			case report := <-reports:
				want := kubeletplugin.DeviceHealth{PoolName: "node1", DeviceName: "cni", Health: kubeletplugin.HealthStatusHealthy, LastUpdated: time.Now(), HealthCheckTimeout: 30 * time.Second}
				difftest.Equal(t, report.Devices, []kubeletplugin.DeviceHealth{want})
				if silent := time.Since(last); silent >= 30*time.Second-10*time.Second {
					t.Errorf("silent for %v", silent)
				}
			case err := <-done:
				t.Fatalf("the stream ended: %v", err)
			case <-time.After(time.Hour):
				t.Fatal("no report")
			}
		}
		if took := time.Since(began); took < time.Minute {
			t.Errorf("20 reports within %v", took)
		}
		cancel() // while no reader receives the next report
		difftest.Must(t, <-done)
	})
}

func TestNodePublishesSharedSoftwareDevice(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 7} {
		client := dratest.APIServer(nil)
		dratest.NewRig(t).StartKubelet(client, limit)
		want := resourceapi.Device{Name: "cni", AllowMultipleAllocations: new(true)}
		if limit > 0 {
			one := resource.MustParse("1")
			want.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"attachments": {
				Value: resource.MustParse("7"), RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: &one, ValidValues: []resource.Quantity{one}},
			}}
		}
		difftest.Equal(t, dratest.WaitDevices(t, client, "cni")["cni"], want)
	}
}

func TestRegisteredReportsAnswerOfKubelet(t *testing.T) {
	r := dratest.NewRig(t)
	k, dir := r.StartKubelet(dratest.APIServer(nil), 0), r.Dir
	difftest.Says(t, k.Registered(), dir)
	registration := registerapi.NewRegistrationClient(dratest.Dial(t, filepath.Join(dir, dratest.Driver+"-reg.sock")))
	info, err := registration.GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil || info.Name != dratest.Driver || info.Endpoint != filepath.Join(dir, "dra.sock") {
		t.Fatalf("got %v, %v", info, err)
	}
	_, _ = registration.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "too old"})
	difftest.Says(t, k.Registered(), "too old")
	_, err = registration.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
	difftest.Must(t, err, k.Registered())
}

// The library would publish slices with the former owner. A read that fails, or a proxy's answer, is neither object.
func TestOnlyReplacedNodeEndsTheDriver(t *testing.T) {
	for name, first := range map[string]struct {
		node *corev1.Node
		err  error
	}{
		"no answer": {nil, context.DeadlineExceeded}, "forbidden": {nil, apierrors.NewForbidden(corev1.Resource("nodes"), "node1", nil)}, "no object": {&corev1.Node{}, nil},
	} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			fatal := make(chan error, 10)
			var failed atomic.Bool
			client := dratest.APIServer(nil)
			client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				return !failed.Swap(true), first.node, first.err
			})
			k := dra.Unstarted(r.Start(), dra.KubeletOptions{Node: "node1", Client: client, Fatal: func(err error) { fatal <- err }})
			register := func() {
				failed.Store(false)
				difftest.Must(t, k.Register(t.Context()))
			}
			register()
			register()
			difftest.Same(t, name, len(fatal), 0)
			difftest.Must(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "again"}}, ""))
			register()
			if len(fatal) != 1 {
				t.Fatalf("%s: got %d", name, len(fatal))
			}
			difftest.Says(t, <-fatal, "node1", "registered again")
		})
	}
}

func TestRejectedClaimDoesNotAffectAnother(t *testing.T) {
	r := dratest.NewRig(t)
	good, bad := dratest.DeviceClaim("good", "cni", dratest.Network(`{"type":"x"}`)), dratest.DeviceClaim("bad", "cni", dratest.Network(`{"type":"x"}`))
	raw := &bad.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	*raw = bytes.Replace(*raw, []byte("cni.networking.x-k8s.io/v1alpha1"), []byte("no-such-group/v1"), 1)
	r.StartKubelet(dratest.APIServer(nil, good, bad), 0)
	all := r.AskToPrepare(bad, good)
	difftest.Contains(t, all["bad"].Error, "no-such-group")
	if a := all["good"]; a.Error != "" || len(a.Devices) != 1 || len(a.Devices[0].CdiDeviceIds) != 2 { // the gate and the metadata
		t.Errorf("got %v", a)
	}
	r.UnprepareByKubelet(bad, good)
}

// The kubelet does not prepare a prepared claim again, so its response must have the error.
func TestPrepareFailsIfMetadataCannotBeWritten(t *testing.T) {
	for _, full := range []string{"dra-device-metadata", "cdi"} {
		r, claim := dratest.NewRig(t), dratest.ClaimIn("", "net", "u1", "pod", dratest.Net("r", "net1", ""))
		r.UsePlugins()
		r.StartKubelet(dratest.APIServer(nil, claim), 0)
		difftest.Must(t, os.WriteFile(filepath.Join(r.Dir, full), nil, 0o644)) // fails the write, like a full disk
		difftest.Contains(t, r.AskToPrepare(claim)["u1"].GetError(), filepath.Join(r.Dir, full))
		difftest.Must(t, os.Remove(filepath.Join(r.Dir, full)))
		difftest.Same(t, full, len(r.PrepareByKubelet(claim)["u1"].Devices[0].CdiDeviceIds), 2)
		difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
	}
}

func TestRemovedCDISpecsOfMetadataAreRestored(t *testing.T) {
	r, claim := dratest.NewRig(t), dratest.ClaimIn("", "net", "u1", "pod", dratest.Net("r", "net1", ""))
	r.UsePlugins()
	clear := func() {
		for _, name := range r.Files("cdi") {
			difftest.Must(t, os.Remove(filepath.Join(r.Dir, "cdi", name)))
		}
	}
	both := func() bool { return len(r.Files("cdi")) == 2 } // the gate and the metadata
	r.StartKubelet(dratest.APIServer(nil, claim), 0)
	r.PrepareByKubelet(claim)
	difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
	clear()
	difftest.Eventually(t, "both specs are written again", both)
	r.StartKubelet(dratest.APIServer(nil, claim), 0) // the next process first has to read the specs
	clear()
	difftest.Eventually(t, "both specs are written again by the next process", both)
	restorable := func() float64 { return r.Samples()["dra_metadata_files_active driver="+dratest.Driver] }
	difftest.Same(t, "specs that sweeps restore", restorable(), 1.0)
	clear()
	r.UnprepareByKubelet(claim)
	difftest.Eventually(t, "nothing to restore", func() bool { return restorable() == 0 })
	r.ExpectFiles("cdi", 0)
}

// What an earlier process wrote cannot be read at the start. The claim keeps its metadata, and what was read later is restored.
func TestMetadataIsUpdatedThoughItsSpecCannotBeReadAtStart(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a link":      func(path string) error { return os.Symlink(path, path) },
		"large":       func(path string) error { return os.WriteFile(path, make([]byte, 2<<20), 0o644) },
	} {
		r, claim := dratest.NewRig(t), dratest.ClaimIn("", "net", "u1", "pod", dratest.Net("r", "net1", ""))
		r.UsePlugins()
		client := dratest.APIServer(nil, claim)
		r.StartKubelet(client, 0)
		r.PrepareByKubelet(claim)
		r.Stop()
		dir := filepath.Join(r.Dir, "cdi")
		spec := filepath.Join(dir, r.Files("cdi")[0])
		text := difftest.Read(t, spec)
		difftest.Must(t, os.Remove(spec), replace(spec))
		r.StartKubelet(client, 0)
		difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
		difftest.Same(t, name+": generation after ADD", generation(r, claim), int64(2))
		r.Stop()
		difftest.Must(t, os.Rename(dir, dir+".saved"), os.Symlink(dir, dir))
		k := r.StartKubelet(client, 0)
		difftest.Is(t, r.Agent.RewriteMetadata("u1"), syscall.ELOOP)
		// At once, because a sweep in between would make the directory again, for the spec of the gate.
		difftest.Must(t, unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, dir+".saved", unix.RENAME_EXCHANGE), r.Agent.RewriteMetadata("u1"))
		difftest.Must(t, os.WriteFile(spec+".new", []byte(text), 0o644), os.Remove(spec), os.Rename(spec+".new", spec))
		difftest.Must(t, k.Tidy(), os.Remove(spec))
		difftest.Eventually(t, name+": it is restored", func() bool { return slices.Contains(r.Files("cdi"), filepath.Base(spec)) })
		difftest.Same(t, name, difftest.Read(t, spec), text)
		r.Stop()
		difftest.Must(t, os.Remove(spec), replace(spec))
		k = r.StartKubelet(client, 0)
		difftest.Must(t, os.RemoveAll(spec), k.Tidy()) // an administrator has removed it
		r.Stop()
	}
}

// The disk with the records is away for a moment.
func TestMetadataStaysWhileRecordsAreMissing(t *testing.T) {
	r, claim := dratest.NewRig(t), dratest.ClaimIn("", "net", "u1", "pod", dratest.Net("r", "net1", ""))
	r.UsePlugins()
	k, dir := r.StartKubelet(dratest.APIServer(nil, claim), 0), r.Options.StateDir
	r.PrepareByKubelet(claim)
	difftest.Must(t, os.Rename(dir, dir+".saved"), k.Tidy(), os.Rename(dir+".saved", dir))
	difftest.Same(t, "generation", generation(r, claim), int64(1))
	r.ExpectFiles("cdi", 1)
	r.UnprepareByKubelet(claim)
}

// Somebody mounts the directory after the driver has started.
func TestMetadataIsUpdatedThoughDirectoryOfSpecsIsMissingAtStart(t *testing.T) {
	r, claim := dratest.NewRig(t), dratest.ClaimIn("", "net", "u1", "pod", dratest.Net("r", "net1", ""))
	r.UsePlugins()
	client, dir := dratest.APIServer(nil, claim), filepath.Join(r.Dir, "cdi")
	r.StartKubelet(client, 0)
	r.PrepareByKubelet(claim)
	r.Stop()
	difftest.Must(t, os.Rename(dir, dir+".saved"))
	k := r.StartKubelet(client, 0)
	difftest.Must(t, k.Tidy(), os.Rename(dir+".saved", dir))
	difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
	difftest.Same(t, "generation after ADD", generation(r, claim), int64(2))
}

// A file that cannot be looked at is not missing.
func TestClaimThatMayHaveMetadataIsNotPreparedWithout(t *testing.T) {
	r, claim := dratest.NewRig(t), dratest.ClaimIn("", "net", "u1", "pod", dratest.Net("r", "net1", ""))
	r.UsePlugins()
	client := dratest.APIServer(nil, claim)
	r.StartKubelet(client, 0)
	r.PrepareByKubelet(claim)
	r.NoMetadata = true
	r.StartKubelet(client, 0)
	dir := filepath.Join(r.Dir, "dra-device-metadata")
	difftest.Must(t, os.Rename(dir, dir+".saved"), os.Symlink(dir, dir))
	difftest.Contains(t, r.AskToPrepare(claim)["u1"].GetError(), "cannot write the device metadata")
	difftest.Must(t, os.Remove(dir), os.Rename(dir+".saved", dir))
	difftest.Same(t, "CDI devices", len(r.PrepareByKubelet(claim)["u1"].Devices[0].CdiDeviceIds), 2)
}

// The library serves the sockets in goroutines, which may run only after Stop. test/apiserver checks that a real API server
// returns the error for a list of NUMA nodes.
func TestOnlyLastingErrorsAreFatal(t *testing.T) {
	slice := schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceSlice"}
	refused := func(attribute string) error {
		path := field.NewPath("spec", "devices").Index(0).Child("attributes").Key(attribute)
		invalid := apierrors.NewInvalid(slice, "s", field.ErrorList{field.Required(path, "exactly one value must be specified")})
		return fmt.Errorf("create: %w", errors.Join(kubeletplugin.ErrRecoverable, invalid))
	}
	agent := dratest.NewRig(t).Start()
	for _, test := range []struct {
		err   error
		fatal []string // parts of the error; nil = the process goes on
	}{
		{fmt.Errorf("serve: %w", grpc.ErrServerStopped), nil},
		{os.ErrPermission, []string{"publish: permission denied"}},
		{refused("devinfo-cni.io/mtu"), nil},
		{refused("resource.kubernetes.io/numaNode"), []string{"publish: create: ", "DRAListTypeAttributes", "--numa-node=scalar"}},
	} {
		var fatal []error
		k := dra.Unstarted(agent, dra.KubeletOptions{Fatal: func(err error) { fatal = append(fatal, err) }})
		k.HandleError(t.Context(), test.err, "publish")
		if len(fatal) > 1 || (len(fatal) == 1) != (test.fatal != nil) {
			t.Errorf("%v: fatal %v", test.err, fatal)
		}
		if test.fatal != nil {
			difftest.Says(t, errors.Join(fatal...), test.fatal...)
		}
	}
}

// A pool may have several slices, each of which lacks the fields. What the driver cannot do without them it says once.
func TestDroppedFieldsOfFurtherSlicesAreNoError(t *testing.T) {
	r, log := dratest.NewRig(t), &difftest.Log{}
	r.Options.Log = slog.New(slog.NewTextHandler(log, nil))
	k := dra.Unstarted(r.Start(), dra.KubeletOptions{})
	tainted, shared := resourceapi.Device{Taints: []resourceapi.DeviceTaint{{}}}, resourceapi.Device{AllowMultipleAllocations: new(bool)}
	for _, wanted := range []resourceapi.Device{tainted, tainted, shared, shared} {
		slice := func(d resourceapi.Device) *resourceapi.ResourceSlice {
			return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{d}}}
		}
		dropped := &resourceslice.DroppedFieldsError{DesiredSlice: slice(wanted), ActualSlice: slice(resourceapi.Device{})}
		k.HandleError(t.Context(), errors.Join(kubeletplugin.ErrRecoverable, dropped), "publish")
	}
	text := log.String()
	difftest.Lacks(t, text, "level=ERROR")
	difftest.Same(t, "warnings", strings.Count(text, "level=WARN"), 2)
}

func TestFirstFailureToPublishIsFatal(t *testing.T) {
	r, fatal := dratest.NewRig(t), make(chan error, 1)
	agent, err := claim.New(r.Options)
	difftest.Must(t, err)
	defer agent.Close()
	k, err := dra.StartKubelet(t.Context(), agent, dra.KubeletOptions{ // without the node's name, which publishing needs
		Client: dratest.APIServer(nil), PluginDir: r.Dir, RegistrarDir: r.Dir, Fatal: func(err error) { fatal <- err },
	})
	difftest.Must(t, err)
	defer k.Stop()
	difftest.Eventually(t, "the process ends", func() bool { return len(fatal) > 0 })
	difftest.Says(t, <-fatal, "NodeName")
}

// The kubelet unregisters a plugin whose registration socket is removed, and reaches it by the other.
func TestRemovedSocketEndsTheDriver(t *testing.T) {
	for _, socket := range []string{dratest.Driver + "-reg.sock", "dra.sock"} {
		r, fatal := dratest.NewRig(t), make(chan error, 100)
		k, err := dra.StartKubelet(t.Context(), r.Start(), dra.KubeletOptions{
			Node: "node1", Client: dratest.APIServer(nil), PluginDir: r.Dir, RegistrarDir: r.Dir, Fatal: func(err error) { fatal <- err },
		})
		difftest.Must(t, err, os.Remove(filepath.Join(r.Dir, socket)))
		difftest.Eventually(t, "the process ends without "+socket, func() bool { return len(fatal) > 0 })
		difftest.Says(t, <-fatal, filepath.Join(r.Dir, socket), "was removed")
		k.Stop()
	}
}
