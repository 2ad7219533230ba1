package devinfo

import (
	"fmt"
	"path/filepath"
	"strings"

	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/host/link"
)

// checkNetns returns an error unless CNI_NETNS is a network namespace other than this process's own, in which delegates
// would look for the pod's interface. CNI_NETNS_OVERRIDE allows the own one.
func checkNetns(args *Args) error {
	if !filepath.IsAbs(args.Netns) { // it would lead elsewhere for whoever reads the journal
		return failure.New(failure.Environment, fmt.Errorf("CNI_NETNS %q: must be an absolute path", args.Netns), "the runtime must set it")
	}
	if err := link.CheckNetns(args.Netns); err != nil {
		return failure.New(failure.Code(err), fmt.Errorf("CNI_NETNS %w", err), "it must be the path of the container's network namespace")
	}
	own, err := link.IsOwnNetns(args.Netns)
	switch {
	case args.NetnsOverride == "1" || strings.EqualFold(args.NetnsOverride, "TRUE"):
		return nil
	case err != nil:
		return failure.New(failure.Netns, err, "mount proc")
	case own:
		return failure.New(failure.Netns, fmt.Errorf("CNI_NETNS %s is the plugin's own network namespace", args.Netns),
			"pass the container's network namespace, or set CNI_NETNS_OVERRIDE=1")
	}
	return nil
}
