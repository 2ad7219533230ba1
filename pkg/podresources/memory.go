package podresources

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// Memory combines the answers of a kubelet. A kubelet that has just started does not know all of its pods, so a device
// is free only after two answers without it. If the first answers contain no pod, they count only after ten seconds.
type Memory struct {
	mu     sync.Mutex
	given  map[string]string    // reason by device; nil before the first answer that counts
	missed map[string]time.Time // time of the first answer without the device; the key "" is for the first answer without pods
}

// apart is the time between the two answers that free a device.
const apart = 10 * time.Second

// Take adds an answer and returns the allocated devices with reasons. known is false if the answers may lack pods.
func (m *Memory) Take(answer Answer, now time.Time) (given map[string]string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	told, missed := map[string]string{}, map[string]time.Time{}
	for _, g := range answer.Given {
		told[g.Device] = fmt.Sprintf("pod %s has it from device plugin %s", g.Pod, g.Resource)
	}
	isRecent := func(device string) bool { // the first answer without the device came less than apart ago
		since, before := m.missed[device]
		if !before {
			since = now
		}
		missed[device] = since
		return now.Sub(since) < apart
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

// Last returns the devices that the last call of Take with known = true returned.
func (m *Memory) Last() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.given)
}
