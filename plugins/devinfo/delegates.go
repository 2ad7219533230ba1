package plugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/result"
)

const (
	delegateLimit = 4 * time.Minute  // time for one delegate; kubelets and runtimes give up sooner
	lockWait      = 30 * time.Second // wait for another call of the attachment, or for a delegate whose devinfo was killed
)

// runDelegates runs the delegates, if any. Before that it records the attachment, takes leases of the devices
// that the delegates will take, and writes the facts known so far to the device-info file for them. It returns
// the last delegate's result, or else the prevResult, and the file after the delegates.
func (r *request) runDelegates(rollback *rollback, file infoFile) (*result.Result, infoFile, error) {
	if len(r.delegates) == 0 {
		return r.prev, file, nil
	}
	go r.plugin.listen()            // runs in parallel, and begin waits for it
	known, err := r.knownInfo(file) // returns an error for a conflict before anything is changed
	if err != nil {
		return nil, file, err
	}
	e := r.newEntry(r.prev)
	if e.Leases, err = r.askedLeases(r.delegates); err != nil {
		return nil, file, err
	}
	if known != nil {
		e.Wrote, e.Info, e.Kept = true, known.Encode(), sameInfo(file.original, known)
	}
	if err := rollback.record(e); err != nil {
		return nil, file, err
	}
	e.Delegates = nil // none has run, so none needs a DEL
	if err := file.write(known); err != nil {
		return nil, file, err
	}
	last, err := r.addDelegates(e)
	if err != nil {
		return nil, file, err
	}
	now, err := file.reread(known)
	if err != nil {
		return nil, file, err
	}
	return last, now, r.checkType(now.external)
}

// knownInfo returns the device information known before the delegates run, or nil if it is incomplete or has no file.
func (r *request) knownInfo(file infoFile) (*devinfo.Info, error) {
	target := r.target(r.declared, file.external, r.prev)
	target.Netns = ""
	device, err := r.plugin.Finder.Find(target)
	if err != nil || file.name == "" {
		return nil, err
	}
	info := devinfo.Merge(file.facts(device, r.declared), device.Info, r.declared)
	if info == nil || info.Validate().Err() != nil {
		return nil, nil
	}
	return info, nil
}

// addDelegates runs the delegates' ADD and returns the last result. It logs a warning if a delegate drops parts
// of its prevResult. It stores in e the delegates that need a DEL, and the result for that DEL.
func (r *request) addDelegates(e *journal.Entry) (*result.Result, error) {
	all := *e
	all.Delegates = r.delegates
	n, err := r.plugin.delegates(&all, r.args.Path)
	if err != nil {
		return nil, err
	}
	if err := r.begin(); err != nil {
		return nil, err
	}
	last, unread := r.prev, error(nil)
	n.Before = r.plugin.interrupted
	n.After = func(delegate string, text []byte) {
		var res *result.Result
		if res, unread = result.Parse(text, r.cfg.CNIVersion); unread != nil {
			return
		}
		for _, lost := range last.Lost(res) {
			r.log.Warn("delegate "+delegate+" dropped parts of its prevResult", "lost", lost, "remedy", "put it first in delegates, or ask its authors to pass on prevResult")
		}
		last, e.Result = res, text
	}
	e.Result = e.PrevResult
	_, err = n.Add(e.PrevResult)
	e.Delegates = r.delegates[:n.Started]
	if err != nil {
		return nil, delegateError("ADD", err)
	}
	if unread != nil {
		return nil, fail(codeDecoding, unread, "the last delegate printed this result; report it to its authors")
	}
	return last, r.plugin.interrupted()
}

// KeepBrokenPipes turns a write to a runtime that no longer reads into an error. The default is to kill the
// process, perhaps during an ADD.
func KeepBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }

// TakeSignals implements [Plugin.Listen] for a process. SIGTERM and SIGINT no longer end the process. SIGPIPE
// is received instead of ignored, because delegates would inherit an ignored signal.
func TakeSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals
}

// listen starts to receive signals, once and only for delegates, because it takes a tenth of the time of a chained ADD.
func (p *Plugin) listen() {
	p.once.Do(func() {
		if p.Listen != nil {
			p.signals = p.Listen()
		}
	})
}

// begin starts to receive signals and marks the delegates as running within the attachment, see [Plugin.Within].
func (c *call) begin() error {
	c.plugin.listen()
	return os.Setenv(WithinEnv, c.key.String()) // the delegates inherit this environment
}

// interrupted returns an error if a signal has arrived, so that no further delegate starts.
func (p *Plugin) interrupted() error {
	select {
	case sig := <-p.signals:
		return fail(codeTryAgain, fmt.Errorf("interrupted by signal %q", sig), "everything done so far was undone")
	default:
		return nil
	}
}

