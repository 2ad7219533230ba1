package devinfo

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/host/link"
)

// checkNetns returns an error unless CNI_NETNS is a network namespace other than this process's own.
func checkNetns(args *Args) error {
	const remedy = "it must be the path of the container's network namespace"
	if err := link.CheckNetns(args.Netns); errors.Is(err, link.ErrNoNetns) {
		return failure.New(failure.Netns, fmt.Errorf("CNI_NETNS %w", err), remedy)
	} else if err != nil {
		return failure.New(failure.IO, fmt.Errorf("CNI_NETNS: %w", err), remedy)
	}
	return ownNetns(args)
}

// ownNetns returns an error if CNI_NETNS is this process's own namespace, unless CNI_NETNS_OVERRIDE allows it.
func ownNetns(args *Args) error {
	if args.NetnsOverride == "1" || strings.EqualFold(args.NetnsOverride, "TRUE") {
		return nil
	}
	own, err := link.IsOwnNetns(args.Netns)
	if err != nil {
		return failure.New(failure.Netns, err, "mount proc")
	}
	if own {
		return failure.New(failure.Netns, fmt.Errorf("CNI_NETNS %s is the plugin's own network namespace", args.Netns),
			"pass the container's network namespace, or set CNI_NETNS_OVERRIDE=1")
	}
	return nil
}

// usableNetns returns an error if delegates must not get CNI_NETNS: there is no network namespace at this path, or it is this
// process's own, where they would look for the pod's interface.
func usableNetns(args *Args) error {
	if args.Netns == "" {
		return nil
	}
	if !filepath.IsAbs(args.Netns) {
		return fmt.Errorf("CNI_NETNS %q: is not an absolute path", args.Netns)
	}
	if there, err := link.HasNetns(args.Netns); err == nil && !there {
		return fmt.Errorf("CNI_NETNS %s: no network namespace is there", args.Netns)
	}
	return ownNetns(args)
}
