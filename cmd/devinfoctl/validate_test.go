package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/test/difftest"
)

// What validate says of objects does not depend on the form in which they are given.
func TestValidateJudgesObjectsInEachFormAlike(t *testing.T) {
	const (
		unknown = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}`
		skipped = `{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "a"}}`
		good    = `{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "devinfo-settings"}, "data": {"default.json": "{}"}}`
		wrong   = `{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "devinfo-settings"}, "data": {"default.json": "[]"}}`
	)
	for _, test := range []struct {
		objects []string
		exit    int
		last    string // line of the output
	}{
		{nil, 0, "nothing to check"},
		{[]string{unknown}, 0, "1 Service: not checked: nothing in it is for validate"},
		{[]string{skipped}, 0, "DeviceClass a: not checked: nothing in it is for the driver cni.dra.networking.x-k8s.io"},
		{[]string{good}, 0, "ConfigMap devinfo-settings: valid"},
		{[]string{wrong}, clierr.Found, ": error: data.default.json: "},
		{[]string{unknown, unknown}, 0, "2 documents: 0 valid, 2 not checked; 0 errors, 0 warnings"},
		{[]string{skipped, unknown}, 0, "2 documents: 0 valid, 2 not checked; 0 errors, 0 warnings"},
		{[]string{good, good}, 0, "2 documents: 2 valid, 0 not checked; 0 errors, 0 warnings"},
		{[]string{unknown, good}, 0, "2 documents: 1 valid, 1 not checked; 0 errors, 0 warnings"},
		{[]string{unknown, wrong}, clierr.Found, "2 documents: 0 valid, 1 not checked; 1 error, 0 warnings"},
		{[]string{wrong, good, skipped, unknown, wrong}, clierr.Found, "5 documents: 1 valid, 2 not checked; 2 errors, 0 warnings"},
	} {
		dir, each := t.TempDir(), []string{}
		write := func(name, text string) string {
			path := filepath.Join(dir, name)
			difftest.Write(t, path, text, 0o600)
			return path
		}
		write("each/README.md", "not looked at")
		for n, object := range test.objects {
			each = append(each, write(fmt.Sprintf("each/%d.yaml", n), object))
		}
		stream := "# only a comment\n---\n" + strings.Join(test.objects, "\n---\n")
		list := `{"apiVersion": "v1", "kind": "List", "items": [` + strings.Join(test.objects, ", ") + "]}"
		for form, args := range map[string][]string{
			"documents": {write("stream.yaml", stream)}, "a List": {write("list.json", list)}, "a List in YAML": {write("list.yaml", "---\n"+list)},
			"a directory": {filepath.Join(dir, "each")}, "files": each, "standard input": {"-"},
		} {
			if len(args) == 0 { // validate wants a file
				continue
			}
			var stdout, stderr bytes.Buffer
			exit := run(append([]string{"validate"}, args...), strings.NewReader(stream), &stdout, &stderr)
			lines := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; exit != test.exit || !strings.Contains(last, test.last) || stderr.Len() > 0 {
				t.Errorf("%v as %s: exit %d, %q%s", test.objects, form, exit, last, &stderr)
			}
		}
	}
}

// A file with neither an object nor one of our texts is the wrong file, unless it is one of many. One without any text is broken.
func TestValidateTellsWrongFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"rules.yaml": "devices: []\n", "two.yaml": "a: 1\n---\nb: 2\n", "empty.yaml": "", "dir/rules.yaml": "devices: []\n", "dir/links/node.json": "{}"} {
		difftest.Write(t, name, text, 0o600)
	}
	difftest.Must(t, os.Mkdir("pipe", 0o700), syscall.Mkfifo("pipe/a.conf", 0o600), os.Symlink("none", "dir/links/gone.yaml"))
	for args, want := range map[string]struct {
		exit int
		says string
	}{
		"pipe":                {clierr.Blind, "! devinfoctl: pipe/a.conf: not a regular file\n!   name a file that can be read"},
		"rules.yaml":          {clierr.Usage, "! devinfoctl: rules.yaml: nothing in it is for validate\n!   name its format by --kind; "},
		"two.yaml":            {clierr.Usage, "! devinfoctl: two.yaml: "},
		"rules.yaml two.yaml": {0, "3 documents: 0 valid, 3 not checked; 0 errors, 0 warnings\n"},
		"dir/rules.yaml dir":  {clierr.Blind, "3 documents: 1 valid, 2 not checked; 0 errors, 0 warnings\n! devinfoctl: stat dir/links/gone.yaml: no such file or directory\n!   name"},
		"none dir/links/a":    {clierr.Blind, "! devinfoctl: open none: no such file or directory\n! open dir/links/a"},
		"empty.yaml":          {clierr.Found, "empty.yaml: unreadable: 1 error, 0 warnings\n  error: the text is empty\n"},
		"two.yaml empty.yaml": {clierr.Found, "3 documents: 0 valid, 2 not checked; 1 error, 0 warnings\n"},
	} {
		if o := ctl(append([]string{"validate"}, strings.Fields(args)...)...); o.exit != want.exit || !strings.Contains(o.seen(), want.says) {
			t.Errorf("%s: %s", args, o.seen())
		}
	}
}
