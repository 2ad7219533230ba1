package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/pod"
)

// delegation runs the child plugins. It stands in for libcni, which would keep their
// results in a cache of its own: the journal is the authority, and has them.
type delegation struct {
	exec   *cniexec.Exec
	path   string // CNI_PATH
	listen func()
}

const (
	delegateLimit = 4 * time.Minute  // of one delegate; kubelets and runtimes give up before that
	orphanLimit   = 30 * time.Second // of the wait for a delegate whose devinfo was killed
)

// delegation is for one attachment. While a delegate runs, it has the journal's entry
// locked: one that outlives us is waited for before anything else is run.
func (p *Plugin) delegation(cniPath string, key journal.Key) *delegation {
	exec := &cniexec.Exec{Root: p.Root, Limit: delegateLimit, Lock: p.Journal.Lock(key), Wait: orphanLimit, Stderr: os.Stderr}
	return &delegation{exec, cniPath, p.listen}
}

// listen begins to take signals, once, and only when there are children to wait for: it
// takes a tenth of the time of a chained ADD.
func (p *Plugin) listen() {
	if p.Listen != nil && p.signals == nil {
		p.signals = p.Listen()
	}
}

// begin takes signals from here on, and marks the children as running within the
// attachment: see [Plugin.Within].
func (d *delegation) begin(key journal.Key) error {
	d.listen()
	return os.Setenv(WithinEnv, key.String()) // they get our environment
}

// find gives the path of a child plugin, which is in CNI_PATH.
func (d *delegation) find(child string) (string, error) {
	return d.exec.FindInPath(child, filepath.SplitList(d.path))
}

// run runs one verb of a child. No context ends it: its limit does.
func (d *delegation) run(verb string, c *child, e *journal.Entry) error {
	path, err := d.find(c.Type)
	if err != nil {
		return err
	}
	return invoke.ExecPluginWithoutResult(context.Background(), path, c.raw, d.args(verb, e), d.exec)
}

func (d *delegation) args(verb string, e *journal.Entry) *invoke.Args {
	pairs, _ := pod.ParseArgs(e.Args) // ADD has refused them, DEL has warned, if they cannot be read
	return &invoke.Args{Command: verb, ContainerID: e.ContainerID, NetNS: e.Netns, PluginArgs: pairs, IfName: e.IfName, Path: d.path}
}

// add runs the delegates in order. started is how many of them need a DEL, the
// failed one included if it has run. Before each it asks whether to go on, and after each it says what
// came of it.
func (d *delegation) add(e *journal.Entry, goOn func() error, ended func(name string, before, after json.RawMessage)) (result json.RawMessage, started int, err error) {
	result = e.PrevResult
	if err := d.begin(e.Key); err != nil {
		return result, 0, err
	}
	for n, raw := range e.Delegates {
		if err := goOn(); err != nil {
			return result, n, err
		}
		c, err := childOf(e, raw, result)
		if err != nil {
			return result, n, err
		}
		text, err := d.addOne(c, e)
		if err != nil && notRun(err) {
			return result, n, d.failed("ADD", c, err)
		}
		if err != nil {
			return result, n + 1, d.failed("ADD", c, err)
		}
		ended(c.Type, result, text)
		result = text
	}
	return result, len(e.Delegates), goOn()
}

// addOne gives the delegate's result, in the network's version where that can say it: it
// cannot where there are no addresses before 0.3.0.
func (d *delegation) addOne(c *child, e *journal.Entry) (json.RawMessage, error) {
	path, err := d.find(c.Type)
	if err != nil {
		return nil, err
	}
	answer, err := invoke.ExecPluginWithResult(context.Background(), path, c.raw, d.args("ADD", e), d.exec)
	if err != nil {
		return nil, err
	}
	if same, err := answer.GetAsVersion(e.CNIVersion); err == nil {
		answer = same
	}
	return json.Marshal(answer)
}

