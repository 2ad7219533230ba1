// Package status reports to the API server what became of the devices of a claim, in
// status.devices of the ResourceClaim (resource.k8s.io/v1, AllocatedDeviceStatus).
//
// [Apply] sends one [Report] by server-side apply, [Classify] says whether sending it
// once more can help, and [Queue] sends it once more. A report is always the whole
// list: server-side apply removes each device of the driver that it does not name.
//
// The package keeps nothing: a caller that must not lose a report over a restart
// stores it, and adds its claim to the queue again.
//
// The driver's service account needs the verbs "get" on resourceclaims, "patch" on
// resourceclaims/status and, from Kubernetes 1.36 on, "associated-node:patch" on
// resourceclaims/driver with the driver's name as resourceNames and a token that is bound
// to the node or to a pod on it.
package status
