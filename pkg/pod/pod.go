// Package pod knows what tells one pod from all others on a node, and so which names can be
// its own: its UID and container ID. Whoever writes a network or a pod chooses the rest of
// a name, but neither of these.
package pod

import (
	"cmp"
	"fmt"
	"strings"
)

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
func (i Identity) String() string { return cmp.Or(i.UID, i.ContainerID) }

// Args are the pairs of CNI_ARGS, in order.
type Args [][2]string

// ParseArgs reads CNI_ARGS. It leaves out what is malformed, and quotes it in the error.
func ParseArgs(cniArgs string) (args Args, err error) {
	if cniArgs == "" {
		return nil, nil
	}
	for pair := range strings.SplitSeq(cniArgs, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			err = fmt.Errorf("CNI_ARGS: %q is not of the form KEY=VALUE;KEY=VALUE", cniArgs)
			continue
		}
		args = append(args, [2]string{key, value})
	}
	return args, err
}

// Get returns the first value of a key, or "".
func (a Args) Get(key string) string {
	for _, pair := range a {
		if pair[0] == key {
			return pair[1]
		}
	}
	return ""
}

// Name is the pod's namespace and name, as Kubernetes' runtimes pass them; else both are "".
func (a Args) Name() (namespace, name string) {
	return a.Get("K8S_POD_NAMESPACE"), a.Get("K8S_POD_NAME")
}

// UID is the pod's UID, or "".
func (a Args) UID() string { return a.Get("K8S_POD_UID") }

// ClaimArg is the key by which cni-dra-driver says that a pod has the attachment by a
// ResourceClaim: only the containers that list the claim may have it.
const ClaimArg = "K8S_RESOURCE_CLAIM"

// Claim is the name of the ResourceClaim, in the pod's namespace; "" = it is by none.
func (a Args) Claim() string { return a.Get(ClaimArg) }
