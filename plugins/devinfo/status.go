package devinfo

import (
	"cmp"
	"fmt"
	"io/fs"
	"strings"

	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
)

// status returns an error if ADD could not succeed now for any pod. It checks the configuration, the directories, sysfs and the delegates.
func (c *Call) status() error {
	somePod := attachment.Args{
		ContainerID: strings.Repeat("c", 64), IfName: "net1", CNIArgs: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod;K8S_POD_UID=00000000-0000-0000-0000-000000000000",
	}
	add := about(&c.Host, somePod, c.Config)
	_, _, refused := add.asked()
	var names []string
	var specs error
	if c.Config.CDI != nil {
		names, specs = append(names, journal.SpecLeases), c.Specs.Writable()
	}
	if len(c.Config.Delegates) > 0 {
		names = append(names, journal.Caches)
	}
	_, sysfs := fs.Stat(c.Finder.Sys.Files(), "bus")
	err := cmp.Or(refused, add.Key.Check(), add.delegatesProblem(),
		unusable("device-info directory", c.Infos.Writable(), "make it writable, or set deviceInfoDir"),
		unusable("state directory", c.Journal.Writable(names...), "make it writable, on a local disk, or set stateDir"),
		unusable("CDI directory", specs, "make it writable, or set cdiDir"),
		unusable(c.Node.Sysfs+" is not a sysfs", sysfs, "mount sysfs there, or set sysfs"))
	if err != nil || len(c.Config.Delegates) == 0 {
		return err
	}
	n, err := c.network()
	if err != nil {
		return err
	}
	return failure.OfDelegate("STATUS", n.Status())
}

// unusable adds the object and the remedy to the error of a directory; nil = none.
func unusable(what string, err error, remedy string) error {
	if err == nil {
		return nil
	}
	return failure.New(failure.IO, fmt.Errorf("%s: %w", what, err), remedy+" in the node settings")
}