// del runs the delegates' DEL in reverse, all of them whatever fails. From 0.4.0
// on they get the result of ADD.
func (d *delegation) del(e *journal.Entry) (errs []error) {
	if len(e.Delegates) == 0 {
		return nil
	}
	errs = append(errs, d.begin(e.Key))
	for _, raw := range slices.Backward(e.Delegates) {
		c, err := childOf(e, raw, final(e))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := d.run("DEL", c, e); err != nil {
			errs = append(errs, d.failed("DEL", c, err))
		}
	}
	return errs
}

// check runs the delegates' CHECK in order and stops at the first that fails.
func (d *delegation) check(e *journal.Entry) error {
	if len(e.Delegates) == 0 {
		return nil
	}
	if err := d.begin(e.Key); err != nil {
		return err
	}
	for _, raw := range e.Delegates {
		c, err := childOf(e, raw, final(e))
		if err != nil {
			return err
		}
		if err := d.run("CHECK", c, e); err != nil {
			return d.failed("CHECK", c, err)
		}
	}
	return nil
}

// gc hands the list of valid attachments on, under the key that the specification has
// and the one that libcni gives with it.
func (d *delegation) gc(cfg *config.Config) error {
	valid, err := json.Marshal(cfg.Valid)
	if err != nil {
		return err
	}
	raws, err := children(cfg)
	errs := []error{err}
	for _, raw := range raws {
		c, err := newChild(raw, map[string]json.RawMessage{"cni.dev/valid-attachments": valid, "cni.dev/attachments": valid})
		if err == nil {
			if err = d.run("GC", c, &journal.Entry{}); err != nil {
				err = fmt.Errorf("delegate %s: GC: %w", c.Type, err)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// status asks the delegates of a configuration; the error is that of the first that is
// not ready.
func (d *delegation) status(cfg *config.Config) error {
	raws, err := children(cfg)
	if err != nil {
		return err
	}
	for _, raw := range raws {
		c, err := newChild(raw, nil)
		if err != nil {
			return err
		}
		if err := d.run("STATUS", c, &journal.Entry{}); err != nil {
			return d.failed("STATUS", c, err)
		}
	}
	return nil
}

// failed says which delegate failed at what. A CNI error of the child's own keeps
// its code and message; a child that died without one is an I/O failure.
func (d *delegation) failed(verb string, c *child, err error) error {
	err = fmt.Errorf("delegate %s: %s: %w", c.Type, verb, err)
	var ran *cniexec.Error
	if !errors.As(err, &ran) {
		return fail(codeDecoding, err, "the delegate printed no CNI result")
	}
	switch ran.Reason {
	case cniexec.ReasonPlugin:
		if own := new(types.Error); errors.As(err, &own) && own.Code != 0 {
			return err
		}
		return fail(codeIO, err, "the delegate gave its error no code; see its log")
	case cniexec.ReasonDied:
		return fail(codeIO, err, "the delegate ended without a CNI error; see its log")
	case cniexec.ReasonOutput:
		return fail(codeDecoding, err, "the delegate printed no CNI result")
	case cniexec.ReasonMissing:
		return fail(codeIO, err, "install the plugin in a directory of CNI_PATH")
	case cniexec.ReasonBusy:
		return fail(codeTryAgain, err, "")
	}
	return fail(codeIO, err, "")
}

// notRun says that a delegate failed before it could do anything.
func notRun(err error) bool {
	var ran *cniexec.Error
	return errors.As(err, &ran) &&
		(ran.Reason == cniexec.ReasonMissing || ran.Reason == cniexec.ReasonBusy || ran.Reason == cniexec.ReasonNode)
}

// unfit reports that the kernel will never run a delegate: it is not a program.
func unfit(err error) bool {
	return notRun(err) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC))
}

// final is the result that DEL and CHECK hand to the delegates: ADD's last one,
// where the version has that (0.4.0).
func final(e *journal.Entry) json.RawMessage {
	if ok, err := version.GreaterThanOrEqualTo(e.CNIVersion, "0.4.0"); err != nil || !ok {
		return nil
	}
	return e.Result
}
