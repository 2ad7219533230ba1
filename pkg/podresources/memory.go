package podresources

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// Memory is what a kubelet has told of devices that are given away. One that has just started
// knows not all of its pods: so a device is free once two answers have said so, and the very
// first answer counts if it has any pod.
type Memory struct {
	mu     sync.Mutex
	given  map[string]string    // reasons, by device; nil = nothing is known yet
	missed map[string]time.Time // since when answers lack one that was given away; "" = since when they lack all pods
}

// apart is how long answers have to say so.
const apart = 10 * time.Second

// Take returns what is given away by that answer and earlier ones, each device
// with the reason; known is false while that may lack pods.
func (m *Memory) Take(answer Answer, now time.Time) (given map[string]string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	told, missed := map[string]string{}, map[string]time.Time{}
	for _, g := range answer.Given {
		told[g.Device] = fmt.Sprintf("pod %s has it from device plugin %s", g.Pod, g.Resource)
	}
	isMissing := func(device string) bool { // yet
		since, before := m.missed[device]
		if !before {
			since = now
		}
		missed[device] = since
		return now.Sub(since) < apart
	}
	if known = m.given != nil || answer.Pods > 0 || !isMissing(""); known {
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
