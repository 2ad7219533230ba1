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

var somePod = attachment.Args{
	ContainerID: strings.Repeat("c", 64), IfName: "net1", CNIArgs: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod;K8S_POD_UID=00000000-0000-0000-0000-000000000000",
}

// status returns an error if ADD could not succeed now for any pod. It checks the configuration, the directories, sysfs and the delegates.
func (c *Call) status() error {
	if err := about(c.Host, &Args{Args: somePod}, c.Config).refusal(); err != nil {
		return err
	}
	if err := c.Infos.Writable(); err != nil {
		return failure.New(failure.IO, fmt.Errorf("device-info directory: %w", err), "make it writable, or set deviceInfoDir in the node settings")
	}
	if err := (journal.Key{Network: c.Config.Name, ContainerID: somePod.ContainerID, IfName: somePod.IfName}).Check(); err != nil {
		return err
	}
	var names []string
	if c.Config.CDI != nil {
		names = append(names, journal.SpecLeases)
	}
	if len(c.Config.Delegates) > 0 {
		names = append(names, journal.Caches)
	}
	if err := c.Journal.Writable(names...); err != nil {
		return failure.New(failure.IO, fmt.Errorf("state directory: %w", err), "make it writable, on a local disk, or set stateDir in the node settings")
	}
	if c.Config.CDI != nil {
		if err := c.Specs.Writable(); err != nil {
			return failure.New(failure.IO, fmt.Errorf("CDI directory: %w", err), "make it writable, or set cdiDir in the node settings")
		}
	}
	if _, err := fs.Stat(c.Finder.Sys.Files(), "bus"); err != nil {
		return failure.New(failure.IO, fmt.Errorf("%s is not a sysfs: %w", c.Node.Sysfs, err), "mount sysfs there, or set sysfs in the node settings")
	}
	if len(c.Config.Delegates) == 0 {
		return nil
	}
	if err := c.delegatesProblem(); err != nil {
		return err
	}
	n, err := c.network()
	if err != nil {
		return err
	}
	return failure.OfDelegate("STATUS", n.Status())
}

// refusal returns why ADD refuses the configuration for the attachment, or nil.
func (c *Call) refusal() error {
	_, vetted := attachment.Vet(c.Config)
	_, _, declared := c.Attachment.Declared(c.Config)
	_, spec := c.Attachment.CDI(c.Config)
	_, path := c.infoFileName()
	return cmp.Or(vetted, declared, spec, path)
}
