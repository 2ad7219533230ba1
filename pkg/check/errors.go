package check

import "errors"

// Kind is the kind of a problem with an attachment.
type Kind int

const (
	Unreadable     Kind = iota // the kernel or netlink returned an error, which is Err
	FileGone                   // the device-info file is missing
	FileInvalid                // the file breaks the specification or has another major version
	FileUnreadable             // the file exists but cannot be read
	SpecGone                   // the CDI spec is missing
	SpecForeign                // another program replaced the CDI spec
	Mismatch                   // the file does not describe the device that ADD found or the configuration declares
	OtherDevice                // ADD found another device, or the interface was replaced
	Conflict                   // two sources name different devices: a [*discovery.ConflictError]
	DeviceGone                 // the device is not on the node
	InterfaceGone              // the interface is not in the network namespace
	Unfinished                 // ADD was killed
	ContainerGone              // the network namespace is missing, or the node has rebooted
	EntryInvalid               // the journal entry cannot be read
	EntryNewer                 // a newer devinfo wrote the journal entry
)

// Remedy returns the action to take, or "" if there is no general advice.
func (k Kind) Remedy() string { return kinds[k].remedy }

const (
	again = "recreate the pod, or DEL and ADD the attachment"
	renew = again + ", to write the file again"
)

// kinds maps each kind to the attachment's state and the remedy.
var kinds = map[Kind]struct {
	state  State
	remedy string
}{
	Unreadable:     {Unknown, ""},
	FileGone:       {FileMissing, renew},
	FileInvalid:    {BadFile, renew},
	FileUnreadable: {BadFile, renew},
	SpecGone:       {FileMissing, renew},
	SpecForeign:    {BadFile, "find out which program replaced the attachment's CDI spec; DEL does not remove the new one"},
	Mismatch:       {WrongDevice, renew},
	OtherDevice:    {WrongDevice, again},
	Conflict:       {WrongDevice, "correct the wrong source; if that is a leftover device-info file, remove it"},
	DeviceGone: {DeviceLost, "restore the device, or delete the pod; devinfo's DEL works without it, but other plugins' may fail: " +
		"sriov-cni's fails once and succeeds when repeated"},
	InterfaceGone: {InterfaceLost, again},
	Unfinished:    {Adding, "DEL, or the next ADD, cleans up after it"},
	ContainerGone: {Stale, "wait for the runtime's DEL or GC to clean up, or run: devinfoctl gc --yes"},
	EntryInvalid:  {Corrupt, "the runtime's DEL or GC removes it"},
	EntryNewer:    {Newer, "install the newer devinfo that wrote it, or a later one"},
}

// Error is a problem with an attachment.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string  { return e.Err.Error() }
func (e *Error) Unwrap() error  { return e.Err }
func (e *Error) Remedy() string { return e.Kind.Remedy() }

func as[T error](err error) bool {
	_, is := errors.AsType[T](err)
	return is
}
