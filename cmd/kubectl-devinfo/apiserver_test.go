package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/remotecommand"

	"devinfo-cni.io/test/difftest"
)

// apiServer is a fake API server with selectors and pages. It counts requests.
type apiServer struct {
	*httptest.Server
	objects   map[string][]runtime.Object // by resource
	forbidden string                      // resource; "" = none
	unknown   string                      // resource of a later Kubernetes; "" = none

	mu       sync.Mutex
	requests []string // method and path, without the namespace
}

func newAPIServer(t *testing.T, objects ...runtime.Object) *apiServer {
	t.Helper()
	s := &apiServer{objects: map[string][]runtime.Object{}}
	for _, o := range objects {
		resource := strings.ToLower(strings.TrimPrefix(filepath.Ext(fmt.Sprintf("%T", o)), ".")) + "s"
		if resource == "unstructureds" {
			resource = "network-attachment-definitions"
		}
		s.objects[resource] = append(s.objects[resource], o)
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// tool returns the program with this server as its cluster.
func (s *apiServer) tool(t *testing.T) (tool *tool, stdout, stderr *bytes.Buffer) {
	t.Helper()
	t.Setenv("KUBECONFIG", "/nonexistent")
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	tool = newTool(streams)
	*tool.config.APIServer = s.URL
	return tool, stdout, stderr
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/v1/")
	parts, namespace := strings.Split(path, "/"), ""
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	all := slices.DeleteFunc(slices.Clone(s.objects[parts[0]]), func(o runtime.Object) bool {
		m, _ := meta.Accessor(o)
		return namespace != "" && m.GetNamespace() != namespace || len(parts) > 1 && m.GetName() != parts[1]
	})
	var answer any
	switch {
	case parts[0] == s.forbidden:
		answer = failure(w, http.StatusForbidden, metav1.StatusReasonForbidden, path+" is forbidden")
	case parts[0] == s.unknown:
		answer = failure(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case len(parts) > 1 && len(all) == 0:
		answer = failure(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", parts[0], parts[1]))
	case len(parts) > 1:
		answer = all[0]
	default:
		answer = page(r, all)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+strings.Join(parts, "/"))
	s.mu.Unlock()
	_, _ = w.Write(text)
}

func failure(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) *metav1.Status {
	w.WriteHeader(int(code))
	kind := metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &metav1.Status{TypeMeta: kind, Status: metav1.StatusFailure, Reason: reason, Code: code, Message: message}
}

// page returns one page of the objects that match the request's selectors.
func page(r *http.Request, all []runtime.Object) any {
	query := r.URL.Query()
	byField, byLabel := fields.ParseSelectorOrDie(query.Get("fieldSelector")), labels.Everything()
	if text := query.Get("labelSelector"); text != "" {
		byLabel, _ = labels.Parse(text)
	}
	all = slices.DeleteFunc(all, func(o runtime.Object) bool {
		set := fields.Set{}
		if pod, is := o.(*corev1.Pod); is {
			set["spec.nodeName"] = pod.Spec.NodeName
		}
		m, _ := meta.Accessor(o)
		return !byField.Matches(set) || !byLabel.Matches(labels.Set(m.GetLabels()))
	})
	from, _ := strconv.Atoi(query.Get("continue"))
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil {
		limit = len(all)
	}
	to, next := min(from+limit, len(all)), ""
	if to < len(all) {
		next = fmt.Sprint(to)
	}
	list := map[string]any{"metadata": map[string]string{"continue": next}, "items": all[from:to]}
	if len(all) > 0 {
		list["kind"] = strings.TrimPrefix(filepath.Ext(fmt.Sprintf("%T", all[0])), ".") + "List"
		list["apiVersion"] = regexp.MustCompile(`^/apis?/(.*v1)/`).FindStringSubmatch(r.URL.Path)[1]
	}
	return list
}

// fleet returns a cluster whose nodes each have ten pods. Half of the pods have a claim.
func fleet(nodes int) (all []runtime.Object) {
	for n := range nodes {
		node := fmt.Sprintf("n%03d", n)
		for p := range 10 {
			name := fmt.Sprintf("web-%d", 10*n+p)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", n%10), Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
			if p%2 == 0 {
				pod.Annotations = dpdk().Annotations
			} else {
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net", ResourceClaimName: &name}}
				all = append(all, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name}, Status: resourceapi.ResourceClaimStatus{
					ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}},
					Devices: []resourceapi.AllocatedDeviceStatus{{Driver: driver, Pool: node, Device: fmt.Sprint("d", p), NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1"},
						Data: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"devinfo-cni.io/device": {"type": "pci", "device": "0000:3b:00.%d"}}`, p)}}},
				}})
			}
			all = append(all, pod)
		}
	}
	return all
}

// The number of requests depends on the shown pods, not on the size of the cluster.
func TestRequestsDoNotGrowWithCluster(t *testing.T) {
	ours := agent("devinfo-agent", "devinfo", "a")
	ours.Spec.NodeName = "n000"
	server := newAPIServer(t, append(fleet(120), ours)...)
	for args, test := range map[string]struct {
		requests map[string]int // by method and resource
		lines    int            // printed
	}{
		"pod pod/web-1 -n ns0":            {map[string]int{"GET pods": 1, "GET pods/": 1, "GET resourceclaims/": 1}, 6},
		"pod web-0 -n ns0":                {map[string]int{"GET pods": 1, "GET pods/": 1}, 18},
		"-n ns3":                          {map[string]int{"GET pods": 1, "GET resourceclaims": 1}, 121},
		"holder 0000:3b:00.3 --node n007": {map[string]int{"GET pods": 1, "GET resourceclaims/": 5}, 2},
		"-A":                              {map[string]int{"GET pods": 3, "GET resourceclaims": 2}, 1201},
	} {
		tool, stdout, stderr := server.tool(t)
		tool.answer("{}", "", nil)
		server.requests = nil
		if code := tool.run(t.Context(), strings.Fields(args)...); code != 0 || stderr.Len() > 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		requests := map[string]int{}
		for _, r := range server.requests {
			resource, _, one := strings.Cut(r, "/")
			if one {
				resource += "/"
			}
			requests[resource]++
		}
		difftest.Same(t, args, requests, test.requests)
		if lines := strings.Count(stdout.String(), "\n"); lines < test.lines {
			t.Errorf("%s: %d lines", args, lines)
		}
	}
}

// An API server, or a proxy before it, may lack WebSocket support.
func TestCommandsOnANodeFallBackToSPDY(t *testing.T) {
	var tried []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tried = append(tried, r.Method+" "+r.Header.Get("Upgrade"))
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	s := &apiServer{Server: server}
	tool, _, _ := s.tool(t)
	_ = tool.connect()
	err := tool.execute(t.Context(), agent("devinfo-agent", "devinfo", "a"), []string{"/devinfoctl", "list"}, remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !slices.Equal(tried, []string{"GET websocket", "POST SPDY/3.1"}) {
		t.Errorf("%v: %q", err, tried)
	}
}
