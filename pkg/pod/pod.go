// Package pod knows what tells one pod from all others on a node, and so which names can be
// its own: its UID and container ID. Whoever writes a network or a pod chooses the rest of
// a name, but neither of these.
package pod

import "strings"

// Identity is what Kubernetes and the container runtime made up for one pod.
type Identity struct {
	UID         string // K8S_POD_UID of CNI_ARGS; "" = none
	ContainerID string // CNI_CONTAINERID: of the sandbox, so a pod may have several in its life
}

// idPrefix is how much of a container ID is enough to tell it from others, and what
// tools show of one.
const idPrefix = 12

// Owns reports whether a name can only be this pod's: it contains the UID, or at least the
// first 12 characters of the container ID, or all of a shorter one.
func (i Identity) Owns(name string) bool {
	holds := func(s string) bool { return s != "" && strings.Contains(name, s) }
	return holds(i.UID) || holds(i.ContainerID[:min(idPrefix, len(i.ContainerID))])
}

// String is the name under which a pod claims what outlives its sandbox: the UID,
// else the container ID.
func (i Identity) String() string {
	if i.UID != "" {
		return i.UID
	}
	return i.ContainerID
}
