package devinfo

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/result"
)

// runDelegates runs the delegates. Before that it records the attachment, takes leases of the devices that the delegates
// will take, and writes the facts known so far to the device-info file for them. It returns the request with their last
// result and what they left of the file, so that ADD goes on as for a network whose prevResult is that result.
func (r request) runDelegates(done *undo) (request, error) {
	known, err := r.knownInfo() // returns an error for a conflict before anything is changed
	if err != nil {
		return r, err
	}
	p := plan{info: known, entry: r.newEntry(known)}
	e := p.entry
	e.Delegates, e.CapabilityArgs, e.PrevResult = r.c.Config.DelegateConfigs(), r.c.capabilityArgs(), r.c.Config.PrevResult
	if e.Leases, err = r.c.cleaner().AskedLeases(e); err != nil {
		return r, err
	}
	if err := r.commit(p, done); err != nil {
		return r, err
	}
	r.last = e
	if r.result, err = r.addDelegates(done); err != nil {
		return r, err
	}
	r.file.own = known
	r.file, err = r.c.reread(r.file)
	return r, err
}

// knownInfo returns the device information known before the delegates run, or nil if it is incomplete or has no file.
func (r request) knownInfo() (*devinfo.Info, error) {
	_, info, err := r.find("")
	if err != nil || r.file.name == "" || info.Validate().Err() != nil { // also if there is none
		return nil, err
	}
	return info, nil
}

// addDelegates runs ADD of the delegates, whose inverse is the DEL of those that it has started. They may write the
// device-info file, too.
func (r request) addDelegates(done *undo) (*result.Result, error) {
	e := r.last
	n, err := r.c.cleaner().Network(e, e.Delegates, e.Netns)
	if err != nil {
		return nil, err
	}
	done.push(r.restoreInfo)
	done.push(func() error {
		ended := r.c.cleaner().Removal(done.entry)
		ended.Delegates, ended.Result = e.Delegates[:n.Started], n.Result
		return ended.DelDelegates()
	})
	n.Before = r.c.interrupted
	output, err := n.Add(e.PrevResult)
	if err != nil {
		return nil, failure.OfDelegate("ADD", err)
	}
	res, err := result.Parse(output, r.c.Config.CNIVersion)
	if err != nil {
		return nil, failure.New(failure.Decoding, err, "the last delegate printed this result; report it to its authors")
	}
	return res, r.c.interrupted()
}

// delegatesProblem returns why the delegates cannot run, or nil.
func (c *Call) delegatesProblem() error {
	if c.itself() {
		return failure.New(failure.Config, fmt.Errorf("attachment %s: devinfo runs as its own delegate", c.Key), "remove devinfo from delegates")
	}
	for n := range c.Config.Delegates {
		if err := c.runnable(n, c.Config.DelegateProblem(n)); err != nil {
			return err
		}
	}
	return nil
}

// runnable returns the problem of the n-th delegate's configuration, or an error if its program is not on this node now.
func (c *Call) runnable(n int, problem *config.Problem) error {
	if problem != nil {
		return problem
	}
	if _, err := new(cniexec.Exec).FindInPath(c.Config.Delegates[n].Type, filepath.SplitList(c.Args.Path)); err != nil {
		return failure.New(failure.Config, fmt.Errorf("delegates[%d]: %w", n, err), "install the plugin in a directory of CNI_PATH")
	}
	return nil
}

// capabilityArgs returns the runtimeConfig for the delegates, with the path of an automatic device-info file.
func (c *Call) capabilityArgs() map[string]json.RawMessage {
	if c.Attachment.Path == "" || c.Attachment.Path == c.Config.InfoFile {
		return c.Config.Runtime
	}
	all := map[string]json.RawMessage{}
	maps.Copy(all, c.Config.Runtime)
	all["CNIDeviceInfoFile"], _ = json.Marshal(c.Attachment.Path) // a string always encodes
	return all
}

// listen starts to receive the signals that would otherwise end the process: SIGTERM and SIGINT. After one, ADD stops when
// the running delegate has ended; the other verbs finish. SIGPIPE is received instead of ignored, because delegates would
// inherit an ignored signal. It is called only for delegates, because it takes a tenth of the time of a chained ADD.
func (c *Call) listen() {
	if c.received == nil {
		c.received = make(chan os.Signal, 1)
		signal.Notify(c.received, syscall.SIGTERM, syscall.SIGINT)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
}

// interrupted returns an error if a signal has arrived, so that no further step begins.
func (c *Call) interrupted() error {
	select {
	case sig := <-c.received:
		return failure.New(failure.TryAgain, fmt.Errorf("interrupted by signal %q", sig), "everything done so far was undone")
	default:
		return nil
	}
}
