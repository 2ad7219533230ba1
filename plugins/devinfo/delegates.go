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
	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/pod"
	"devinfo-cni.io/pkg/result"
)

const (
	delegateLimit = 4 * time.Minute  // of one delegate; kubelets and runtimes give up before that
	lockWait      = 30 * time.Second // of the wait for another call of the attachment, or for a delegate whose devinfo was killed
)

// runDelegates runs the delegates, if there are any. Before that, it records the attachment, takes leases
// of the devices that the delegates will take, and writes the facts that are known already to the
// device-info file, for the delegates. It returns the result of the last delegate, else the prevResult, and
// the file as the delegates left it.
func (r *request) runDelegates(rollback *rollback, file infoFile) (*result.Result, infoFile, error) {
	if len(r.delegates) == 0 {
		return r.prev, file, nil
	}
	go r.plugin.listen()            // begin waits for it
	known, err := r.knownInfo(file) // a conflict shows before anything is touched
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
	e.Delegates = nil // none needs a DEL yet
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

// knownInfo returns the device information that is known before the delegates have made the interface;
// nil if that is too little for a file, or the attachment has none.
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

// addDelegates runs the delegates' ADD and returns the last result. It warns of a delegate that ignores its
// prevResult. In e it keeps the delegates that need a DEL, and the result for that.
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
		return nil, failed("ADD", err)
	}
	if unread != nil {
		return nil, fail(codeDecoding, unread, "the last delegate printed this result; report it to its authors")
	}
	return last, r.plugin.interrupted()
}

// exec runs plugins of the attachment of an entry. While the entry is locked, they inherit
// the lock: those that outlive us are waited for before anything else is run.
func (p *Plugin) exec(e *journal.Entry) *cniexec.Exec {
	return &cniexec.Exec{Root: p.Root, Limit: delegateLimit, Inherit: e.Locked(), Stderr: os.Stderr}
}

// KeepBrokenPipes makes writing to a runtime that no longer reads an error, where it
// would kill the process amid an ADD.
func KeepBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }

// TakeSignals is [Plugin.Listen] for a process: SIGTERM and SIGINT no longer end it
// half-way. SIGPIPE is taken too, and not ignored: the delegates would inherit that.
func TakeSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals
}

// listen begins to take signals, once, and only if there are delegates to wait for, because it takes a
// tenth of the time of a chained ADD.
func (p *Plugin) listen() {
	p.once.Do(func() {
		if p.Listen != nil {
			p.signals = p.Listen()
		}
	})
}

// begin takes signals from here on, and marks the delegates as running within the attachment: see
// [Plugin.Within].
func (c *call) begin() error {
	c.plugin.listen()
	return os.Setenv(WithinEnv, c.key.String()) // they get our environment
}

// interrupted returns an error after a signal: the running delegate has ended, and no other begins.
func (p *Plugin) interrupted() error {
	select {
	case sig := <-p.signals:
		return fail(codeTryAgain, fmt.Errorf("interrupted by signal %q", sig), "everything done so far was undone")
	default:
		return nil
	}
}

// delegates returns the delegates of an entry.
func (p *Plugin) delegates(e *journal.Entry, cniPath string) (*cniexec.Network, error) {
	list := &libcni.NetworkConfigList{Name: e.Network, CNIVersion: cmp.Or(e.CNIVersion, "0.1.0")}
	for n, raw := range e.Delegates {
		plugin, err := libcni.NetworkPluginConfFromBytes(raw)
		if err != nil {
			return nil, fail(codeConfig, fmt.Errorf("delegates[%d]: %w", n, err), "correct this plugin configuration")
		}
		list.Plugins = append(list.Plugins, plugin)
	}
	args, _ := pod.ParseArgs(e.Args) // ADD has refused them, DEL has warned, if they cannot be read
	rt := &libcni.RuntimeConf{ContainerID: e.ContainerID, NetNS: e.Netns, IfName: e.IfName, Args: args, CapabilityArgs: map[string]any{}}
	for key, value := range e.CapabilityArgs {
		rt.CapabilityArgs[key] = value
	}
	return &cniexec.Network{
		List: list, Runtime: rt, Dirs: filepath.SplitList(cniPath), Exec: p.exec(e), Cache: p.Journal.Cache(e.Key),
	}, nil
}

// network returns the delegates of a configuration, for verbs that are not about one attachment.
func (p *Plugin) network(cfg *config.Config, cniPath string) (*cniexec.Network, error) {
	return p.delegates(&journal.Entry{Key: journal.Key{Network: cfg.Name}, CNIVersion: cfg.CNIVersion, Delegates: delegateConfigs(cfg)}, cniPath)
}

// capabilityArgs returns the runtimeConfig for the delegates. It contains the path of the device-info
// file, also if deviceInfoFile "auto" made that.
func (c *call) capabilityArgs() map[string]json.RawMessage {
	if c.att.Path == "" || c.att.Path == c.cfg.InfoFile {
		return c.cfg.Runtime
	}
	all := map[string]json.RawMessage{}
	maps.Copy(all, c.cfg.Runtime)
	all["CNIDeviceInfoFile"], _ = json.Marshal(c.att.Path) // a string always encodes
	return all
}

// failed adds the delegate and its verb to an error. A CNI error of the delegate keeps its code and message; a
// delegate that died without one is an I/O failure.
func failed(verb string, err error) error {
	of, ok := errors.AsType[*cniexec.PluginError](err)
	if !ok {
		return err
	}
	err = fmt.Errorf("delegates[%d] (%s): %s: %w", of.At, of.Plugin, verb, of.Err)
	code, remedy, ran := codeIO, "", &cniexec.Error{Reason: cniexec.ReasonOutput}
	errors.As(err, &ran) // else it is the result that libcni cannot read
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

// unfit reports that the kernel will never run a delegate: it is not a program.
func unfit(err error) bool {
	ran, ok := errors.AsType[*cniexec.Error](err)
	return ok && ran.NotRun() &&
		(errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC))
}

// delegateConfigs returns the configurations that the delegates are run with. Each gets the network's
// name and version, devinfo's args, such as the pod's, and devinfo's deviceID with, as in Multus, its
// pciBusID, unless it has a device of its own.
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
		if keys["deviceID"] == nil && keys["pciBusID"] == nil { // else the child has a device of its own
			set("deviceID", cfg.DeviceID)
			set("pciBusID", pciBusID(cfg))
		}
		if len(cfg.Args) > 0 {
			args := object(keys["args"])
			for key, value := range cfg.Args {
				if key == "cni" { // the pod's cni-args are in there
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

// object has the keys of a JSON object; none of anything else.
func object(text json.RawMessage) map[string]json.RawMessage {
	keys := map[string]json.RawMessage{}
	if json.Unmarshal(text, &keys) != nil || keys == nil {
		return map[string]json.RawMessage{}
	}
	return keys
}

// pciBusID is the PCI address that Multus would pass as such: the deviceID if it is a PCI
// address, else "".
func pciBusID(cfg *config.Config) string {
	if cfg.PCIBusID != "" {
		return cfg.PCIBusID
	}
	if _, err := pci.Parse(cfg.DeviceID); err != nil {
		return ""
	}
	return cfg.DeviceID
}
