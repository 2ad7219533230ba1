package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/utils"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// Key identifies an attachment: one interface of one container in one network.
type Key struct {
	Network     string `json:"network"`     // "name" of the network configuration
	ContainerID string `json:"containerID"` // CNI_CONTAINERID
	IfName      string `json:"ifName"`      // CNI_IFNAME
}

func (k Key) String() string { return k.Network + "/" + k.ContainerID + "/" + k.IfName }

func (k Key) Path(stateDir string) string { return filepath.Join(stateDir, entriesDir, k.file()) }

// file returns the name of the entry's file. Only the interface name may contain an "@", so the first "@" ends
// the network and the second one ends the container ID.
func (k Key) file() string { return k.Network + "@" + k.ContainerID + "@" + k.IfName }

// Check returns an error if the journal can have no entry for the attachment.
func (k Key) Check() error {
	_, err := k.entry()
	return err
}

// entry returns the name of the entry's file, or an error if a file cannot have that name. The interface name
// must be UTF-8 because the entry is JSON.
func (k Key) entry() (string, error) {
	if utils.ValidateNetworkName(k.Network) != nil || utils.ValidateContainerID(k.ContainerID) != nil || k.IfName == "" || strings.ContainsAny(k.IfName, "/\x00") {
		return "", fmt.Errorf("attachment %q: must be network/containerID/ifName; the network and the container ID consist of "+
			"letters, digits, '_', '.' and '-' and begin with a letter or digit; the interface name has no slash", k)
	}
	if !utf8.ValidString(k.IfName) {
		return "", &store.NameError{Name: k.IfName, Err: errors.New("an interface name must be UTF-8")}
	}
	name := k.file()
	const most = 255 - len(sharedMark) // the links of shared leases have this name after the mark
	err := store.CheckName(name)
	if err == nil && len(name) > most {
		err = fmt.Errorf("a file name must have at most %d bytes", most)
	}
	if err != nil {
		return "", fmt.Errorf("%w, but has %d (network name: %d, container ID: %d): give the network a shorter name",
			&store.NameError{Name: name, Err: err}, len(name), len(k.Network), len(k.ContainerID))
	}
	return name, nil
}

func parseKey(entry string) (Key, bool) {
	parts := strings.SplitN(entry, "@", 3)
	if len(parts) < 3 {
		return Key{}, false
	}
	k := Key{parts[0], parts[1], parts[2]}
	_, err := k.entry()
	return k, err == nil
}

// Format is the format of the entries and claims that this build writes. It grows when an older build would
// misread a newer record.
const Format = 3

// FormatError reports an entry or claim that a newer build has written. The caller must leave it alone.
type FormatError struct {
	Path   string
	Format int
	Pod    string // namespace/name; "" = unknown
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: has format %d, but this devinfo reads formats up to %d", e.Path, e.Format, Format)
}

