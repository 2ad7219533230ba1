package hosttxttest

import (
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/hosttxt"
)

// captured returns the paths of the captured hosts, from a package two or three directories deep.
func captured(t testing.TB, name string) []string {
	t.Helper()
	for _, up := range []string{"../..", "../../.."} {
		if paths, err := filepath.Glob(up + "/testdata/hosts/" + name + ".txtar"); err != nil || len(paths) > 0 {
			difftest.Must(t, err)
			return paths
		}
	}
	t.Fatalf("there is no captured host %s", name)
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

// Load reads a captured host.
func Load(t testing.TB, name string) *hosttxt.Host {
	t.Helper()
	host, err := hosttxt.Load(captured(t, name)[0])
	difftest.Must(t, err)
	return host
}
