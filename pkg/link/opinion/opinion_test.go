package opinion_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/opinion"
)

// even have the representor eth<number> for even numbers.
type even struct{}

func (even) Switchdev(string) (bool, error) { return true, nil }

func (even) Representor(_ string, _ link.Flavour, number int) (string, bool, error) {
	if number%2 != 0 {
		return "", false, nil
	}
	return fmt.Sprint("eth", number), true, nil
}

func TestOpinionsOnWhatWasAsked(t *testing.T) {
	none := errors.New("representor not found")
	w := &opinion.Witness{Switches: even{}, Ask: func(_ string, flavour link.Flavour, number int) (string, error) {
		if theirs, ok := map[int]string{0: "eth0", 1: "eth0", 4: "eth5"}[number]; ok && flavour == link.VF {
			return theirs, nil
		}
		return "", none
	}}
	for _, n := range []int{0, 1, 2, 3, 4, 0} {
		if on, err := w.Switchdev("0000:03:00.0"); !on || err != nil {
			t.Error(on, err)
		}
		name, ok, err := w.Representor("0000:03:00.0", link.VF, n)
		if want, wantOK, _ := (even{}).Representor("", link.VF, n); name != want || ok != wantOK || err != nil {
			t.Errorf("VF %d: %q, %v, %v", n, name, ok, err)
		}
	}
	w.Representor("0000:03:00.0", link.SF, 0)
	want := []opinion.Opinion{
		{Function: "VF 0 of 0000:03:00.0", Ours: "eth0", Theirs: "eth0"},
		{Function: "VF 1 of 0000:03:00.0", Theirs: "eth0"},
		{Function: "VF 2 of 0000:03:00.0", Ours: "eth2", Err: none},
		{Function: "VF 4 of 0000:03:00.0", Ours: "eth4", Theirs: "eth5"},
		{Function: "SF 0 of 0000:03:00.0", Ours: "eth0", Err: none},
	}
	got := w.Opinions()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for n, text := range []string{"sriovnet agrees", "sriovnet finds eth0", "sriovnet finds nothing: representor not found", "sriovnet finds eth5"} {
		if got[n].String() != text {
			t.Errorf("%s, want %s", got[n], text)
		}
	}
	if again := w.Opinions(); len(again) != 0 {
		t.Errorf("once more: %+v", again)
	}
}

// No machine has these PFs.
func TestSriovnetOnThisMachine(t *testing.T) {
	for _, flavour := range []link.Flavour{link.VF, link.SF} {
		for _, pf := range []string{"ffff:ff:1f.7", "10000:ff:1f.7"} {
			if name, err := opinion.Sriovnet(pf, flavour, 0); name != "" || err == nil {
				t.Errorf("%s: %q, %v", pf, name, err)
			}
		}
	}
}