// Entry is the record of one attachment: the arguments of ADD, and the files, devices and delegates that the
// attachment owns or may own. Unknown keys are ignored.
type Entry struct {
	Format int `json:"format,omitempty"` // set by Put
	Key
	Netns  string        `json:"netns,omitempty"`  // CNI_NETNS
	Inode  uint64        `json:"inode,omitempty"`  // of Netns if its path names another process, whose number may be reused; 0 = not recorded
	BootID string        `json:"bootID,omitempty"` // set by Put
	Time   time.Time     `json:"time"`             // time of ADD
	Uptime time.Duration `json:"uptime,omitempty"` // since boot (CLOCK_BOOTTIME) at ADD, set by Put; unlike Time it never goes back; 0 = unknown, in entries of older builds
	Pod    string        `json:"pod,omitempty"`    // owner of the socket directory and the devices: K8S_POD_UID, else the container ID

	Requested Requested `json:"requested,omitzero"`

	File      string          `json:"file,omitempty"`      // name in the device-info directory; "" = none
	Dir       string          `json:"dir,omitempty"`       // the device-info directory
	Wrote     bool            `json:"wrote,omitempty"`     // ADD has written the file or is about to
	Info      json.RawMessage `json:"info,omitempty"`      // the file's content
	Kept      bool            `json:"kept,omitempty"`      // another program had already written the same content
	Original  json.RawMessage `json:"original,omitempty"`  // other content that another program had written; nil = none, or unusable
	InNetns   bool            `json:"inNetns,omitempty"`   // the interface was in Netns at the end of ADD
	Interface string          `json:"interface,omitempty"` // its parent device, kind or bus address, if ADD found the device through it
	Device    Identity        `json:"device,omitzero"`     // the device that ADD found
	Reason    string          `json:"reason,omitempty"`    // why ADD found no device information, with the remedy; "" = no problem
	CDI       CDI             `json:"cdi,omitzero"`        // the CDI spec that ADD has written or is about to write
	SocketDir string          `json:"socketDir,omitempty"` // the host directory that the CDI spec mounts
	Leases    []DeviceLease   `json:"leases,omitempty"`    // leases of devices; File, CDI and SocketDir name the other leases

	Delegates      []json.RawMessage          `json:"delegates,omitempty"`      // configurations as executed, with name and cniVersion
	CNIVersion     string                     `json:"cniVersion,omitempty"`     // cniVersion of the network configuration
	Args           string                     `json:"args,omitempty"`           // CNI_ARGS
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"` // runtimeConfig for the delegates
	PrevResult     json.RawMessage            `json:"prevResult,omitempty"`     // input of the first delegate
	Result         json.RawMessage            `json:"result,omitempty"`         // output of the last delegate

	Complete bool   `json:"complete,omitempty"` // ADD has only to write the files, or has succeeded
	Refused  string `json:"refused,omitempty"`  // ID of the device for which ADD was refused, leaving nothing but this entry; "" = it was not

	raw     []byte   // content of the entry on disk
	file    *os.File // the open file of a locked entry; nil = not locked
	damaged bool     // only Key is from the journal
}

func uptime() time.Duration {
	var up unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) // the arguments are valid
	return time.Duration(up.Nano())
}

// After reports whether the ADD of e came after that of other.
func (e *Entry) After(other *Entry) bool {
	if e.BootID == other.BootID && e.Uptime != 0 && other.Uptime != 0 {
		return e.Uptime > other.Uptime
	}
	return e.Time.After(other.Time)
}

// Requested is the input of ADD that selects the device: keys of the configuration, with placeholders filled in,
// and keys of the previous result. CHECK and devinfoctl compare it with the device.
type Requested struct {
	DeviceIDs         []config.NamedID `json:"deviceIDs,omitempty"`  // in order of precedence
	Declared          json.RawMessage  `json:"declared,omitempty"`   // a device-info object, maybe partial
	PCIID             string           `json:"pciID,omitempty"`      // pciID in the previous result
	SocketPath        string           `json:"socketPath,omitempty"` // socketPath in the previous result
	FollowLower       bool             `json:"followLower,omitempty"`
	SubfunctionParent bool             `json:"subfunctionParent,omitempty"`
}

// PodName returns the namespace and the name of the pod, or "" for both if Kubernetes did not call the plugin.
func (e *Entry) PodName() (namespace, name string) {
	args, _ := pod.ParseArgs(e.Args) // ignore the error: args contains all well-formed pairs
	return args.Name()
}

func (e *Entry) pod() string {
	namespace, name := e.PodName()
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// ByClaim reports whether the pod has the attachment through a ResourceClaim. Only containers that list the
// claim get its devices.
func (e *Entry) ByClaim() bool {
	args, _ := pod.ParseArgs(e.Args)
	return args.Claim() != ""
}

// HostSocketDir returns the host directory of the attachment's socket; "" = the path that the container has.
func (e *Entry) HostSocketDir() string {
	if e.SocketDir == "" && e.Requested.SocketPath != "" {
		return filepath.Dir(e.Requested.SocketPath)
	}
	return e.SocketDir
}

// BootID returns the kernel's ID of the current boot.
func BootID() (string, error) {
	const path = "/proc/sys/kernel/random/boot_id"
	data, err := store.ReadFile(path, 1<<20) // a sandbox may have anything at this path
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(data))
	if id == "" || len(id) > 64 || strings.ContainsRune(id, 0) {
		return "", fmt.Errorf("%s: not a boot ID: %.20q", path, id)
	}
	return id, nil
}

