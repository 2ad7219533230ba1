package cniexec_test

import (
	"os"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/cniexec"
)

func TestAPluginIsFoundWhereTheOperatorHasIt(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/a/plugin", 0o755)) // a directory is none
	must(t, os.MkdirAll(root+"/b", 0o755))
	must(t, os.WriteFile(root+"/b/plugin", nil, 0o755))
	must(t, os.Symlink("/b", root+"/link")) // to the host's
	must(t, os.Symlink("../../b", root+"/far"))
	must(t, os.Symlink("/etc", root+"/ours"))
	for _, test := range []struct {
		root, want string
		dirs       []string
	}{
		{root, "/b/plugin", []string{"/none", "/a", "/b"}},
		{root, "/link/plugin", []string{"/link"}},
		{root, "/far/plugin", []string{"/far"}},
		{"", root + "/b/plugin", []string{root + "/a", root + "/b"}},
	} {
		e := &cniexec.Exec{Root: test.root}
		if got, err := e.FindInPath("plugin", test.dirs); got != test.want || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	e := &cniexec.Exec{Root: root}
	for plugin, want := range map[string]string{
		"macvaln": `CNI plugin "macvaln": not installed: it must be in /opt/cni/bin or /b or /ours`,
		"passwd":  `CNI plugin "passwd": not installed`,
		"":        `CNI plugin "": type must be the name of an executable`,
		"../b/x":  `CNI plugin "../b/x": type must be the name of an executable`,
	} {
		_, err := e.FindInPath(plugin, []string{"/opt/cni/bin", "/b", "/ours"})
		expect(t, err, cniexec.ReasonMissing, want)
		if strings.Contains(err.Error(), root) {
			t.Errorf("%v: the operator does not know %s", err, root)
		}
	}
}
