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

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/pod"
)

// delegation runs the child plugins through libcni, which gets a cache directory
// of its own: results are kept by network, container and interface, and would
// collide with the calling runtime's. That cache is disposable; the journal is the
// authority, so a cached result is thrown away before anyone could believe it.
type delegation struct {
	*libcni.CNIConfig
	exec   *cniexec.Exec
	cache  string
	listen func()
}

const (
	delegateLimit = 4 * time.Minute  // of one delegate; kubelets and runtimes give up before that
	orphanLimit   = 30 * time.Second // of the wait for a delegate whose devinfo was killed
)

// delegation gives each attachment a cache of its own: in a shared one libcni's
// names, with a "-" between parts that may hold some, could be another's. The key's
// parts have been checked to be names. While a delegate runs, it has the journal's entry
// locked: one that outlives us is waited for before anything else is run.
func (p *Plugin) delegation(cniPath string, key journal.Key) *delegation {
	cache := p.Journal.Cache(key)
	exec := &cniexec.Exec{Root: p.Root, Limit: delegateLimit, Lock: p.Journal.Lock(key), Wait: orphanLimit, Stderr: os.Stderr}
	return &delegation{libcni.NewCNIConfigWithCacheDir(filepath.SplitList(cniPath), cache, exec), exec, cache, p.listen}
}

// listen begins to take signals, once. Not before there are children to see to the
// end of: it takes a tenth of what a chained ADD takes.
func (p *Plugin) listen() {
	if p.Listen != nil && p.signals == nil {
		p.signals = p.Listen()
	}
}

// begin takes signals from here on, throws away what libcni has cached of the
// attachment, and marks the children as running within it: see [Plugin.Within].
func (d *delegation) begin(key journal.Key) error {
	d.listen()
	if err := os.Setenv(WithinEnv, key.String()); err != nil { // libcni hands our environment on
		return err
	}
	return os.RemoveAll(d.cache)
}

// has says whether the child plugin is in CNI_PATH.
func (d *delegation) has(child string) error {
	_, err := d.exec.FindInPath(child, d.Path)
	return err
}

// children makes the configurations that the delegates will be run with: the
// network's name and version, and our deviceID where they have none. pciBusID
// goes with it, as Multus does it.
func children(cfg *config.Config) ([]json.RawMessage, error) {
	var list []json.RawMessage
	for n, d := range cfg.Delegates {
		var own map[string]json.RawMessage
		if err := json.Unmarshal(d.Raw, &own); err != nil {
			return nil, err
		}
		set := func(key, value string) {
			if _, has := own[key]; !has && value != "" {
				own[key], _ = json.Marshal(value) // a string always encodes
			}
		}
		delete(own, "name")
		delete(own, "cniVersion")
		set("name", cfg.Name)
		set("cniVersion", cfg.CNIVersion)
		if own["deviceID"] == nil && own["pciBusID"] == nil { // else the child has a device of its own
			set("deviceID", cfg.DeviceID)
			set("pciBusID", pciBusID(cfg))
		}
		raw, err := json.Marshal(own)
		if err != nil {
			return nil, err
		}
		if _, err := libcni.NetworkPluginConfFromBytes(raw); err != nil {
			return nil, fail(codeConfig, fmt.Errorf("delegates[%d]: %w", n, err), "correct this plugin configuration")
		}
		list = append(list, raw)
	}
	return list, nil
}

// pciBusID is the PCI address that Multus would pass as such: the deviceID, unless
// that is none.
func pciBusID(cfg *config.Config) string {
	if cfg.PCIBusID != "" {
		return cfg.PCIBusID
	}
	if _, err := pci.Parse(cfg.DeviceID); err != nil {
		return ""
	}
	return cfg.DeviceID
}

// child is one delegate, ready to be run with the result of the one before it;
// prev may be nil.
func child(raw, prev json.RawMessage) (*libcni.PluginConfig, error) {
	conf, err := libcni.NetworkPluginConfFromBytes(raw)
	if err != nil || prev == nil {
		return conf, err
	}
	return libcni.InjectConf(conf, map[string]any{"prevResult": prev})
}

