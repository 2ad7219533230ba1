package restore

import (
	"errors"
	"fmt"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/stack"
)

// Kernel is the kernel of this machine.
type Kernel struct {
	settings.Kernel
	Proc string // the host's /proc
}

func (k Kernel) Stacked(i link.Interface, everywhere bool) (found []string, err error) {
	receives, err := stack.Receives(i.Index)
	if err != nil {
		return nil, err
	}
	if everywhere || receives.Handler {
		all, err := stack.Find(k.Proc)
		if err != nil {
			return nil, err
		}
		for _, u := range all[i.Index] {
			found = append(found, u.String())
		}
	}
	if found == nil && receives.Handler {
		found = []string{"an interface in a network namespace that no process names"}
	}
	return found, nil
}

func (k Kernel) Unstack(i link.Interface) (left []string, err error) {
	all, err := stack.Find(k.Proc)
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
		left = append(left, "an interface in a network namespace that no process names")
	} else if receives.Promiscuity > 0 {
		left = append(left, fmt.Sprintf("%d programs or interfaces that want all frames", receives.Promiscuity))
	}
	return left, err
}

func (k Kernel) Holders(numbers []process.Number) ([]process.Holder, error) {
	return process.Opened(k.Proc, numbers)
}
