package custody_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/dra/custody"
	"devinfo-cni.io/pkg/dra/custody/custodytest"
)

func TestADriverIsRefusedThatCannotHaveTheFunctionAlone(t *testing.T) {
	const inGroup = "sys/kernel/iommu_groups/12/devices/"
	for name, test := range map[string]struct {
		change func(dir string) error
		driver string
		want   []string // parts of the error; nil = none
	}{
		"alone":            {nil, "vfio-pci", nil},
		"no such driver":   {nil, "uio", []string{"driver: uio", "load the module uio"}},
		"with another one": {func(dir string) error { return os.Symlink("x", filepath.Join(dir, inGroup, "0000:01:10.2")) }, "vfio-pci", []string{"IOMMU group 12", "0000:01:10.2", `"igbvf"`, "bind them to vfio-pci"}},
		"with one on it":   {func(dir string) error { return os.Symlink("x", filepath.Join(dir, inGroup, "0000:01:10.6")) }, "vfio-pci", nil},
		"with a bridge": {func(dir string) error {
			bridge := filepath.Join(dir, "sys/devices/pci0000:00/0000:00:05.0")
			return errors.Join(os.Symlink("x", filepath.Join(dir, inGroup, "0000:00:05.0")), os.WriteFile(filepath.Join(bridge, "class"), []byte("0x060400\n"), 0o644),
				os.Symlink("../../../devices/pci0000:00/0000:00:05.0", filepath.Join(dir, "sys/bus/pci/devices/0000:00:05.0")))
		}, "vfio-pci", nil},
		"without IOMMU": {func(dir string) error {
			return os.Remove(filepath.Join(dir, "sys/bus/pci/devices", vf, "iommu_group"))
		}, "vfio-pci", []string{"no IOMMU isolates " + vf, "intel_iommu=on"}},
		"which is allowed": {func(dir string) error {
			parameters := filepath.Join(dir, "sys/module/vfio/parameters")
			return errors.Join(os.Remove(filepath.Join(dir, "sys/bus/pci/devices", vf, "iommu_group")), os.MkdirAll(parameters, 0o755),
				os.WriteFile(filepath.Join(parameters, "enable_unsafe_noiommu_mode"), []byte("Y\n"), 0o644))
		}, "vfio-pci", nil},
	} {
		t.Run(name, func(t *testing.T) {
			captured, err := os.ReadFile("../../../testdata/hosts/igb-sriov.txtar")
			must(t, err)
			dir := t.TempDir()
			k, err := custodytest.Make(dir, captured)
			must(t, err)
			if test.change != nil {
				must(t, test.change(filepath.Join(dir, "kernel")))
			}
			err = k.Host().MayBind(look(t, k.Host(), function(vf, "eth2")), test.driver)
			if (err != nil) != (test.want != nil) {
				t.Fatalf("got %v", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v: does not say %s", err, part)
				}
			}
		})
	}
}

// VFIO lets go of a function once nobody has it open. The kernel waits for that, we do not.
func TestADriverThatDoesNotLetGoHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kernel(t, "igb-sriov")
		f := look(t, k.Host(), function(vf, "eth2"))
		must(t, k.Host().Bind(f, "vfio-pci"))
		closed, calls := make(chan struct{}), 0
		h := custody.New(k.Sys(), func(name, text string) error {
			if strings.HasSuffix(name, "/unbind") {
				calls++
				<-closed
			}
			return k.Write(name, text)
		}, k)
		for range 3 {
			began := time.Now()
			if _, err := h.Restore(f); err == nil || !strings.Contains(err.Error(), "a process still has it open") || time.Since(began) > time.Minute {
				t.Errorf("got %v after %v", err, time.Since(began))
			}
		}
		close(closed)
		if did, err := h.Restore(f); err != nil || calls != 1 {
			t.Errorf("%q, %v, %d calls", did, err, calls)
		}
		if diff := cmp.Diff(f, look(t, h, function(vf, "eth2"))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestADriverThatIsNotBoundIsAnError(t *testing.T) {
	k := kernel(t, "igb-sriov")
	h := k.Host()
	f := look(t, h, function(vf, "eth2"))
	if err := h.Bind(f, "uio"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`%s: bound to driver "", not to "uio"`, vf)) {
		t.Errorf("got %v", err)
	}
	_, err := h.Restore(f)
	must(t, err)
}
