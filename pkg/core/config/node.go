package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/store"
)

// NodeFile is the path of the node's settings, unless the environment variable DEVINFO_NODE_CONFIG is set.
const NodeFile = "/etc/cni/devinfo/node.json"

// MaxFile is the largest size of a file with settings, in bytes.
const MaxFile = 1 << 20

// Node holds the node's settings. They are not keys of the network configuration, because authors of
// NetworkAttachmentDefinitions must not choose paths that root writes to.
type Node struct {
	DeviceInfoDir   string `json:"deviceInfoDir"`   // directory of the files named by CNIDeviceInfoFile
	DevicePluginDir string `json:"devicePluginDir"` // directory of the files that device plugins write, and cni-dra-driver for devices that Multus attaches
	StateDir        string `json:"stateDir"`        // directory of the journal
	Sysfs           string `json:"sysfs"`
	LogFile         string `json:"logFile"`  // log file in addition to standard error; "" = none
	LogLevel        string `json:"logLevel"` // debug, info, warn or error

	CDIDir string `json:"cdiDir"` // directory of the CDI specs

	// AllowedDevices are devices whose device nodes a container may get although they do not belong to one of
	// its interfaces: PCI addresses (a PF allows all its VFs), vDPA devices, management devices, or "*".
	AllowedDevices []string `json:"allowedDevices"`
	SocketDirs     []string `json:"socketDirs"` // parent directories of permitted socket directories

	// InjectDeviceNodes makes devinfo-agent give containers the device nodes of their pod's devices.
	InjectDeviceNodes bool `json:"injectDeviceNodes"`
}

func DefaultNode() Node {
	return Node{
		DeviceInfoDir:   devinfo.CNIDir,
		DevicePluginDir: devinfo.DevicePluginDir,
		StateDir:        "/var/lib/cni/devinfo",
		Sysfs:           "/sys",
		LogLevel:        "warn",
		CDIDir:          "/var/run/cdi",
		SocketDirs:      []string{"/var/run/vhost-user", "/var/lib/cni/usrspcni"},
	}
}

// LoadNode reads the settings from a file. It returns the defaults if the file is missing, and with an error.
func LoadNode(path string) (Node, error) {
	data, err := store.ReadFile(path, MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return DefaultNode(), nil
	}
	if err != nil {
		return DefaultNode(), fmt.Errorf("node settings: %w", err)
	}
	return ParseNode(data, path)
}

// ParseNode parses settings. path names the file in errors.
func ParseNode(data []byte, path string) (Node, error) {
	n := DefaultNode()
	err := n.read(data)
	if err == nil {
		err = n.check()
	}
	if err != nil {
		return DefaultNode(), fmt.Errorf("node settings %s: %w", path, err)
	}
	return n, nil
}

// read decodes settings over the defaults in n.
func (n *Node) read(data []byte) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(data, &given); err != nil {
		return fmt.Errorf(`want one JSON object, {"stateDir": "/x"}: %w`, InWords(err))
	}
	for _, key := range slices.Sorted(maps.Keys(given)) { // encoding/json ignores case, unknown keys and null
		if !slices.Contains(NodeKeys, key) {
			return fmt.Errorf("%s: the key is not known; %s", key, Suggest(key, NodeKeys))
		}
		if want := nodeType(key); want != nodeList && string(given[key]) == "null" {
			return fmt.Errorf("%s: null must be %s", key, want)
		}
	}
	if given["socketDirs"] != nil {
		n.SocketDirs = nil // a new value that is null leaves an element as it is
	}
	err := json.Unmarshal(data, n)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: %s must be %s", wrong.Field, clip(given[wrong.Field]), nodeType(wrong.Field))
	}
	return err
}

const nodeList = `a list of texts, ["..."]`

// nodeType describes the JSON type of a key.
func nodeType(key string) string {
	switch key {
	case "allowedDevices", "socketDirs":
		return nodeList
	case "injectDeviceNodes":
		return boolean
	}
	return `text, "..."`
}

var NodeKeys = []string{"deviceInfoDir", "devicePluginDir", "stateDir", "sysfs", "logFile", "logLevel", "cdiDir", "allowedDevices", "socketDirs", "injectDeviceNodes"}

func (n *Node) check() error {
	type entry struct{ key, value string }
	dirs := []entry{
		{"deviceInfoDir", n.DeviceInfoDir}, {"devicePluginDir", n.DevicePluginDir},
		{"stateDir", n.StateDir}, {"sysfs", n.Sysfs}, {"cdiDir", n.CDIDir},
	}
	for _, dir := range n.SocketDirs {
		dirs = append(dirs, entry{"socketDirs", dir})
	}
	for _, dir := range dirs {
		if !filepath.IsAbs(dir.value) {
			return fmt.Errorf("%s: %q is not an absolute path", dir.key, dir.value)
		}
		if slices.Contains(strings.Split(dir.value, "/"), "..") { // Kubernetes refuses to mount it
			return fmt.Errorf("%s: %q must not contain \"..\"", dir.key, dir.value)
		}
	}
	if filepath.Clean(n.DeviceInfoDir) == filepath.Clean(n.DevicePluginDir) {
		return fmt.Errorf("deviceInfoDir and devicePluginDir are both %q: the device plugins' files would be removed with the attachments", n.DeviceInfoDir)
	}
	if filepath.Clean(n.DeviceInfoDir) == filepath.Clean(n.CDIDir) {
		return fmt.Errorf("deviceInfoDir and cdiDir are both %q: a device-info file may have the name of a CDI spec", n.DeviceInfoDir)
	}
	for _, device := range n.AllowedDevices {
		if err := checkDevice(device); err != nil {
			return fmt.Errorf("allowedDevices: %w", err)
		}
	}
	if n.LogFile != "" && !filepath.IsAbs(n.LogFile) {
		return fmt.Errorf("logFile: %q is not an absolute path", n.LogFile)
	}
	_, err := n.Level()
	return err
}

// checkDevice refuses a misspelt PCI address, which would silently allow no device.
func checkDevice(device string) error {
	address, management := strings.CutPrefix(device, "pci/")
	if device != "" && !management && (!strings.Contains(device, ":") || strings.Trim(device, "0123456789abcdefABCDEF:.") != "") {
		return nil
	}
	if _, err := pci.Parse(address); err != nil {
		return fmt.Errorf("%q is neither a PCI address such as 0000:01:00.2, nor a vDPA device or management device such as pci/0000:01:00.2, nor \"*\"", device)
	}
	return nil
}

func (n *Node) Level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(n.LogLevel)); err != nil {
		return level, fmt.Errorf("logLevel: %q is not one of debug, info, warn, error", n.LogLevel)
	}
	return level, nil
}
