// Package podresources lists the devices that device plugins and claims have given to the pods of a node, as the
// kubelet's PodResources API reports them.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Given is a device that a device plugin has allocated to a pod.
type Given struct {
	Pod      string `json:"pod"`      // namespace/name
	Resource string `json:"resource"` // "example.com/sriov"
	Device   string `json:"device"`   // the plugin's ID; for SR-IOV the PCI address
}

// Claimed is a device that a resource claim has given to a pod. DRA does not say which device of the kernel it is, but
// drivers of PCI devices name it so that people can tell.
type Claimed struct {
	Pod    string   `json:"pod"`    // namespace/name; the kubelet lists a claim for each pod that names it
	Driver string   `json:"driver"` // "gpu.example.com"
	PCI    []string `json:"pci"`    // PCI addresses in the names of the device and of its CDI devices
}

type Answer struct {
	Pods    int // number of pods, with and without devices
	Given   []Given
	Claimed []Claimed
}

const (
	timeout = 10 * time.Second
	largest = 64 << 20 // of an answer; by default gRPC takes 4 MiB
)

// retries is a gRPC service config. The kubelet limits the rate of requests and answers RESOURCE_EXHAUSTED.
const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "2s",
	"backoffMultiplier": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

type method[Request, Response any] = func(podresourcesapi.PodResourcesListerClient, context.Context, *Request, ...grpc.CallOption) (*Response, error)

func ask[Request, Response any](ctx context.Context, socket string, call method[Request, Response]) (*Response, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(retries),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return call(podresourcesapi.NewPodResourcesListerClient(conn), ctx, new(Request))
}

// Advertised reports whether a running device plugin offers a device under a resource name. It calls
// GetAllocatableResources, from which the kubelet drops the devices of a plugin that has disconnected.
func Advertised(ctx context.Context, socket, resource, device string) (is bool, err error) {
	all, err := ask(ctx, socket, podresourcesapi.PodResourcesListerClient.GetAllocatableResources)
	for _, d := range all.GetDevices() {
		is = is || d.GetResourceName() == resource && slices.Contains(d.GetDeviceIds(), device)
	}
	return is, err
}

// Ask calls List of podresources/v1 on the kubelet's socket.
func Ask(ctx context.Context, socket string) (a Answer, err error) {
	list, err := ask(ctx, socket, podresourcesapi.PodResourcesListerClient.List)
	for _, p := range list.GetPodResources() {
		a.Pods++
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				for _, id := range d.GetDeviceIds() {
					a.Given = append(a.Given, Given{p.GetNamespace() + "/" + p.GetName(), d.GetResourceName(), id})
				}
			}
			for _, claim := range c.GetDynamicResources() {
				for _, d := range claim.GetClaimResources() {
					a.Claimed = append(a.Claimed, Claimed{p.GetNamespace() + "/" + p.GetName(), d.GetDriverName(), addressesOf(d)})
				}
			}
		}
	}
	return a, err
}

// address matches a PCI address in a name. Names of devices are DNS labels, so drivers write it with dashes.
var address = regexp.MustCompile(`(?:^|[^0-9a-f])([0-9a-f]{4,8})[:-]([0-9a-f]{2})[:-]([01][0-9a-f])[.-]([0-7])(?:$|[^0-9a-f])`)

func addressesOf(d *podresourcesapi.ClaimResource) (list []string) {
	names := []string{d.GetDeviceName()}
	for _, cdi := range d.GetCdiDevices() {
		_, name, _ := strings.Cut(cdi.GetName(), "=")
		names = append(names, name)
	}
	for _, name := range names {
		if part := address.FindStringSubmatch(strings.ToLower(name)); part != nil {
			list = append(list, fmt.Sprintf("%s:%s:%s.%s", part[1], part[2], part[3], part[4]))
		}
	}
	return slices.Compact(list)
}

// Memory combines the answers of a kubelet. A kubelet that has just started does not know all of its pods, so a device
// is free only after two answers without it. If the first answers contain no pod, they count only after ten seconds.
type Memory struct {
	Socket string // see [Ask]
	Driver string // the DRA driver whose claims are left out, because it has its own records; "" = none
	mu     sync.Mutex
	given  map[string]string    // reason by device; nil before the first answer that counts
	missed map[string]time.Time // time of the first answer without the device; the key "" is for the first answer without pods
}

// apart is the time between the two answers that free a device.
const apart = 10 * time.Second

// Ask lists the devices that device plugins and claims of other drivers have given to pods, with reasons. If the kubelet does not answer, it
// returns an error and the devices of the last answer, so that no device counts as free by mistake.
func (m *Memory) Ask(ctx context.Context) (map[string]string, error) {
	answer, err := Ask(ctx, m.Socket)
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		return maps.Clone(m.given), fmt.Errorf("check that the kubelet runs, and that the flag has the path of its socket: %w", err)
	}
	given, known := m.Take(answer, time.Now())
	if !known {
		err = errors.New("the kubelet lists no pods; this counts only after a second such answer, at least 10 s later")
	}
	return given, err
}

// Take adds an answer and returns the devices of pods with reasons. known is false if the answers may lack pods.
func (m *Memory) Take(answer Answer, now time.Time) (given map[string]string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	told, missed := map[string]string{}, map[string]time.Time{}
	for _, g := range answer.Given {
		told[g.Device] = fmt.Sprintf("pod %s has it from device plugin %s", g.Pod, g.Resource)
	}
	for _, c := range answer.Claimed {
		for _, device := range c.PCI {
			if c.Driver != m.Driver && told[device] == "" {
				told[device] = fmt.Sprintf("pod %s has it from DRA driver %s", c.Pod, c.Driver)
			}
		}
	}
	isRecent := func(device string) bool { // the first answer without the device came less than apart ago
		since, before := m.missed[device]
		if !before {
			since = now
		}
		if now.Sub(since) >= apart {
			return false
		}
		missed[device] = since
		return true
	}
	if known = m.given != nil || answer.Pods > 0 || !isRecent(""); known {
		for device, why := range m.given {
			if told[device] == "" && isRecent(device) {
				told[device] = why
			}
		}
		m.given = told
	}
	m.missed = missed
	return maps.Clone(m.given), known
}

// Waits returns the time after which another answer may free a device; 0 if no device waits for one.
func (m *Memory) Waits() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.missed) == 0 {
		return 0
	}
	return apart
}
