package inventory

import resourceapi "k8s.io/api/resource/v1"

// A Slice is what a ResourceSlice of the node's pool has. That of package resourceslice would
// bring the whole client of the API into programs that ask no API server.
type Slice struct {
	Devices        []resourceapi.Device
	SharedCounters []resourceapi.CounterSet
}