// delegates returns the delegates of an entry as a network.
func (p *Plugin) delegates(e *journal.Entry, cniPath string) (*cniexec.Network, error) {
	list := &libcni.NetworkConfigList{Name: e.Network, CNIVersion: cmp.Or(e.CNIVersion, "0.1.0")}
	for n, raw := range e.Delegates {
		plugin, err := libcni.NetworkPluginConfFromBytes(raw)
		if err != nil {
			return nil, fail(codeConfig, fmt.Errorf("delegates[%d]: %w", n, err), "correct this plugin configuration")
		}
		list.Plugins = append(list.Plugins, plugin)
	}
	args, _ := pod.ParseArgs(e.Args) // ADD has refused malformed pairs, and DEL has logged a warning
	rt := &libcni.RuntimeConf{ContainerID: e.ContainerID, NetNS: e.Netns, IfName: e.IfName, Args: args, CapabilityArgs: map[string]any{}}
	for key, value := range e.CapabilityArgs {
		rt.CapabilityArgs[key] = value
	}
	// The delegates inherit the entry's lock, so later calls wait for delegates that outlive this process.
	exec := &cniexec.Exec{Root: p.Root, Limit: delegateLimit, Inherit: e.Locked(), Stderr: os.Stderr}
	return &cniexec.Network{
		List: list, Runtime: rt, Dirs: filepath.SplitList(cniPath), Exec: exec, Cache: p.Journal.Cache(e.Key),
	}, nil
}

// network returns the delegates of a configuration, for verbs that do not concern one attachment.
func (p *Plugin) network(cfg *config.Config, cniPath string) (*cniexec.Network, error) {
	return p.delegates(&journal.Entry{Key: journal.Key{Network: cfg.Name}, CNIVersion: cfg.CNIVersion, Delegates: delegateConfigs(cfg)}, cniPath)
}

// capabilityArgs returns the runtimeConfig for the delegates, with the path of an automatic device-info file.
func (c *call) capabilityArgs() map[string]json.RawMessage {
	if c.att.Path == "" || c.att.Path == c.cfg.InfoFile {
		return c.cfg.Runtime
	}
	all := map[string]json.RawMessage{}
	maps.Copy(all, c.cfg.Runtime)
	all["CNIDeviceInfoFile"], _ = json.Marshal(c.att.Path) // a string always encodes
	return all
}

// delegateError adds the delegate and its verb to an error. A delegate's CNI error keeps its code and message. In other
// cases the code is CNI's I/O failure (5), or its decoding failure (6) if the delegate printed no CNI result.
func delegateError(verb string, err error) error {
	of, ok := errors.AsType[*cniexec.PluginError](err)
	if !ok {
		return err
	}
	err = fmt.Errorf("delegates[%d] (%s): %s: %w", of.At, of.Plugin, verb, of.Err)
	code, remedy, ran := codeIO, "", &cniexec.Error{Reason: cniexec.ReasonOutput}
	errors.As(err, &ran) // if err has no *cniexec.Error, libcni could not read the result
	switch ran.Reason {
	case cniexec.ReasonPlugin:
		if own, ok := errors.AsType[*types.Error](err); ok && own.Code != 0 {
			return err
		}
		remedy = "the delegate gave its error no code; see its log"
	case cniexec.ReasonDied:
		remedy = "the delegate ended without a CNI error; see its log"
	case cniexec.ReasonOutput:
		code, remedy = codeDecoding, "the delegate printed no CNI result"
	case cniexec.ReasonMissing:
		remedy = "install the plugin in a directory of CNI_PATH"
	}
	return fail(code, err, remedy)
}

// cannotExecute reports whether the kernel cannot run the delegate because it is not a program.
func cannotExecute(err error) bool {
	ran, ok := errors.AsType[*cniexec.Error](err)
	return ok && ran.NotRun() &&
		(errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC))
}

// delegateConfigs returns the delegates' configurations. Each contains the network's name and version, and
// devinfo's args, such as the pod's. A delegate without a device of its own also gets devinfo's deviceID and,
// as with Multus, pciBusID.
func delegateConfigs(cfg *config.Config) (list []json.RawMessage) {
	for _, d := range cfg.Delegates {
		keys := object(d.Raw)
		set := func(key, value string) {
			if value != "" {
				keys[key], _ = json.Marshal(value) // a string always encodes
			}
		}
		set("name", cfg.Name)
		set("cniVersion", cfg.CNIVersion)
		if keys["deviceID"] == nil && keys["pciBusID"] == nil { // otherwise the delegate has its own device
			set("deviceID", cfg.DeviceID)
			busID := cfg.PCIBusID
			if _, err := pci.Parse(cfg.DeviceID); busID == "" && err == nil {
				busID = cfg.DeviceID
			}
			set("pciBusID", busID)
		}
		if len(cfg.Args) > 0 {
			args := object(keys["args"])
			for key, value := range cfg.Args {
				if key == "cni" { // contains the pod's cni-args
					cni := object(args[key])
					maps.Copy(cni, object(value))
					value, _ = json.Marshal(cni)
				}
				args[key] = value
			}
			keys["args"], _ = json.Marshal(args)
		}
		raw, _ := json.Marshal(keys)
		list = append(list, raw)
	}
	return list
}

// object returns the keys of a JSON object, and none for any other text.
func object(text json.RawMessage) map[string]json.RawMessage {
	keys := map[string]json.RawMessage{}
	if json.Unmarshal(text, &keys) != nil || keys == nil {
		return map[string]json.RawMessage{}
	}
	return keys
}
