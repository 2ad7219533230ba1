package failure_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

func TestTranslateGivesCodeMessageAndDetails(t *testing.T) {
	first, second, conflict := failure.New(failure.Held, errors.New("held"), "wait"), errors.New("no\x1b"), &discovery.ConflictError{}
	own := &types.Error{Code: 999, Msg: "down", Details: "port 1"}
	delegate := func(reason cniexec.Reason, err error) error {
		return failure.OfDelegate("ADD", &cniexec.PluginError{At: 1, Plugin: "vlan", Err: &cniexec.Error{Reason: reason, Err: err}})
	}
	for _, test := range []struct {
		err           error
		code          uint
		said, details string
	}{
		{second, 5, `no\u001b`, ""},
		{failure.Join(nil, second, nil), 5, `no\u001b`, ""},
		{failure.Join(first, second, fs.ErrClosed), 104, "held", `wait; then: no\u001b; then: file already closed`},
		{fmt.Errorf("x: %w", failure.Join(second, first)), 5, `x: no\u001b`, "then: held"},
		{conflict, 102, conflict.Error(), check.RemedyConflict},
		{failure.New(failure.Limited, second, "x"), 51, `no\u001b`, "x"},
		{failure.New(failure.Config, conflict, ""), 7, conflict.Error(), check.RemedyConflict},
		{&store.BusyError{Path: "x"}, 11, (&store.BusyError{Path: "x"}).Error(), "try again"},
		{fmt.Errorf("x: %w", link.ErrNoNetns), 8, "x: " + link.ErrNoNetns.Error(), ""},
		{failure.OfCheck(&check.Error{State: check.DeviceLost, Err: second}), 100, `no\u001b`, check.DeviceLost.Remedy()},
		{failure.OfCheck(&check.Error{State: check.FileMissing, Err: second}), 101, `no\u001b`, check.FileMissing.Remedy()},
		{failure.OfCheck(&check.Error{State: check.BadFile, Err: conflict}), 102, conflict.Error(), check.RemedyConflict},
		{failure.OfDelegate("ADD", second), 5, `no\u001b`, ""},
		{own, 999, "down", "port 1"},
		{delegate(cniexec.ReasonPlugin, own), 999, "delegates[1] (vlan): ADD: down", "port 1"},
		{delegate(cniexec.ReasonPlugin, &types.Error{Msg: "down"}), 5, "delegates[1] (vlan): ADD: down", "the delegate gave its error no code; see its log"},
		{delegate(cniexec.ReasonOutput, second), 6, `delegates[1] (vlan): ADD: no\u001b`, "report this to the delegate's authors"},
		{delegate(cniexec.ReasonTimeout, second), 5, `delegates[1] (vlan): ADD: no\u001b`, ""},
	} {
		difftest.Same(t, test.err.Error(), failure.Translate(test.err), error(types.NewError(test.code, test.said, test.details)))
	}
	difftest.Same(t, "no error", []error{failure.Translate(nil), failure.Join(nil, nil)}, []error{nil, nil})
	difftest.Is(t, failure.Join(first, second), first)
}
