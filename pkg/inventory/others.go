package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/devinfo/pci"
)

// Given is a device that a device plugin has given to a pod.
type Given struct {
	Pod      string `json:"pod"`      // namespace/name
	Resource string `json:"resource"` // "example.com/sriov"
	Device   string `json:"device"`   // the plugin's ID: for SR-IOV a PCI address
}

// GivenAway lists the devices that device plugins have given to pods, from the kubelet's
// answer (podresources/v1, List).
func GivenAway(answer *podresources.ListPodResourcesResponse) (list []Given) {
	for _, p := range answer.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				for _, id := range d.GetDeviceIds() {
					list = append(list, Given{p.GetNamespace() + "/" + p.GetName(), d.GetResourceName(), id})
				}
			}
		}
	}
	return list
}

// Allocated gives [GivenAway] as reasons, for [Situation].Others. Device plugins name a device
// as they like; those of networks use PCI addresses and auxiliary names.
func Allocated(answer *podresources.ListPodResourcesResponse) map[string]string {
	all := map[string]string{}
	for _, g := range GivenAway(answer) {
		all[g.Device] = fmt.Sprintf("pod %s has it from device plugin %s", g.Pod, g.Resource)
	}
	return all
}

// Memory is what a kubelet has told of devices that are given away. One that has just started
// knows not all of its pods: so a device is free once two answers have said so, and the very
// first answer counts if it has any pod.
type Memory struct {
	mu     sync.Mutex
	given  map[string]string    // nil = nothing is known yet
	missed map[string]time.Time // since when answers lack one that was given away; "" = since when they lack all pods
}

// apart is how long answers have to say so.
const apart = 10 * time.Second

// Take returns what is given away by that answer and earlier ones, as [Allocated] does; known
// is false while that may lack pods.
func (m *Memory) Take(answer *podresources.ListPodResourcesResponse, now time.Time) (given map[string]string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	told, missed := Allocated(answer), map[string]time.Time{}
	isMissing := func(device string) bool { // yet
		since, before := m.missed[device]
		if !before {
			since = now
		}
		missed[device] = since
		return now.Sub(since) < apart
	}
	if known = m.given != nil || len(answer.GetPodResources()) > 0 || !isMissing(""); known {
		for device, why := range m.given {
			if told[device] == "" && isMissing(device) {
				told[device] = why
			}
		}
		m.given = told
	}
	m.missed = missed
	return maps.Clone(m.given), known
}

// Waits is after how long another answer may free a device; 0 = none waits for one.
func (m *Memory) Waits() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.missed) == 0 {
		return 0
	}
	return apart
}

// Last returns what was known last.
func (m *Memory) Last() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.given)
}

// Lock is a file of sriov-cni's, by which it refuses a function that a pod has.
type Lock struct {
	Device string `json:"device"`         // PCI address
	Netns  string `json:"netns"`          // path
	Gone   bool   `json:"gone,omitempty"` // the network namespace is: sriov-cni takes the lock for none
}

// ReadLocks reads sriov-cni's directory /var/lib/cni/sriov/pci, where each function that it
// has given to a pod has a file (sriov-cni, pkg/utils, PCIAllocator). No directory means no
// locks; a namespace of which it cannot be told is there.
func ReadLocks(dir fs.FS, gone func(netns string) (bool, error)) (list []Lock, err error) {
	entries, err := fs.ReadDir(dir, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("locks of sriov-cni: %w", err)
	}
	for _, e := range entries {
		a, err := pci.Parse(e.Name())
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		data, err := fs.ReadFile(dir, e.Name())
		if err != nil {
			continue // unlocked meanwhile
		}
		lock := Lock{Device: a.String(), Netns: strings.TrimSpace(string(data))}
		away, err := gone(lock.Netns)
		lock.Gone = err == nil && away
		list = append(list, lock)
	}
	return list, nil
}

// Locks gives the network namespaces of the functions that pods have by [ReadLocks].
func Locks(dir fs.FS, gone func(netns string) (bool, error)) (map[string]string, error) {
	list, err := ReadLocks(dir, gone)
	all := map[string]string{}
	for _, l := range list {
		if !l.Gone {
			all[l.Device] = l.Netns
		}
	}
	return all, err
}

// Locked gives [Locks] as reasons, for [Situation].Others.
func Locked(locks map[string]string) map[string]string {
	all := make(map[string]string, len(locks))
	for address, netns := range locks {
		all[address] = "sriov-cni has given it to network namespace " + netns
	}
	return all
}
