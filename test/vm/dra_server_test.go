//go:build vm

package vm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// A server stands in for the API server, which the machine has not got: the objects of
// client-go's fake clientset, by HTTP. It checks nothing, drops no fields, and takes no
// notice of selectors: there is one node and one driver.
type server struct {
	*fake.Clientset
	kubeconfig string

	mu     sync.Mutex
	count  int
	writes []sliceWrite
}

// A sliceWrite is one change of a ResourceSlice.
type sliceWrite struct {
	verb  string
	slice resourceapi.ResourceSlice
	at    time.Time
}

const nodeName = "node1"

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{Clientset: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "uid-node1"}})}
	s.PrependReactor("create", "*", s.name)
	for _, verb := range []string{"create", "update", "delete"} {
		s.PrependReactor(verb, "resourceslices", s.note)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	write(t, s.kubeconfig, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q}}]}`, web.URL))
	return s
}

// name names an object as generateName wants it.
func (s *server) name(action clienttesting.Action) (bool, runtime.Object, error) {
	object, err := apiMeta(action.(clienttesting.CreateAction).GetObject())
	if err != nil {
		return true, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if object.GetName() == "" {
		object.SetName(fmt.Sprint(object.GetGenerateName(), s.count))
	}
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprint("uid-", s.count)))
	}
	return false, nil, nil
}

func apiMeta(object runtime.Object) (metav1.Object, error) {
	if o, ok := object.(metav1.Object); ok {
		return o, nil
	}
	return nil, fmt.Errorf("%T has no metadata", object)
}

// note notes down what happens to a slice, before it does.
func (s *server) note(action clienttesting.Action) (bool, runtime.Object, error) {
	w := sliceWrite{verb: action.GetVerb(), at: time.Now()}
	switch a := action.(type) {
	case clienttesting.UpdateAction: // which a CreateAction is too
		w.slice = *a.GetObject().(*resourceapi.ResourceSlice).DeepCopy()
	case clienttesting.DeleteAction:
		w.slice.Name = a.GetName()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, w)
	return false, nil, nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var object runtime.Object
	if err == nil {
		object, err = s.serve(w, r, body)
	}
	if err == nil && object == nil { // it was a watch, or there is nothing to say
		return
	}
	status := http.StatusOK
	if err != nil {
		var known apierrors.APIStatus
		if !errors.As(err, &known) {
			known = apierrors.NewInternalError(err)
		}
		failure := known.Status()
		status, object = int(failure.Code), &failure
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintln(w, encoded(object))
}

// A request is what is asked of which object.
type request struct {
	of             schema.GroupVersionResource
	kind           string
	ns, name, part string // part is a subresource
}

// parsePath reads a path, /apis/GROUP/VERSION[/namespaces/NS]/RESOURCE[/NAME[/PART]] or below
// /api/VERSION.
func parsePath(text string) (q request, err error) {
	path := strings.Split(strings.TrimPrefix(strings.Trim(text, "/"), "api/"), "/")
	if path[0] == "apis" && len(path) > 3 {
		q.of.Group, path = path[1], path[2:]
	}
	q.of.Version, path = path[0], path[1:]
	if len(path) > 2 && path[0] == "namespaces" {
		q.ns, path = path[1], path[2:]
	}
	path = append(path, "", "", "")
	q.of.Resource, q.name, q.part = path[0], path[1], path[2]
	q.kind = map[string]string{"nodes": "Node", "events": "Event", "resourceslices": "ResourceSlice", "resourceclaims": "ResourceClaim"}[q.of.Resource]
	if q.kind == "" {
		err = apierrors.NewNotFound(q.of.GroupResource(), q.name)
	}
	return q, err
}

// serve does what is asked for; a watch it serves to its end.
func (s *server) serve(w http.ResponseWriter, r *http.Request, body []byte) (runtime.Object, error) {
	q, err := parsePath(r.URL.Path)
	if err != nil {
		return nil, err
	}
	kind := q.of.GroupVersion().WithKind(q.kind)
	empty, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut:
		sent, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if r.Method == http.MethodPut {
			return s.Invokes(clienttesting.NewUpdateSubresourceAction(q.of, q.part, q.ns, sent), empty)
		}
		return s.Invokes(clienttesting.NewCreateAction(q.of, q.ns, sent), empty)
	case http.MethodDelete:
		_, err := s.Invokes(clienttesting.NewDeleteAction(q.of, q.ns, q.name), empty)
		return &metav1.Status{Status: metav1.StatusSuccess}, err
	case http.MethodPatch:
		force := true
		how := metav1.PatchOptions{FieldManager: r.URL.Query().Get("fieldManager"), Force: &force}
		patch := types.PatchType(r.Header.Get("Content-Type"))
		return s.Invokes(clienttesting.NewPatchSubresourceActionWithOptions(q.of, q.ns, q.name, patch, body, how, q.part), empty)
	}
	query := r.URL.Query()
	options := metav1.ListOptions{ResourceVersion: query.Get("resourceVersion")}
	switch {
	case q.name != "":
		return s.Invokes(clienttesting.NewGetSubresourceAction(q.of, q.ns, q.part, q.name), empty)
	case query.Get("watch") == "":
		return s.Invokes(clienttesting.NewListActionWithOptions(q.of, kind, q.ns, options), empty)
	case query.Get("sendInitialEvents") != "": // then the client lists first
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	return nil, s.watch(w, r, clienttesting.NewWatchActionWithOptions(q.of, q.ns, options))
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, action clienttesting.WatchActionImpl) error {
	events, err := s.InvokesWatch(action)
	if err != nil {
		return err
	}
	defer events.Stop()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	for {
		if err := flush.Flush(); err != nil {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case e, open := <-events.ResultChan():
			if !open {
				return nil
			}
			fmt.Fprintf(w, `{"type": %q, "object": %s}`+"\n", e.Type, encoded(e.Object))
		}
	}
}

// encoded is an object as a server sends it, with its kind.
func encoded(object runtime.Object) string {
	object = object.DeepCopyObject()
	if found, _, err := scheme.Scheme.ObjectKinds(object); err == nil {
		object.GetObjectKind().SetGroupVersionKind(found[0])
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}

// since gives what has been written of the slices from then on.
func (s *server) since(then time.Time) (list []sliceWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes {
		if w.at.After(then) {
			list = append(list, w)
		}
	}
	return list
}
