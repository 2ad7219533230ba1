package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// NodeFile is where the node's settings are; the environment variable
// DEVINFO_NODE_CONFIG names another place.
const NodeFile = "/etc/cni/devinfo/node.json"

// Node is the node's settings. They are no keys of the network configuration on
// purpose: who may write a NetworkAttachmentDefinition must not choose root's
// paths.
type Node struct {
	DeviceInfoDir   string `json:"deviceInfoDir"`   // of the files that CNIDeviceInfoFile names
	DevicePluginDir string `json:"devicePluginDir"` // of the files that device plugins write; only read
	StateDir        string `json:"stateDir"`        // of the journal
	Sysfs           string `json:"sysfs"`
	LogFile         string `json:"logFile"`  // in addition to standard error; "" = none
	LogLevel        string `json:"logLevel"` // debug, info, warn or error
}

// DefaultNode is what holds where the settings say nothing: the directories of
// the Device Information Specification, sections 4.1 and 4.2.
func DefaultNode() Node {
	return Node{
		DeviceInfoDir:   "/var/run/k8s.cni.cncf.io/devinfo/cni",
		DevicePluginDir: "/var/run/k8s.cni.cncf.io/devinfo/dp",
		StateDir:        "/var/lib/cni/devinfo",
		Sysfs:           "/sys",
		LogLevel:        "warn",
	}
}

// LoadNode reads the settings; a file that is not there means the defaults. On
// an error the defaults come back too, for those who must go on.
func LoadNode(path string) (Node, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return DefaultNode(), nil
	} else if err != nil {
		return DefaultNode(), fmt.Errorf("node settings: %w", err)
	}
	n := DefaultNode()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&n); err != nil {
		return DefaultNode(), fmt.Errorf("node settings %s: %w", path, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return DefaultNode(), fmt.Errorf("node settings %s: there is more than one JSON object", path)
	}
	if err := n.check(); err != nil {
		return DefaultNode(), fmt.Errorf("node settings %s: %w", path, err)
	}
	return n, nil
}

func (n *Node) check() error {
	for _, dir := range []struct{ key, value string }{
		{"deviceInfoDir", n.DeviceInfoDir}, {"devicePluginDir", n.DevicePluginDir},
		{"stateDir", n.StateDir}, {"sysfs", n.Sysfs},
	} {
		if !filepath.IsAbs(dir.value) {
			return fmt.Errorf("%s: %q is not an absolute path", dir.key, dir.value)
		}
	}
	if filepath.Clean(n.DeviceInfoDir) == filepath.Clean(n.DevicePluginDir) {
		return fmt.Errorf("deviceInfoDir and devicePluginDir are both %q: the device plugins' files would be removed with the attachments", n.DeviceInfoDir)
	}
	if n.LogFile != "" && !filepath.IsAbs(n.LogFile) {
		return fmt.Errorf("logFile: %q is not an absolute path", n.LogFile)
	}
	if _, err := n.Level(); err != nil {
		return err
	}
	return nil
}

// Level is LogLevel for slog.
func (n *Node) Level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(n.LogLevel)); err != nil {
		return 0, fmt.Errorf("logLevel: %q is not one of debug, info, warn, error", n.LogLevel)
	}
	return level, nil
}
