package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/pkg/sysfs"
)

func TestASocketsDirectoryIsGivenAsTheNodeSettingsAllow(t *testing.T) {
	linktest.Run(t, giveSocketDirectories) // a user enters only namespaces of his own
}

func giveSocketDirectories(t *testing.T) {
	sys, err := sysfs.Open("/sys")
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(allowed, "pod")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	info := &devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Mode: "client", Path: dir + "/sock"}}
	for _, test := range []struct {
		socketDirs []string
		want       []cdispec.Mount
	}{
		{[]string{allowed}, []cdispec.Mount{{Host: dir, Container: dir}}},
		{[]string{"/var/run/vhost-user"}, nil},
	} {
		got, err := granter(config.Node{SocketDirs: test.socketDirs}, sys, "")(info, "/proc/self/ns/net", "net1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got.Mounts); diff != "" || (test.want == nil) != (len(got.Refusals) == 1) {
			t.Errorf("%s: refused %v\n%s", test.socketDirs, got.Refusals, diff)
		}
	}
}
