package dra

import (
	"errors"
	"testing"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/state"
)

// A step may fail when its claim is wanted otherwise already: Unprepare must not get the
// error of a save that Prepare began.
func TestAFailureIsNoTroubleOfWhoWantsSomethingElse(t *testing.T) {
	dir := t.TempDir()
	a, err := New(Options{Driver: "d.example.com", Policy: cniconfig.Policy{Driver: "d.example.com", Pool: "n"}, StateDir: dir, CacheDir: dir, CDIDir: dir, DeviceInfoDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, forgotten := range []bool{false, true} {
		c := known(&state.Claim{UID: "u1"})
		a.claims["u1"] = c
		save, before := step{do: doSave}, goal{want: keep}
		lane, ok := a.begin(c, save, before)
		if !ok {
			t.Fatal("it does not begin")
		}
		if forgotten {
			if _, err := a.dismiss("u1"); err != nil {
				t.Fatal(err)
			}
		}
		a.end(c, save, before, lane, errors.New("the disk is full"))
		if (c.trouble == retry{}) != forgotten {
			t.Errorf("forgotten %v: %+v", forgotten, c.trouble)
		}
	}
}
