//go:build vm

package vm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// The real Multus, called as by a container runtime, reads pods and networks from here: of an
// API server there is no more. Which device the kubelet has allocated it reads in the
// kubelet's checkpoint.
type cluster struct {
	t          *testing.T
	kubeconfig string
	binDir     string // of plugins that come first

	mu       sync.Mutex
	pods     map[string]*corev1.Pod // by API path
	networks map[string][]byte      // JSON, by API path
}

const (
	networksAnnotation = "k8s.v1.cni.cncf.io/networks"
	statusAnnotation   = "k8s.v1.cni.cncf.io/network-status"
	resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"
	checkpoint         = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
)

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, binDir: plugins, pods: map[string]*corev1.Pod{}, networks: map[string][]byte{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	write(t, c.kubeconfig, `{"apiVersion": "v1", "kind": "Config", "current-context": "vm",
		"clusters": [{"name": "vm", "cluster": {"server": "`+server.URL+`"}}], "users": [{"name": "vm", "user": {}}],
		"contexts": [{"name": "vm", "context": {"cluster": "vm", "user": "vm"}}]}`)
	return c
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	pod, isPod := c.pods[strings.TrimSuffix(r.URL.Path, "/status")]
	network, isNetwork := c.networks[r.URL.Path]
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events"):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Event"}`)
	case isNetwork && r.Method == http.MethodGet:
		_, _ = w.Write(network)
	case isPod && r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, pod)
		}
		if err != nil {
			c.t.Errorf("%s: %v", r.URL.Path, err)
		}
		fallthrough
	case isPod:
		_ = json.NewEncoder(w).Encode(pod)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}`)
	}
}

// example reads a file of deploy/examples: its network goes into the cluster; the rest, a pod
// or a VM, is the answer, with the resource of the network.
func (c *cluster) example(name string) (rest, resource string) {
	c.t.Helper()
	for document := range strings.SplitSeq(read(c.t, "examples/"+name+".yaml"), "\n---\n") {
		object, err := yaml.YAMLToJSON([]byte(document))
		must(c.t, err)
		var about struct {
			Kind     string
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
		}
		must(c.t, json.Unmarshal(object, &about))
		if about.Kind != "NetworkAttachmentDefinition" {
			rest = document
			continue
		}
		// As the API server gives it back.
		object = []byte(strings.Replace(string(object), `"metadata":{`, `"metadata":{"namespace":"default",`, 1))
		c.networks["/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions/"+about.Metadata.Name] = object
		resource = about.Metadata.Annotations[resourceAnnotation]
	}
	if rest == "" || len(c.networks) != 1 {
		c.t.Fatalf("%s: %d networks and the pod %q", name, len(c.networks), rest)
	}
	return rest, resource
}

// A sandbox is a pod's.
type sandbox struct {
	*attachment // of the pod to Multus
	*cluster
	t     *testing.T
	pod   *corev1.Pod
	ended bool
}

// sandbox makes that of a pod, for which the kubelet has allocated a device of the resource
// that it asks for.
func (c *cluster) sandbox(pod *corev1.Pod, deviceID string) *sandbox {
	c.t.Helper()
	pod.Namespace, pod.UID = "default", "7d0f3c52-0f6e-4a52-9a55-000000000001"
	c.pods["/api/v1/namespaces/default/pods/"+pod.Name] = pod
	allocated, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": []any{map[string]any{
		"PodUID": pod.UID, "ContainerName": "app", "ResourceName": asked(pod), "DeviceIDs": map[string][]string{"-1": {deviceID}},
	}}}})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(checkpoint), 0o755)
	}
	must(c.t, err)
	write(c.t, checkpoint, string(allocated))
	c.t.Cleanup(func() { os.Remove(checkpoint) })
	n := newNetworkIn(c.t, "1.0.0", "multus-cni-network", fmt.Sprintf(`[{"type": "multus", "kubeconfig": %q, "binDir": %q, "logToStderr": true, "logLevel": "error", "retryDeleteOnError": true,
		"delegates": [{"cniVersion": "1.0.0", "name": "default", "plugins": [{"type": "bridge", "bridge": "vmbr1", "ipam": {"type": "host-local", "subnet": "10.244.0.0/24"}}]}]}]`,
		c.kubeconfig, c.binDir))
	c.t.Cleanup(func() { run(c.t, "ip", "link", "del", "vmbr1") })
	a := n.attachment(sandboxID, "eth0", "")
	a.rt.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Namespace}, {"K8S_POD_NAME", pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", sandboxID}, {"K8S_POD_UID", string(pod.UID)}}
	s := &sandbox{attachment: a, cluster: c, t: c.t, pod: pod}
	c.t.Cleanup(func() {
		if !s.ended { // the test has failed
			_, _ = s.tryDel(), s.tryDel()
		}
	})
	return s
}

// asked is the device plugin's resource that a pod asks for.
func asked(pod *corev1.Pod) string {
	for name := range pod.Spec.Containers[0].Resources.Limits {
		if strings.Contains(string(name), "/") {
			return string(name)
		}
	}
	return ""
}

const (
	sandboxID = "5be2c0ffee"
	multusDir = "/var/lib/cni/multus"
)

// start is what the runtime does before it makes containers. Multus gives its API server two
// seconds and a half to answer, which may be too few here: the kubelet tries again.
func (s *sandbox) start() {
	s.t.Helper()
	_, err := s.tryAdd()
	for end := time.Now().Add(3 * time.Minute); err != nil && strings.Contains(fullText(err), impatient) && time.Now().Before(end); {
		_, err = s.tryAdd()
	}
	if err != nil {
		s.t.Fatalf("ADD: %s\n%s", fullText(err), s.warnings())
	}
	s.silent()
}

// impatient is what Multus says when the API server has not answered in time. It adds nothing
// then; and it deletes all the same, by what it has on disk.
const impatient = "error waiting for pod"

// silent fails the test if somebody has had anything to say, but Multus of its events and its
// impatience.
func (s *sandbox) silent() {
	s.t.Helper()
	same(s.t, "standard error", regexp.MustCompile(`(?m)^(I\d{4} |.*`+impatient+`).*\n?`).ReplaceAllString(s.warnings(), ""), "")
}

// A status is what Multus tells of one network in network-status.
type status struct {
	Name       string          `json:"name"`
	Interface  string          `json:"interface"`
	IPs        []string        `json:"ips"`
	MAC        string          `json:"mac"`
	MTU        int             `json:"mtu"`
	DeviceInfo json.RawMessage `json:"device-info"`
}

// status gives what network-status has of an interface.
func (s *sandbox) status(ifName string) status {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.pod.Annotations[statusAnnotation]
	var all []status
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		s.t.Fatalf("network-status %q: %v", text, err)
	}
	at := slices.IndexFunc(all, func(st status) bool { return st.Interface == ifName })
	if at < 0 {
		s.t.Fatalf("network-status does not have %s: %s", ifName, text)
	}
	return all[at]
}

// nothingBut fails the test if a plugin keeps other files than these, and removes all.
func nothingBut(t *testing.T, dir string, want ...string) {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			found = append(found, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if !slices.Equal(found, want) {
		t.Errorf("%s has %s, want %s", dir, found, want)
	}
	os.RemoveAll(dir)
}

const sriovDir = "/var/lib/cni/sriov"
