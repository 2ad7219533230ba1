// Package pod identifies a pod on its node by its UID and container ID. The author of a pod or network cannot
// choose these IDs, so a name that contains one of them belongs to one pod.
package pod

import (
	"cmp"
	"fmt"
	"strings"
)

// Identity holds the IDs that Kubernetes and the container runtime gave a pod.
type Identity struct {
	UID         string // K8S_POD_UID of CNI_ARGS; "" = none
	ContainerID string // CNI_CONTAINERID: ID of the sandbox; a pod may have several in its life
}

// Owns reports whether a name can belong only to this pod. It must contain the UID, the first 12 characters of the
// container ID, or all of a shorter container ID.
func (i Identity) Owns(name string) bool {
	holds := func(s string) bool { return s != "" && strings.Contains(name, s) }
	return holds(i.UID) || holds(i.ContainerID[:min(12, len(i.ContainerID))])
}

// String returns the name under which a pod owns objects that outlive its sandbox: the UID, else the container ID.
func (i Identity) String() string { return cmp.Or(i.UID, i.ContainerID) }

// Args are the pairs of CNI_ARGS, in order.
type Args [][2]string

// ParseArgs parses CNI_ARGS. It skips malformed pairs and quotes them in the error.
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

func (a Args) Get(key string) string {
	for _, pair := range a {
		if pair[0] == key {
			return pair[1]
		}
	}
	return ""
}

// Name returns the pod's namespace and name as passed by Kubernetes' runtimes, or "" for both.
func (a Args) Name() (namespace, name string) {
	return a.Get("K8S_POD_NAMESPACE"), a.Get("K8S_POD_NAME")
}

func (a Args) UID() string { return a.Get("K8S_POD_UID") }

// ClaimArg is the key with which cni-dra-driver marks an attachment made for a ResourceClaim. Only containers
// that list the claim may have it.
const ClaimArg = "K8S_RESOURCE_CLAIM"

// Claim returns the name of the ResourceClaim, in the pod's namespace, or "".
func (a Args) Claim() string { return a.Get(ClaimArg) }
