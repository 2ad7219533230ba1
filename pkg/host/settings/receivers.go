package settings

import (
	"errors"
	"fmt"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/pkg/host/stack"
)

// Stacked returns what receives the frames of an interface in addition to it: "macvlan spy in /proc/7/ns/net".
// everywhere also looks for interfaces in other network namespaces; otherwise it tests only whether there is one.
func (k Kernel) Stacked(i link.Interface, everywhere bool) (found []string, err error) {
	receives, err := stack.Receives(i.Index)
	if err == nil && (everywhere || receives.Handler) {
		var all map[int][]stack.Upper
		all, _, err = stack.Find(k.Proc)
		for _, u := range all[i.Index] {
			found = append(found, u.String())
		}
	}
	if err == nil && found == nil && receives.Handler {
		found = []string{nameless}
	}
	return found, err
}

// nameless is what a handler of frames belongs to if no process or mount leads to its network namespace.
const nameless = "an interface in a network namespace that no process names"

// Unstack removes the interfaces on another one from all network namespaces, and returns what receives its frames
// still.
func (k Kernel) Unstack(i link.Interface) (left []string, err error) {
	all, _, err := stack.Find(k.Proc)
	if err != nil {
		return nil, err
	}
	for _, u := range all[i.Index] {
		if failed := u.Remove(); failed != nil {
			left, err = append(left, u.String()), errors.Join(err, failed)
		}
	}
	if left != nil {
		return left, err
	}
	receives, err := stack.Receives(i.Index)
	if receives.Handler {
		left = []string{nameless}
	} else if receives.Promiscuity > 0 {
		left = []string{fmt.Sprintf("%d programs or interfaces that want all frames", receives.Promiscuity)}
	}
	return left, err
}

// Holders returns the processes that have one of these device nodes open.
func (k Kernel) Holders(numbers []string) ([]process.Holder, error) {
	return process.Opened(k.Proc, numbers)
}
