//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// examples runs the files in deploy/examples that need no hardware except a network card. It replaces their images
// by pod-view, which is not pulled, and which prints the device information in the container. It leaves out the
// example host-device, which would take the node's only card.
func examples(t *testing.T, _ *nodeAgent) {
	for _, test := range []struct {
		name, address string
		pci, socket   bool
	}{
		{"macvlan", "10.56.2.", true, false},
		{"delegating", "10.56.3.", false, false}, // the node's interface may lack a card
		{"vhost-user", "", false, true},
		{"memif", "", false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := begin(t, content(t, "deploy/examples/"+test.name+".yaml"))
			v := s.running(test.name)
			want := files("net1")
			if !test.pci && !test.socket {
				want = given{Files: []string{"network-info.json"}}
			}
			if test.socket {
				want.SocketDirs = []string{userspaceDir + s.sandboxOf(test.name)[:12]}
			}
			s.has("container", v, want)
			if test.pci {
				s.tells(v, "net1", cardInfo().Encode())
			}
			if test.address != "" {
				s.in(test.name, "net1", test.address)
			}
			difftest.Same(t, "device-info in network-status, which needs a resource", s.status(test.name)["net1"] != "", test.name == "macvlan")
		})
	}
}

// apply applies objects in the space, with pod-view in place of busybox, which would have to be pulled. The end of the
// test deletes DeviceClasses.
func (s *space) apply(text string) {
	s.Helper()
	text = regexp.MustCompile(`image: busybox:1\.37(\n +)command: \[.*\]\n`).ReplaceAllString(text, "image: "+cluster.image+"${1}command: [/pod-view]\n")
	path := filepath.Join(s.TempDir(), "objects.yaml")
	difftest.Write(s.T, path, text, 0o600)
	shell(s.T, "kubectl -n "+s.name+" apply -f "+path)
	for _, class := range regexp.MustCompile(`(?m)^kind: DeviceClass\nmetadata:\n  name: (.*)$`).FindAllStringSubmatch(text, -1) {
		s.Cleanup(func() { shell(s.T, "kubectl delete deviceclass "+class[1]) })
	}
}

// content returns the content of a file of the repository.
func content(t *testing.T, path string) string {
	t.Helper()
	return difftest.Read(t, filepath.Join(root, path))
}

// newDir creates a directory in /tmp until the end of the test. The node sees directories in /tmp too. t.TempDir is not
// used, because its path contains the test's name.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// binary returns the path of a built program. A node that shares our files has it at the same path.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", name))
	must(t, err)
	return path
}