// runtimeConf is what an attachment's delegates get beside their configuration.
func runtimeConf(e *journal.Entry) *libcni.RuntimeConf {
	args, _ := pod.ParseArgs(e.Args) // ADD has refused them, DEL has warned, if they cannot be read
	capabilities := make(map[string]any, len(e.CapabilityArgs))
	for key, value := range e.CapabilityArgs {
		capabilities[key] = value
	}
	return &libcni.RuntimeConf{
		ContainerID: e.ContainerID, NetNS: e.Netns, IfName: e.IfName, Args: args, CapabilityArgs: capabilities,
	}
}

// add runs the delegates in order. started is how many of them need a DEL, the
// failed one included if it has run. Before each it asks whether to go on, and after each it says what
// came of it.
func (d *delegation) add(e *journal.Entry, rt *libcni.RuntimeConf, goOn func() error, ended func(name string, before, after json.RawMessage)) (result json.RawMessage, started int, err error) {
	result = e.PrevResult
	if err := d.begin(e.Key); err != nil {
		return result, 0, err
	}
	defer func() { err = followedBy(err, os.RemoveAll(d.cache)) }()
	for n, raw := range e.Delegates {
		if err := goOn(); err != nil {
			return result, n, err
		}
		conf, err := child(raw, result)
		if err != nil {
			return result, n, err
		}
		answer, err := d.AddNetwork(context.Background(), conf, rt)
		if err != nil && notRun(err) {
			return result, n, d.failed("ADD", conf, err)
		}
		if err != nil {
			return result, n + 1, d.failed("ADD", conf, err)
		}
		if same, err := answer.GetAsVersion(e.CNIVersion); err == nil {
			answer = same // else it is one that version cannot say, as without addresses before 0.3.0
		}
		text, err := json.Marshal(answer)
		if err != nil {
			return result, n + 1, d.failed("ADD", conf, err)
		}
		ended(conf.Network.Type, result, text)
		result = text
	}
	return result, len(e.Delegates), goOn()
}

// del runs the delegates' DEL in reverse, all of them whatever fails. From 0.4.0
// on they get the result of ADD.
func (d *delegation) del(e *journal.Entry, rt *libcni.RuntimeConf) (errs []error) {
	if len(e.Delegates) == 0 {
		return nil
	}
	errs = append(errs, d.begin(e.Key))
	for _, raw := range slices.Backward(e.Delegates) {
		conf, err := child(raw, final(e))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := d.DelNetwork(context.Background(), conf, rt); err != nil {
			errs = append(errs, d.failed("DEL", conf, err))
		}
	}
	return errs
}

// check runs the delegates' CHECK in order and stops at the first that fails.
func (d *delegation) check(e *journal.Entry, rt *libcni.RuntimeConf) error {
	if len(e.Delegates) == 0 {
		return nil
	}
	if err := d.begin(e.Key); err != nil {
		return err
	}
	for _, raw := range e.Delegates {
		conf, err := child(raw, final(e))
		if err != nil {
			return err
		}
		if err := d.CheckNetwork(context.Background(), conf, rt); err != nil {
			return d.failed("CHECK", conf, err)
		}
	}
	return nil
}

// list is the delegates as libcni's GC and STATUS take them.
func list(cfg *config.Config) (*libcni.NetworkConfigList, error) {
	raws, err := children(cfg)
	if err != nil {
		return nil, err
	}
	l := &libcni.NetworkConfigList{Name: cfg.Name, CNIVersion: cfg.CNIVersion}
	for _, raw := range raws {
		conf, err := child(raw, nil)
		if err != nil {
			return nil, err
		}
		l.Plugins = append(l.Plugins, conf)
	}
	return l, nil
}

// failed says which delegate failed at what. A CNI error of the child's own keeps
// its code and message; a child that died without one is an I/O failure.
func (d *delegation) failed(verb string, conf *libcni.PluginConfig, err error) error {
	err = fmt.Errorf("delegate %s: %s: %w", conf.Network.Type, verb, err)
	var ran *cniexec.Error
	if !errors.As(err, &ran) {
		if as[*fs.PathError](err) {
			return fail(codeIO, err, "libcni keeps the delegates' results below "+d.cache+" while they run")
		}
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

// unfit says that a delegate is no program that the kernel would run, today or tomorrow.
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
