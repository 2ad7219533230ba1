package inject_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A reader of network-info.json finds the files of what it names, also when the agent is
// killed between two of them. A directory that is in the way stands for the kill.
func TestAllNetworksAreToldAfterEachAndForgottenBefore(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	for n := range 20 { // by chance the order is right in one of a million
		p := pod()
		p.Id = fmt.Sprint("pod", n)
		dir := filepath.Join(r.options.StageDir, p.Id, "devinfo")
		file, all := filepath.Join(dir, "net1.json"), filepath.Join(dir, "network-info.json")
		r.attach("sriov-net", p.Id, "net1", vfInfo)
		must(t, os.MkdirAll(file, 0o755))
		_, _, err := a.CreateContainer(t.Context(), p, container())
		must(t, err)
		if _, err := os.Stat(all); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("without the file of net1 all are told of: %v", err)
		}
		must(t, os.Remove(file))

		_, _, err = a.CreateContainer(t.Context(), p, container())
		must(t, err)
		must(t, os.Remove(all))
		must(t, os.Mkdir(all, 0o755))
		r.detach("sriov-net", p.Id, "net1")
		r.attach("macvlan-net", p.Id, "net2", "")
		_, _, err = a.CreateContainer(t.Context(), p, container())
		must(t, err)
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("while net1 is still told of: %v", err)
		}
	}
}
