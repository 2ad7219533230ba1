package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

// answers are the objects of an API server by path.
var answers = map[string]string{
	"/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c":        `{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","metadata":{"namespace":"ns","name":"c","uid":"u"}}`,
	"/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status": `{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","metadata":{"namespace":"ns","name":"c","uid":"u"}}`,
	"/api/v1/namespaces/ns/pods/p":                                   `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"ns","name":"p","uid":"u"},"spec":{"resourceClaims":[{"name":"c","resourceClaimName":"shared"}]}}`,
	"/api/v1/nodes/n":                                                `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","labels":{"rack":"a"}}}`,
}

// wrong are answers of API servers that are starting, overloaded or not API servers at all.
var wrong = map[string]func(http.ResponseWriter){
	"an empty object": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{}") },
	"a status": func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	},
	"nothing": func(http.ResponseWriter) {},
	"a page": func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<p>Sign in")
	},
	"404": func(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) },
	"404, a status": func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{}}`)
	},
	"401": refuse(401), "403": refuse(403), "409": refuse(409), "410": refuse(410), "429": refuse(429), "500": refuse(500), "503": refuse(503), "504": refuse(504),
}

func refuse(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { http.Error(w, http.StatusText(code), code) }
}

func TestAPIServerThatFailsIsNotAnEmptyAnswer(t *testing.T) {
	t.Parallel()
	var answer atomic.Pointer[func(http.ResponseWriter)] // a handler may outlive the call
	socket := filepath.Join(t.TempDir(), "api")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if wrong := answer.Load(); wrong != nil {
			(*wrong)(w)
			return
		}
		_, _ = io.WriteString(w, answers[r.URL.Path])
	}))
	listener, err := net.Listen("unix", socket)
	difftest.Must(t, err)
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	d := openDoor(t, socket)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", QPS: -1, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Addr().String())
	}})
	difftest.Must(t, err)
	var claim kubeletplugin.NamespacedObject
	claim.Namespace, claim.Name, claim.UID = "ns", "c", "u"
	for _, c := range []call{
		{"claim", func(ctx context.Context) (any, error) { return dra.ReadClaim(client)(ctx, claim) }},
		{"claims of a pod", func(ctx context.Context) (any, error) {
			return dra.ClaimsOf(client)(ctx, state.Pod{Namespace: "ns", Name: "p", UID: "u"})
		}},
		{"labels", func(ctx context.Context) (any, error) { return dra.ReadLabels(client, "n")(ctx) }},
		{"status", func(ctx context.Context) (any, error) {
			return nil, status.Apply(ctx, client, status.Report{Driver: "d", Namespace: "ns", Name: "c", UID: "u"})
		}},
	} {
		c.try(t, d)
		for name, wrong := range wrong {
			answer.Store(&wrong)
			got, err := c.ask(t.Context())
			if err == nil || errors.Is(err, status.ErrGone) {
				t.Errorf("%s, %s: %v, %v", c.name, name, got, err)
			}
			answer.Store(nil)
		}
	}
}

// refusals are the errors of a call, with why in their text. noObject is an answer that is not an object.
var refusals = map[string]func(of schema.GroupResource, why error) error{
	"deadline": func(_ schema.GroupResource, why error) error {
		return fmt.Errorf("%w: %w", why, context.DeadlineExceeded)
	},
	"forbidden": func(of schema.GroupResource, why error) error { return apierrors.NewForbidden(of, "x", why) },
	"conflict":  func(of schema.GroupResource, why error) error { return apierrors.NewConflict(of, "x", why) },
	"internal":  func(_ schema.GroupResource, why error) error { return apierrors.NewInternalError(why) },
	"overload":  func(_ schema.GroupResource, why error) error { return apierrors.NewTooManyRequests(why.Error(), 1) },
	"not served": func(_ schema.GroupResource, why error) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404, Message: why.Error()}}
	},
	"truncated": func(_ schema.GroupResource, why error) error { return fmt.Errorf("%w: %w", why, io.ErrUnexpectedEOF) },
	"closed": func(_ schema.GroupResource, why error) error {
		return &url.Error{Op: "Do", URL: "https://api", Err: fmt.Errorf("%w: %w", why, syscall.ECONNRESET)}
	},
	noObject: func(schema.GroupResource, error) error { return nil },
}

const noObject = "no object"

// said is what the libraries of Kubernetes log.
var said difftest.Log

func init() { klog.SetSlogLogger(slog.New(slog.NewTextHandler(&said, nil))) }

// A refuser makes each call of a client fail once.
type refuser struct {
	fault  string // a key of refusals
	mu     sync.Mutex
	failed map[string]bool // by call, such as "patch resourceclaims/status"
	asked  map[string]bool // the same, also those that do not fail
	whys   []string        // texts of the errors
}

// noObjects are the calls that can be answered without an object. The others are the library's.
var noObjects = []string{"create events", "create resourceslices", "delete resourceslices", "list resourceslices", "patch resourceclaims/status", "update resourceslices"}

func (r *refuser) refuses(a clienttesting.Action) (bool, error) {
	call := a.GetVerb() + " " + strings.TrimSuffix(a.GetResource().Resource+"/"+a.GetSubresource(), "/")
	r.mu.Lock()
	defer r.mu.Unlock()
	why := fmt.Errorf("made up: %s, %s", r.fault, call)
	if of := a.GetResource(); of.Version != "v1" { // the library tries older versions after a 404
		return true, refusals["not served"](of.GroupResource(), why)
	}
	r.asked[call] = true
	if r.failed[call] || r.fault == noObject && !slices.Contains(noObjects, call) || r.fault == "overload" && a.GetVerb() == "watch" { // the library waits without a word
		return false, nil
	}
	r.failed[call] = true
	r.whys = append(r.whys, why.Error())
	return true, refusals[r.fault](a.GetResource().GroupResource(), why)
}

// again lets each call fail once more.
func (r *refuser) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = map[string]bool{}
}

func (r *refuser) has(call string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed[call]
}

// between returns a client of the server that sees the faults.
func (r *refuser) between(server *fake.Clientset) *fake.Clientset {
	client := fake.NewClientset()
	client.ReactionChain, client.WatchReactionChain = server.ReactionChain, server.WatchReactionChain
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, nil
	})
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, nil
	})
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		refused, err := r.refuses(a)
		return refused, nil, err
	})
	client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		refused, err := r.refuses(a)
		return refused, nil, err
	})
	return client
}

// A driver whose calls of the API server fail once each says so each time. It offers the same devices, attaches the same
// pod, reports it, and at its end removes its slices.
func TestCallOfAPIServerThatFailsIsSaidAndRepeated(t *testing.T) {
	for fault := range refusals {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			made := dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`))
			server, refuser, log := dratest.APIServer(nil, made), &refuser{fault: fault, failed: map[string]bool{}, asked: map[string]bool{}}, &difftest.Log{}
			r, n, client := dratest.NewRig(t), dratest.NewNode(t, "mlx5-switchdev"), refuser.between(server)
			r.UsePlugins()
			o := &r.Options
			o.Log = slog.New(slog.NewTextHandler(log, nil))
			o.Status = func(ctx context.Context, report status.Report) error { return status.Apply(ctx, client, report) }
			o.Read, o.ClaimsOf, o.Notify = dra.ReadClaim(client), dra.ClaimsOf(client), dra.PostNotices(client, dratest.Driver, "node1", o.Log)
			r.StartOffering(client, n)
			dratest.WaitDevices(t, server, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF2, dratest.VF3)
			n.Change(func() { n.Remove("enp3s0f0v2") })
			dratest.WaitDevices(t, server, dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF3)
			difftest.Same(t, "shares devices", r.Agent.Node.Sharing(), true)

			plugin, references := dratest.CallAsKubelet(r, []*resourceapi.ResourceClaim{made})
			if fault != noObject {
				_, err := plugin.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: references})
				difftest.Says(t, err, "made up")
				fmt.Fprintln(log, err)
			}
			r.PrepareByKubelet(made)
			_, _ = o.ClaimsOf(t.Context(), state.Pod{Namespace: "ns", Name: "pod"}) // as for a pod with claims by name
			difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
			r.Options.Notify(claim.Notice{Pod: state.Pod{Namespace: "ns", Name: "pod", UID: "uid-pod"}, Reason: claim.NoticeFailed})
			difftest.Eventually(t, "the status is written", func() bool { return r.Agent.Census().PendingStatus == 0 && refuser.has("create events") })
			refuser.again()
			r.Stop()
			r.Agent, r.Withdraw = nil, true
			r.StartKubelet(client, 0)
			dratest.WaitDevices(t, server)
			refuser.expectSaid(t, log)
			difftest.Same(t, "permissions", permissions(t), slices.Sorted(maps.Keys(refuser.asked)))
		})
	}
}