// OfBoot reports whether the entry was written in the boot with that ID. It returns true if either ID is
// unknown, because dropping a live attachment does more harm than keeping a stale one.
func (e *Entry) OfBoot(bootID string) bool { return ofBoot(e.BootID, bootID) }

func ofBoot(is, now string) bool { return is == now || is == "" || now == "" }

// ErrDelPending is the error of [Journal.Stale] for an attachment by a claim whose network namespace has no path any more,
// but which cni-dra-driver holds open until it has run DEL, or may hold open where its records are not visible.
var ErrDelPending = errors.New("cni-dra-driver has still to run DEL")

// Stale returns why an attachment can no longer be in use, or "" if it can. It returns an error if that is unknown.
// Leftovers may be removed without a DEL only if Stale returns a reason. Of an attachment by a claim the driver's record
// decides, not the path, because CRI-O removes the path before the driver gets to know the end of the sandbox.
func (j *Journal) Stale(e *Entry) (why string, err error) {
	switch {
	case !e.OfBoot(j.bootID):
		return "recorded before the last boot", nil
	case e.Netns == "":
		return "", nil
	}
	gone, err := j.NetnsGone(e.Netns)
	why = "network namespace " + e.Netns + " is gone"
	if reused := e.NetnsReused(e.Netns); !gone && reused != "" && j.OnNode() {
		gone, why = true, reused
	}
	if gone && err == nil && e.ByClaim() {
		var held bool
		if held, err = j.driver.Holds(j.ClaimDir(), j.bootID, e.Netns); held || errors.Is(err, state.ErrNotVisible) {
			err = fmt.Errorf("network namespace %s: %w", e.Netns, ErrDelPending)
		}
	}
	if err != nil || !gone {
		return "", err
	}
	return why, nil
}

// NetnsReused returns a reason if path, with which ADD was called, names another process now than at ADD, and so perhaps
// another pod's network namespace; else "". Only the node itself can tell, where the processes are those that ADD saw.
func (e *Entry) NetnsReused(path string) (why string) {
	if e.Inode == 0 || path != e.Netns || link.NetnsInode(path) == e.Inode {
		return ""
	}
	return "network namespace " + path + " is gone: the process that the path names is another one than at ADD"
}

// Path returns the full path of the device-info file, or "" for none.
func (e *Entry) Path() string {
	if e.File == "" {
		return ""
	}
	return filepath.Join(e.Dir, e.File)
}

// CDI describes the CDI spec of an attachment. The zero value means none.
type CDI struct {
	Dir    string `json:"dir"`    // the CDI directory
	File   string `json:"file"`   // name in the CDI directory
	Device string `json:"device"` // name in container requests: vendor/class=name
}

// Identity names a device for display.
type Identity struct {
	Type string `json:"type"` // "pci", "vdpa", "vhost-user" or "memif"
	ID   string `json:"id"`   // PCI address, vDPA device or socket path
}

// encode returns an entry's record. It changes only the white space of embedded JSON.
func encode(e *Entry) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return b.Bytes(), err
}

// decode parses an entry or a claim, whose format is a field of it. If a newer build wrote the record, decode returns a
// [*FormatError], even if that build has changed the type of a key.
func decode(data []byte, record any, format *int) error {
	err := json.Unmarshal(data, record)
	if err == nil && *format <= Format {
		return nil
	}
	only := struct { // the rest may be valid in a newer format only
		Format int
		Args   string
	}{}
	_ = json.Unmarshal(data, &only)
	if only.Format > Format {
		return &FormatError{Format: only.Format, Pod: (&Entry{Args: only.Args}).pod()}
	}
	return err
}
