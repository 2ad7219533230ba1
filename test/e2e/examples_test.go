//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// examples are those of deploy/examples that need no hardware but a network card. Their images
// are not pulled: pod-view takes their place, and tells what the container has. The example
// host-device is not among them, since it would take the node's only card.
func examples(t *testing.T, _ *nodeAgent) {
	for _, test := range []struct {
		name, address string
		pci, socket   bool
	}{
		{"macvlan", "10.56.2.", true, false},
		{"delegating", "10.56.3.", false, false}, // the node's interface need not be one of a card
		{"vhost-user", "", false, true},
		{"memif", "", false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := begin(t)
			s.apply(inPlace(t, content(t, "deploy/examples/"+test.name+".yaml")))
			v := s.running(test.name)
			want := files("net1")
			if !test.pci && !test.socket {
				want = given{Files: []string{"network-info.json"}}
			}
			if test.socket {
				want.SocketDirs = []string{userspaceDir + s.mustSandbox()[:12]}
			}
			s.has("container", v, want)
			if test.pci {
				s.tells(v, "net1", cardInfo("1.1.0").Encode())
			}
			if test.address != "" {
				s.in(test.name, "net1", test.address)
			}
			status := s.status(test.name)
			if diff := cmp.Diff(test.name == "macvlan", status["net1"] != ""); diff != "" {
				t.Errorf("device-info in network-status, which needs a resource (- is wanted):\n%s", diff)
			}
		})
	}
}

// inPlace has pod-view in the place of an example's image.
func inPlace(t *testing.T, text string) string {
	t.Helper()
	const image, command = "image: busybox:1.37\n", `command: [sh, -c, "env | grep DEVINFO_; head /var/run/k8s.cni.cncf.io/devinfo/*.json; exec sleep infinity"]`
	if strings.Count(text, image) != 1 || strings.Count(text, command) != 1 {
		t.Fatalf("an example has another image or command:\n%s", text)
	}
	text = strings.ReplaceAll(text, command, "command: [/pod-view]")
	return strings.ReplaceAll(text, image, "image: "+cluster.image+"\n")
}

// apply is kubectl apply in the space.
func (s *space) apply(text string) {
	s.Helper()
	path := filepath.Join(s.TempDir(), "example.yaml")
	must(s.T, os.WriteFile(path, []byte(text), 0o600))
	shell(s.T, "kubectl -n "+s.name+" apply -f "+path)
}

// content is that of a file of the repository.
func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	must(t, err)
	return string(text)
}

// newDir makes a directory in another, "" = /tmp, until the end of the test. Those in /tmp are the
// node's, too; t.TempDir has the test's name.
func newDir(t *testing.T, in string) string {
	t.Helper()
	dir, err := os.MkdirTemp(in, "e2e-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// binary is the path of a program that was built, here and on a node that has our files.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", name))
	must(t, err)
	return path
}

// documented are the first commands below a heading of a file in docs.
func documented(t *testing.T, file, heading string) string {
	t.Helper()
	return block(t, file, "\n"+heading+"\n", "sh")
}

// block is the first one in a language that is after a text in a file of docs.
func block(t *testing.T, file, after, language string) string {
	t.Helper()
	const fence = "```"
	_, section, ok := strings.Cut(content(t, "docs/"+file), after)
	_, section, shown := strings.Cut(section, fence+language+"\n")
	content, _, closed := strings.Cut(section, fence)
	if !ok || !shown || !closed {
		t.Fatalf("docs/%s has no block of %s after %q", file, language, after)
	}
	return content
}
