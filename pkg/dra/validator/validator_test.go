package validator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/validator"
)

const (
	containerdOn  = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\n  enable = true\n"
	containerdOff = "version = 3\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = false\n"
	crioOn        = "[crio.nri]\nenable_nri = true\n[crio.nri.default_validator]\nnri_enable_default_validator = true\n"
)

func TestTheRuntimesFilesSayWhetherTheValidatorIsOn(t *testing.T) {
	for _, test := range []struct {
		name, runtime, release string
		files                  map[string]string
		want                   validator.State
		fails                  string
	}{
		{"on", "containerd", "v2.3.0", map[string]string{"etc/containerd/config.toml": containerdOn}, validator.On, ""},
		{"before there was one", "containerd", "v2.1.9", map[string]string{"etc/containerd/config.toml": containerdOn}, validator.Off, ""},
		{"a release that is no number", "containerd", "local", map[string]string{"etc/containerd/config.toml": containerdOn}, validator.On, ""},
		{"not mentioned", "containerd", "2.3.0", map[string]string{"etc/containerd/config.toml": containerdOff}, validator.Off, ""},
		{"no files", "containerd", "2.3.0", nil, validator.Unknown, ""},
		{"imported by default", "containerd", "2.3.0", map[string]string{
			"etc/containerd/config.toml": containerdOff, "etc/containerd/conf.d/nri.toml": containerdOn}, validator.On, ""},
		{"imports of its own", "containerd", "2.3.0", map[string]string{"etc/containerd/config.toml": "imports = ['more/*.toml', '/opt/x.toml']\n" + containerdOff,
			"etc/containerd/conf.d/nri.toml": containerdOn}, validator.Off, ""},
		{"relative", "containerd", "2.3.0", map[string]string{"etc/containerd/config.toml": "imports = ['more/*.toml']\n",
			"etc/containerd/more/nri.toml": containerdOn}, validator.On, ""},
		{"the last one counts", "containerd", "2.3.0", map[string]string{"etc/containerd/config.toml": "imports = ['/opt/*.toml']\n",
			"opt/a.toml": containerdOn, "opt/b.toml": strings.Replace(containerdOn, "true", "false", 1)}, validator.Off, ""},
		{"no TOML", "containerd", "2.3.0", map[string]string{"etc/containerd/config.toml": "[["}, validator.Unknown, "/etc/containerd/config.toml"},
		{"CRI-O", "cri-o", "1.34.0", map[string]string{"etc/crio/crio.conf": "[crio]\n", "etc/crio/crio.conf.d/10-nri.conf": crioOn}, validator.On, ""},
		{"CRI-O, not mentioned", "cri-o", "1.34.0", map[string]string{"etc/crio/crio.conf": "[crio]\n"}, validator.Off, ""},
		{"CRI-O without files", "cri-o", "1.34.0", map[string]string{"etc/containerd/config.toml": containerdOn}, validator.Unknown, ""},
		{"another runtime", "whatever", "1.0.0", map[string]string{"etc/containerd/config.toml": containerdOn}, validator.Unknown, ""},
	} {
		root := t.TempDir()
		for name, text := range test.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := validator.Of(root, test.runtime, test.release)
		if got != test.want || (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: got %s, %v, want %s, %q", test.name, got, err, test.want, test.fails)
		}
	}
}
