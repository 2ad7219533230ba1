package devinfo

import (
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/result"
)

// add finds the device, writes the device-info file and, if configured, the CDI spec, and prints the CNI
// result. The doc comment of find lists where the facts of the file come from.
//
// add checks as much as it can before it changes anything. Only the cleanup after a former ADD of the attachment
// may come earlier. If a later step fails, add undoes all its changes.
func (c *Call) add() error {
	var done undo
	defer func() { done.entry.Unlock() }()
	err := c.attach(&done)
	if err == nil {
		return nil
	}
	undone := done.run()
	return failure.Join(slices.Insert(undone, 0, c.refused(err))...)
}

func (c *Call) attach(done *undo) error {
	r, err := c.read(done)
	if err != nil {
		return err
	}
	if len(c.Config.Delegates) > 0 {
		if err := r.runDelegates(done); err != nil {
			return err
		}
	}
	p, err := r.decide()
	if err != nil {
		return err
	}
	if err := r.commit(p, done); err != nil {
		return err
	}
	if _, err := c.Stdout.Write(slices.Concat(r.extended(p).JSON(), []byte("\n"))); err != nil {
		return failure.New(failure.IO, fmt.Errorf("print the result: %w", err), "")
	}
	return nil
}

// extended returns the CNI result with the device's pciID or socketPath, and a sandboxed interface if Multus needs one.
func (r *request) extended(p plan) *result.Result {
	res := r.result
	if res == nil {
		res = result.New(r.c.Config.CNIVersion)
	}
	if r.result == nil || r.file.name != "" && p.info != nil {
		res.EnsureSandboxed(r.c.Attachment.IfName, r.c.Attachment.Netns)
	}
	texts := p.info.Texts()
	pciID, socket := texts["pci-address"], ""
	if p.info != nil && discovery.IsSocket(p.info.Type) {
		pciID, socket = "", texts["path"]
	} else if p.device.SF != "" && !r.c.Config.SubfunctionParent {
		pciID = "" // the parent's address, which does not identify the sub-function
	}
	res.Identify(r.c.Attachment.IfName, r.c.Attachment.Netns, pciID, socket)
	return res
}
