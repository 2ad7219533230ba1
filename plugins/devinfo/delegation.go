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

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/pod"
)

const (
	delegateLimit = 4 * time.Minute  // of one delegate; kubelets and runtimes give up before that
	lockWait      = 30 * time.Second // of the wait for another call of the attachment, or for a delegate whose devinfo was killed
)

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

// listen begins to take signals, once, and only when there are children to wait for: it
// takes a tenth of the time of a chained ADD.
func (p *Plugin) listen() {
	p.once.Do(func() {
		if p.Listen != nil {
			p.signals = p.Listen()
		}
	})
}

// begin takes signals from here on, and marks the children as running within the
// attachment: see [Plugin.Within].
func (c *call) begin() error {
	c.listen()
	return os.Setenv(WithinEnv, c.key.String()) // they get our environment
}

// delegates are those of an entry.
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

// network are the delegates of a configuration, for verbs that are about no attachment.
func (p *Plugin) network(cfg *config.Config, cniPath string) (*cniexec.Network, error) {
	return p.delegates(&journal.Entry{Key: journal.Key{Network: cfg.Name}, CNIVersion: cfg.CNIVersion, Delegates: children(cfg)}, cniPath)
}

// delDelegates runs the DEL of an entry's delegates, all of them whatever fails. Of a device that
// somebody else has by now they must not take anything away: they are told of no network
// namespace, or are not run if no ADD is on record, for it was refused.
func (c *call) delDelegates(e *journal.Entry) (errs []error) {
	if len(e.Delegates) == 0 {
		return nil
	}
	of, held := *e, new(journal.HeldError)
	unrecorded := e.Locked() == nil
	switch err := c.othersDevice(e); {
	case err != nil && unrecorded:
		c.log.Warn("the delegates' DEL is not run", "error", err)
		return nil
	case errors.As(err, &held) && held.Holder.Netns == "": // sriov-cni's lock may be our own by another path
		c.log.Warn("the delegates are told of no network namespace", "error", err) // it was gone, or a DEL was killed
		of.Netns = ""
	}
	n, err := c.delegates(&of, c.args.Path)
	if err != nil {
		return []error{err}
	}
	errs = append(errs, c.begin())
	for _, err := range n.Del(e.Result, nil) {
		if err = failed("DEL", err); err != nil && unrecorded && unfit(err) { // for which ADD failed, and undid the rest
			c.log.Warn("DEL of a delegate not run", "error", err)
			continue
		}
		errs = append(errs, err)
	}
	return errs
}

// checkDelegates runs the CHECK of an entry's delegates, with the runtime's result.
func (c *call) checkDelegates(e *journal.Entry) error {
	if len(e.Delegates) == 0 {
		return nil
	}
	n, err := c.delegates(e, c.args.Path)
	if err != nil {
		return err
	}
	if err := c.begin(); err != nil {
		return err
	}
	prev := c.cfg.PrevResult
	if prev == nil {
		prev = e.Result
	}
	return failed("CHECK", n.Check(prev))
}

// failed says which delegate failed at what. A CNI error of the child's own keeps
// its code and message; a child that died without one is an I/O failure.
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

// children makes the configurations that the delegates will be run with: the
// network's name and version, and our deviceID where they have none. pciBusID
// goes with it, as Multus does it, and so do our args, such as those of the pod.
func children(cfg *config.Config) (list []json.RawMessage) {
	for _, d := range cfg.Delegates {
		keys := object(d.Raw)
		set := func(key, value string) {
			if _, has := keys[key]; !has && value != "" {
				keys[key], _ = json.Marshal(value) // a string always encodes
			}
		}
		delete(keys, "name")
		delete(keys, "cniVersion")
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
