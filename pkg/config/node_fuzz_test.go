package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/config"
)

// Settings are taken whole or not at all, each path of them is absolute, and what was
// taken is read the same again.
func FuzzLoadNode(f *testing.F) {
	defaultText, err := json.Marshal(config.DefaultNode())
	must(f, err)
	for _, text := range []string{
		string(defaultText), `{}`, `null`, `[]`, `{} {}`, `{"socketDirs": [null]}`, `{"socketDirs": null, "cdiDevices": ["*", "pci/0000:01:00.2"]}`,
		`{"deviceInfoDir": "/a//b/", "devicePluginDir": "/a/b"}`, `{"stateDir": "a"}`, `{"logLevel": "warn+1"}`, `{"STATEDIR": "/x"}`,
		"{\"sysfs\": \"/\xff\"}", `{"logFile": ""}`, `{"cdiDevices": ["0000:01:00"]}`,
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
		if diff := cmp.Diff(node, again); diff != "" || err != nil {
			t.Errorf("%s: %v (-read +read again):\n%s", written, err, diff)
		}
	})
}
