package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// defaults are the default settings. The specification defines the first two directories in sections 4.2 and 4.1.
var defaults = config.Node{
	DeviceInfoDir:   "/var/run/k8s.cni.cncf.io/devinfo/cni",
	DevicePluginDir: "/var/run/k8s.cni.cncf.io/devinfo/dp",
	StateDir:        "/var/lib/cni/devinfo",
	Sysfs:           "/sys",
	LogLevel:        "warn",
	CDIDir:          "/var/run/cdi",
	SocketDirs:      []string{"/var/run/vhost-user", "/var/lib/cni/usrspcni"},
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.json")
	must(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func TestNodeSettingsReplaceDefaults(t *testing.T) {
	one := defaults
	one.StateDir = "/s"
	for text, want := range map[string]config.Node{
		"":   defaults, // missing file
		`{}`: defaults, " {} \n": defaults, `null`: defaults, `{"stateDir": "/s"}`: one,
		`{
			"deviceInfoDir": "/i", "devicePluginDir": "/p", "stateDir": "/s", "sysfs": "/y", "logFile": "/l", "logLevel": "debug",
			"cdiDir": "/c", "allowedDevices": ["0000:01:00.2", "pci/0000:01:00.0", "auxiliary/mlx5_core.sf.4", "vdpa:0000:65:00.3", "*"], "socketDirs": ["/run/a", "/run/b"], "injectDeviceNodes": true
		}`: {
			DeviceInfoDir: "/i", DevicePluginDir: "/p", StateDir: "/s", Sysfs: "/y", LogFile: "/l", LogLevel: "debug", CDIDir: "/c",
			AllowedDevices: []string{"0000:01:00.2", "pci/0000:01:00.0", "auxiliary/mlx5_core.sf.4", "vdpa:0000:65:00.3", "*"}, SocketDirs: []string{"/run/a", "/run/b"}, InjectDeviceNodes: true,
		},
	} {
		path := filepath.Join(t.TempDir(), "none", "node.json")
		if text != "" {
			path = write(t, text)
		}
		node, err := config.LoadNode(path)
		must(t, err)
		equal(t, text, node, want)
	}
	equal(t, "defaults", config.DefaultNode(), defaults)
}

func TestInvalidNodeSettingsReturnErrorAndDefaults(t *testing.T) {
	goldentest.Lines(t, "testdata/settings.txt", func(text string) []string {
		path := write(t, text)
		node, err := config.LoadNode(path)
		equal(t, text, node, defaults)
		return []string{strings.Replace(fmt.Sprint(err), path, "FILE", 1)}
	})
}

func TestUnreadableNodeSettingsReturnErrorAndDefaults(t *testing.T) {
	for path, want := range map[string]error{t.TempDir(): store.ErrNotRegular, write(t, strings.Repeat(" ", config.MaxFile)+"{}"): store.ErrTooLarge} {
		node, err := config.LoadNode(path)
		difftest.Is(t, err, want)
		difftest.Says(t, err, path)
		equal(t, "settings", node, defaults)
	}
}

// Settings are either accepted completely or replaced by the defaults. All paths are absolute, and settings
// that were written again parse to the same value.
func FuzzLoadNode(f *testing.F) {
	defaultText, err := json.Marshal(config.DefaultNode())
	must(f, err)
	for _, text := range []string{
		string(defaultText), `{}`, `null`, `[]`, `{} {}`, `{"socketDirs": [null]}`, `{"socketDirs": null, "allowedDevices": ["*", "pci/0000:01:00.2"]}`,
		`{"deviceInfoDir": "/a//b/", "devicePluginDir": "/a/b"}`, `{"stateDir": "a"}`, `{"logLevel": "warn+1"}`, `{"STATEDIR": "/x"}`,
		"{\"sysfs\": \"/\xff\"}", `{"logFile": ""}`, `{"allowedDevices": ["0000:01:00"]}`,
	} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "node.json")
	load := func(t *testing.T, text []byte) (config.Node, error) {
		must(t, os.WriteFile(path, text, 0o600))
		return config.LoadNode(path)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		node, err := load(t, text)
		if err != nil {
			equal(t, "settings after an error", node, config.DefaultNode())
			return
		}
		for _, dir := range append([]string{node.DeviceInfoDir, node.DevicePluginDir, node.StateDir, node.Sysfs, node.CDIDir}, node.SocketDirs...) {
			if !filepath.IsAbs(dir) {
				t.Errorf("%q is taken for a directory", dir)
			}
		}
		if _, err := node.Level(); err != nil {
			t.Error(err)
		}
		written, err := json.Marshal(node)
		must(t, err)
		again, err := load(t, written)
		must(t, err)
		equal(t, string(written), again, node)
	})
}
