package kernel_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/version/legacy_examples"

	"devinfo-cni.io/pkg/link/linktest"
)

// A runtime of CNI 0.1.0, with the libcni of its time, has ADD and DEL of devinfo and of the plugin
// that devinfo runs for it. Runtime, configurations and that plugin are CNI's own.
func TestARuntimeOfCNI010(t *testing.T) {
	old, bin := legacy_examples.V010_Runtime, t.TempDir()
	runtime := goBuild(t, bin, "runtime", "testdata/libcni-0.3.0", old.PluginSource)
	goBuild(t, bin, "noop", ".", "")
	linktest.Run(t, func(t *testing.T) {
		stage(t, "")
		pod := linktest.NewNetns(t)
		must(t, os.Symlink(pod, cniDir+"/netns"))
		for _, name := range old.NetConfs {
			t.Run(name, func(t *testing.T) {
				conf, err := old.GenerateNetConf(name)
				must(t, err)
				defer conf.Cleanup()
				var child, parent map[string]any
				for _, config := range []*map[string]any{&child, &parent} {
					must(t, json.Unmarshal([]byte(conf.Config), config))
				}
				delete(parent, "debugFile")
				parent["type"], parent["delegates"] = "devinfo", []any{child}
				text, err := json.Marshal(parent)
				must(t, err)
				cmd := exec.Command(runtime, cniDir, bin)
				cmd.Stdin = strings.NewReader(string(text))
				if a := finish(t, cmd); a.exit != 0 {
					t.Errorf("%+v", a)
				}
				if left, err := filepath.Glob(stateDir + "/attachments/*"); err != nil || len(left) > 0 {
					t.Errorf("left: %q, %v", left, err)
				}
			})
		}
	})
}

// goBuild builds a program: the source in a copy of the module in dir, else CNI's plugin of that
// name.
func goBuild(t *testing.T, bin, name, dir, source string) (path string) {
	t.Helper()
	path = filepath.Join(bin, name)
	cmd := exec.Command("go", "build", "-o", path, "github.com/containernetworking/cni/plugins/test/"+name)
	if source != "" {
		cmd = exec.Command("go", "build", "-mod=readonly", "-o", path, ".")
		cmd.Dir = t.TempDir()
		// Its network namespace is the only thing that is not there.
		source = strings.Replace(source, "/some/netns/path", cniDir+"/netns", 1)
		for file, text := range map[string]string{"go.mod": read(t, dir+"/go.mod"), "go.sum": read(t, dir+"/go.sum"), "main.go": source} {
			must(t, os.WriteFile(filepath.Join(cmd.Dir, file), []byte(text), 0o600))
		}
		download := exec.Command("go", "mod", "download")
		download.Dir = cmd.Dir
		if out, err := download.CombinedOutput(); err != nil {
			t.Skipf("what %s needs cannot be had: %s", dir, out)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return path
}