// permissions are those of the driver. An unused one helps only an attacker, and a missing one shows in a cluster.
func permissions(t *testing.T) []string {
	t.Helper()
	allowed := map[string]bool{}
	for _, document := range strings.Split(difftest.Read(t, "../../deploy/cni-dra-driver/rbac.yaml"), "\n---\n") {
		var role rbacv1.ClusterRole
		difftest.Must(t, yaml.Unmarshal([]byte(document), &role))
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				allowed[verb+" "+rule.Resources[0]] = true
			}
		}
	}
	delete(allowed, "associated-node:patch resourceclaims/driver") // the API server checks it when the driver patches a status
	return slices.Sorted(maps.Keys(allowed))
}

func (r *refuser) expectSaid(t *testing.T, log *difftest.Log) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	want, calls := slices.DeleteFunc(r.whys, func(why string) bool { return strings.HasSuffix(why, "get pods") }), 10 // "list resourceslices" twice
	switch r.fault {
	case "overload":
		calls-- // of watch
	case noObject:
		calls = len(noObjects) + 1
		want = []string{"cannot create an Event", "create ResourceSlice: publishing again", "update ResourceSlice: publishing again", "cannot write the status of a claim", "not a list"}
	}
	if len(r.whys) < calls {
		t.Errorf("%q are fewer than %d", r.whys, calls)
	}
	difftest.Contains(t, log.String()+said.String(), want...)
}
