package grant_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/test/difftest"
)

var web = pod.Identity{UID: "6e0c2d4f", ContainerID: "0123456789abcdef9876"}

func vhostUser(path string) *devinfo.Info {
	return &devinfo.Info{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Mode: "client", Path: path}}
}

// tree creates directories, and links written as "a -> b". It returns the root, links resolved.
func tree(t *testing.T, entries ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	difftest.Must(t, err)
	for _, e := range entries {
		if name, target, ok := strings.Cut(e, " -> "); ok {
			err = os.Symlink(target, filepath.Join(root, name))
		} else {
			err = os.MkdirAll(filepath.Join(root, e), 0o755)
		}
		difftest.Must(t, err)
	}
	return root
}

func socketsOf(root string, p pod.Identity, dirs ...string) grant.Granter {
	g := grant.Granter{Pod: p}
	for _, dir := range dirs {
		g.Settings.SocketDirs = append(g.Settings.SocketDirs, root+dir)
	}
	return g
}

// refused returns the reason of the refusal, or "" if the directory is granted.
func refused(t *testing.T, g grant.Granter, socket string) string {
	t.Helper()
	got, err := g.For(own, vhostUser(socket))
	difftest.Must(t, err)
	if len(got.Refusals) == 0 {
		return ""
	}
	difftest.Same(t, socket, got, grant.Grant{Refusals: got.Refusals[:1]})
	difftest.Same(t, "without a remedy", got.Refusals[0].Remedy == "", false)
	return got.Refusals[0].Why
}

func TestSocketDirIsMountedAtContainerPath(t *testing.T) {
	root := tree(t, "sockets/6e0c2d4f", "sockets/0123456789ab-net1", "more/x-6e0c2d4f", "more/linked-6e0c2d4f -> ../sockets/linked-6e0c2d4f", "sockets/linked-6e0c2d4f", "alias -> sockets")
	g := socketsOf(root, web, "/none", "/alias/", "/more")
	for socket, want := range map[string][2]string{ // host, container
		"/sockets/6e0c2d4f/s":          {"/sockets/6e0c2d4f", "/sockets/6e0c2d4f"}, // the target of the node's link
		"/alias/6e0c2d4f/s":            {"/sockets/6e0c2d4f", "/alias/6e0c2d4f"},
		"/sockets/0123456789ab-net1/s": {"/sockets/0123456789ab-net1", "/sockets/0123456789ab-net1"},
		"/more//./x-6e0c2d4f/s":        {"/more/x-6e0c2d4f", "/more/x-6e0c2d4f"},
		"/more/fedcba/../x-6e0c2d4f/s": {"/more/x-6e0c2d4f", "/more/x-6e0c2d4f"},
		"/more/linked-6e0c2d4f/s":      {"/sockets/linked-6e0c2d4f", "/more/linked-6e0c2d4f"},
	} {
		got, err := g.For(other, vhostUser(root+socket))
		difftest.Must(t, err)
		difftest.Same(t, socket, got, grant.Grant{SocketDir: root + want[0], Mounts: []cdispec.Mount{{Host: root + want[0], Container: root + want[1]}}})
	}
}

func TestSocketDirOnHostMayDiffer(t *testing.T) {
	root := tree(t, "sockets/6e0c2d4f")
	g := socketsOf(root, web, "/sockets")
	g.SocketDir = root + "/sockets/6e0c2d4f/"
	memif := &devinfo.Info{Type: devinfo.TypeMemif, Memif: &devinfo.Memif{Path: "/var/memif//m.sock"}}
	expect(t, "elsewhere", g, memif, other, root+"/sockets/6e0c2d4f on /var/memif, read-only false")
	g.SocketDir = "sockets/6e0c2d4f"
	difftest.Contains(t, refused(t, g, "/var/memif/m.sock"), "is not directly below one of socketDirs")
}

// The refusal must be the same for existing and missing directories.
func TestForeignSocketDirIsRefusedUnread(t *testing.T) {
	root := tree(t, "sockets/77aa01bc", "sockets/6e0c2d4f/nested-6e0c2d4f", "sockets-2/6e0c2d4f", "sockets/0123456789a", "elsewhere/6e0c2d4f")
	for _, socketDirs := range [][]string{{"/sockets"}, {"/sockets/"}, {"/none", "/sockets"}, nil} {
		g := socketsOf(root, web, socketDirs...)
		for _, dir := range []string{
			"/sockets", "/sockets/6e0c2d4f/..", "", "/sockets/77aa01bc", "/sockets/77aa01bd", "/sockets/0123456789a",
			"/sockets/6e0c2d4f/nested-6e0c2d4f", "/sockets/6e0c2d4f/none-6e0c2d4f", "/sockets/none/6e0c2d4f",
			"/sockets-2/6e0c2d4f", "/elsewhere/6e0c2d4f", "/elsewhere/none", "/sockets/6e0c2d4f/../../elsewhere/6e0c2d4f",
		} {
			want := filepath.Clean(root+dir) + " is not directly below one of socketDirs (" + strings.Join(g.Settings.SocketDirs, ", ") + "), or its name does not contain this pod's ID"
			difftest.Same(t, dir+" of "+strings.Join(socketDirs, ","), refused(t, g, root+dir+"/s"), want)
		}
	}
}

// The name of the directory decides which setting is wrong.
func TestRefusedSocketDirHasFittingRemedy(t *testing.T) {
	g := socketsOf("", web, "/sockets")
	for dir, want := range map[string]string{
		"/elsewhere/6e0c2d4f":        "add /elsewhere to socketDirs",
		"/sockets/6e0c2d4f/6e0c2d4f": "use a directory with {podUID}", // a pod may write to the parent
		"/sockets/77aa01bc":          "use a directory with {podUID}",
		"/6e0c2d4f":                  "use a directory with {podUID}",
	} {
		got, err := g.For(own, vhostUser(dir+"/s"))
		difftest.Must(t, err)
		difftest.Contains(t, got.Refusals[0].Remedy, want)
	}
}

func TestSocketDirMustBeDirectory(t *testing.T) {
	root := tree(t, "sockets/real-6e0c2d4f", "sockets/a-6e0c2d4f -> /etc", "sockets/b-6e0c2d4f -> real-6e0c2d4f", "sockets/c-6e0c2d4f -> 77aa01bc", "sockets/77aa01bc",
		"sockets/d-6e0c2d4f -> 77aa01bc/d-6e0c2d4f", "sockets/77aa01bc/d-6e0c2d4f", "sockets/e-6e0c2d4f -> e-6e0c2d4f", "sockets/f-6e0c2d4f -> ../sockets")
	difftest.Must(t, os.WriteFile(root+"/sockets/file-6e0c2d4f", nil, 0o644))
	for name, want := range map[string]string{
		"none": "no such file or directory", "file": "not a directory", "a": "is a symbolic link to another directory", "b": "is a symbolic link to another directory",
		"c": "is a symbolic link to another directory", "d": "is a symbolic link to another directory", "e": "too many links", "f": "is a symbolic link to another directory",
	} {
		why := refused(t, socketsOf(root, web, "/sockets"), root+"/sockets/"+name+"-6e0c2d4f/s")
		difftest.Contains(t, why, want)
		difftest.Lacks(t, why, "stat")
	}
}

func TestSocketPathMustBeMountable(t *testing.T) {
	for _, socket := range []string{"s", "run/s", "/s", "/./s", "/a/../s", "@abstract"} {
		difftest.Contains(t, refused(t, socketsOf("", web, "/run"), socket), "its path in the container must be absolute and not directly in /")
	}
}
