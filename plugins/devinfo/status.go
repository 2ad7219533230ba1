package plugin

import (
	"fmt"
	"io/fs"
	"strings"

	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
)

// Status returns an error if ADD could not succeed now. It checks the directories and sysfs.
func Status(c *Call) error {
	if err := c.Infos.Writable(); err != nil {
		return NotReady(fmt.Errorf("device-info directory: %w", err), "make it writable, or set deviceInfoDir in the node settings")
	}
	if err := (journal.Key{Network: c.Config.Name, ContainerID: strings.Repeat("c", 64), IfName: "net1"}).Check(); err != nil {
		return NotReady(err, "")
	}
	if err := c.Journal.Writable(); err != nil {
		return NotReady(fmt.Errorf("state directory: %w", err), "make it writable, on a local disk, or set stateDir in the node settings")
	}
	if c.Config.CDI != nil {
		if err := c.Specs.Writable(); err != nil {
			return NotReady(fmt.Errorf("CDI directory: %w", err), "make it writable, or set cdiDir in the node settings")
		}
	}
	if _, err := fs.Stat(c.Finder.Sys.Files(), "bus"); err != nil {
		return NotReady(fmt.Errorf("%s is not a sysfs: %w", c.Node.Sysfs, err), "mount sysfs there, or set sysfs in the node settings")
	}
	return nil
}

func NotReady(err error, remedy string) error { return failure.New(failure.NotAvailable, err, remedy) }
