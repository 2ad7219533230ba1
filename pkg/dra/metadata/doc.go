// Package metadata says what became of a network: to the pod, as device attributes and
// network data in its metadata file (KEP-5304), and to the API server, as the status of
// an allocated device (resource.k8s.io/v1, AllocatedDeviceStatus).
//
// Values in, values out; of the host it reads only what sysfs says of a PCI function.
// Everything is within the API's limits: what is not would have all of it refused, so
// it is left out, and a warning says so.
package metadata
