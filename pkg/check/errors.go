package check

import "errors"

// Kind classifies what is wrong with an attachment.
type Kind int

const (
	Unreadable     Kind = iota // something could not be read: Err is the kernel's or netlink's
	FileGone                   // the device-info file
	FileInvalid                // it breaks the specification, or is of another major version
	FileUnreadable             // it exists, but cannot be read
	SpecGone                   // the CDI spec
	SpecForeign                // what is in its place is not devinfo's
	Mismatch                   // the file describes another device than ADD found, or than was declared
	OtherDevice                // ADD found another device, or the interface is another one
	Conflict                   // two sources name different devices: a [*discovery.ConflictError]
	DeviceGone                 // the device is not on the node
	InterfaceGone              // the interface is not in the network namespace
	Unfinished                 // ADD was killed
	ContainerGone              // the network namespace is gone, or the boot is over
	EntryInvalid               // the journal's entry cannot be read
	EntryNewer                 // it is of a newer devinfo
)

// Remedy says what to do; "" = nothing helps in general.
func (k Kind) Remedy() string { return kinds[k].remedy }

const (
	again = "recreate the pod, or DEL and ADD the attachment"
	renew = again + ", to write the file again"
)

// kinds are what each means: the state of the attachment, and what to do.
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

// Error is what is wrong with an attachment.
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
