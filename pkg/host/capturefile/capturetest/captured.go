package capturetest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/test/difftest"
)

// captured returns the paths of captured hosts. Tests run in the directory of their package, at any depth.
func captured(t testing.TB, name string) []string {
	t.Helper()
	for depth := range 8 {
		if paths, err := filepath.Glob(strings.Repeat("../", depth) + "testdata/hosts/" + name + ".txtar"); err != nil || len(paths) > 0 {
			difftest.Must(t, err)
			return paths
		}
	}
	t.Fatalf("no captured host %s", name)
	return nil
}

// Names returns the names of all captured hosts.
func Names(t testing.TB) (names []string) {
	t.Helper()
	for _, path := range captured(t, "*") {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".txtar"))
	}
	if len(names) < 14 {
		t.Fatalf("the captured hosts are only %q", names)
	}
	return names
}

// Text returns the capture of a host.
func Text(t testing.TB, name string) []byte {
	t.Helper()
	return []byte(difftest.Read(t, captured(t, name)[0]))
}

// TwoPorts returns the capture i40e with eno2 moved from the second to the first function, as its second port.
func TwoPorts(t testing.TB) []byte {
	t.Helper()
	text := string(Text(t, "i40e"))
	for _, edit := range [][2]string{
		{"0000:18:00.1/net/eno2/dev_port --\n0", "0000:18:00.0/net/eno2/dev_port --\n1"}, {"0000:18:00.1/net/eno2", "0000:18:00.0/net/eno2"},
		{"net/eno2/device -> ../../../0000:18:00.1", "net/eno2/device -> ../../../0000:18:00.0"},
	} {
		if !strings.Contains(text, edit[0]) {
			t.Fatalf("the host has no %s", edit[0])
		}
		text = strings.ReplaceAll(text, edit[0], edit[1])
	}
	return []byte(text)
}

// Without returns the capture without some objects. A word with ":", such as a PCI address, removes all entries that
// contain it. Any other word is an interface. Without removes it as if it were in another network namespace: its device
// keeps an empty directory net.
func Without(text []byte, words ...string) []byte {
	var kept []string
	skip := false
	for line := range strings.Lines(string(text)) {
		gone := slices.ContainsFunc(words, func(word string) bool {
			if strings.Contains(word, ":") {
				return strings.Contains(line, word)
			}
			return strings.Contains(line, "/net/"+word+"/") || strings.Contains(line, "/net/"+word+" ") || strings.Contains(line, `"ifname":"`+word+`"`)
		})
		last := len(kept) - 1
		switch {
		case strings.HasPrefix(line, "-- "):
			skip = gone
			if dir, name, _ := strings.Cut(line, "/net/"); slices.Contains(words, strings.TrimSuffix(name, "/ifindex --\n")) {
				kept = append(kept, dir+"/net/ --\n")
			}
		case strings.HasPrefix(line, "{"):
			skip = gone
		case strings.HasPrefix(line, "]"): // remove the comma after the last element of a list
			skip = false
			kept[last] = strings.TrimSuffix(strings.TrimSuffix(kept[last], "\n"), ",") + "\n"
		}
		if !skip {
			kept = append(kept, line)
		}
	}
	return []byte(strings.Join(kept, ""))
}

// Load reads a captured host.
func Load(t testing.TB, name string) *capturefile.Host {
	t.Helper()
	host, err := capturefile.Load(captured(t, name)[0])
	difftest.Must(t, err)
	return host
}
