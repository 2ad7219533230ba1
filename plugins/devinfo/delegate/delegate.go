// Package delegate wraps the verbs of package plugin for networks with delegates: plugins that devinfo runs itself. ADD
// records the attachment, runs the delegates, and is then the ADD of a network whose prevResult is their result.
package delegate

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	plugin "devinfo-cni.io/plugins/devinfo"
)

// Delegates runs the delegates of one process of the plugin.
type Delegates struct {
	// Within is the value of the environment variable [cleanup.WithinEnv]: the attachment that this process runs in as a
	// delegate.
	Within string
	// Signals starts to receive the signals that would otherwise end the process. It is called before the first
	// delegate. After a signal, ADD stops once the running delegate has ended; the other verbs finish.
	Signals func() <-chan os.Signal

	once     sync.Once // for Signals
	received <-chan os.Signal
}

// Run executes one CNI call of the plugin, see [plugin.Plugin.Run]. A write to a runtime that no longer reads becomes an
// error; the default is to kill the process, perhaps during an ADD.
func (d *Delegates) Run(p *plugin.Plugin, getenv func(string) string, stdin io.Reader, stderr io.Writer) (exit int) {
	signal.Ignore(syscall.SIGPIPE)
	if p.Cleaner != nil { // it is not needed for VERSION
		p.Listen = d.listen
	}
	return p.Run(map[string]plugin.Verb{
		"ADD": d.add, "CHECK": d.check, "DEL": d.del, "GC": d.gc, "STATUS": d.status,
	}, getenv, stdin, stderr)
}

// add is ADD. With delegates, it records the attachment a first time and runs them between Prepare and Attach.
func (d *Delegates) add(c *plugin.Call) error {
	if d.Within == c.Key.String() {
		return failure.New(failure.Config, fmt.Errorf("attachment %s: devinfo runs as its own delegate", c.Key), "remove devinfo from delegates")
	}
	if len(c.Config.Delegates) == 0 {
		return plugin.Add(c)
	}
	for n := range c.Config.Delegates {
		if err := runnable(c, n); err != nil {
			return err
		}
	}
	a := &plugin.Addition{Call: c}
	return a.Do(a.Prepare, func() error { return d.run(a) }, a.Attach, d.interrupted, a.Print)
}

// del is DEL. Package cleanup runs the DEL of the entry's delegates.
func (d *Delegates) del(c *plugin.Call) error {
	if d.Within == c.Key.String() {
		c.Log.Warn("nothing done: devinfo runs as its own delegate")
		return nil
	}
	return plugin.Del(c, reconstruct)
}

// TakeSignals implements [Delegates.Signals] for a process. SIGTERM and SIGINT no longer end the process. SIGPIPE
// is received instead of ignored, because delegates would inherit an ignored signal.
func TakeSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals
}

// listen starts to receive signals, once and only for delegates, because it takes a tenth of the time of a chained ADD.
func (d *Delegates) listen() {
	d.once.Do(func() {
		if d.Signals != nil {
			d.received = d.Signals()
		}
	})
}

// interrupted returns an error if a signal has arrived, so that no further delegate starts.
func (d *Delegates) interrupted() error {
	select {
	case sig := <-d.received:
		return failure.New(failure.TryAgain, fmt.Errorf("interrupted by signal %q", sig), "everything done so far was undone")
	default:
		return nil
	}
}

func runnable(c *plugin.Call, n int) error {
	if problem := c.Config.DelegateProblem(n); problem != nil {
		return problem
	}
	exec := cniexec.Exec{Root: c.Root}
	if _, err := exec.FindInPath(c.Config.Delegates[n].Type, filepath.SplitList(c.CNIPath)); err != nil {
		return failure.New(failure.Config, fmt.Errorf("delegates[%d]: %w", n, err), "install the plugin in a directory of CNI_PATH")
	}
	return nil
}

func network(c *plugin.Call) (*cniexec.Network, error) {
	e := &journal.Entry{Key: journal.Key{Network: c.Config.Name}, CNIVersion: c.Config.CNIVersion}
	return c.Network(e, c.Config.DelegateConfigs(), "")
}

// capabilityArgs returns the runtimeConfig for the delegates, with the path of an automatic device-info file.
func capabilityArgs(c *plugin.Call) map[string]json.RawMessage {
	if c.Attachment.Path == "" || c.Attachment.Path == c.Config.InfoFile {
		return c.Config.Runtime
	}
	all := map[string]json.RawMessage{}
	maps.Copy(all, c.Config.Runtime)
	all["CNIDeviceInfoFile"], _ = json.Marshal(c.Attachment.Path) // a string always encodes
	return all
}
