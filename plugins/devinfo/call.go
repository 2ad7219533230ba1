package devinfo

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// Host is what the plugin knows of its node and of its own process.
type Host struct {
	cleanup.Cleaner
	NodeError  error       // error from reading the settings; Node has the defaults then
	SysfsError error       // error from opening sysfs; Finder is empty then
	Infos      *store.Dir  // the device-info files
	Specs      *store.Dir  // the CDI specs
	Nodes      grant.Nodes // the device nodes
	Within     string      // value of [cleanup.WithinEnv]: the attachment that this process runs in as a delegate
	Stdout     io.Writer
}

// NewHost returns a host with these settings. It opens and creates nothing.
func NewHost(node config.Node, finder discovery.Finder, bootID string, stdout io.Writer, log *slog.Logger) *Host {
	c := cleanup.New(node, finder, bootID, log)
	c.Journal.OnNode = func() bool { return true } // a path of CNI_NETNS means the same to each verb
	return &Host{
		Cleaner: *c, Infos: store.Open(node.DeviceInfoDir), Specs: store.Open(node.CDIDir), Nodes: grant.NodesBelow(""), Stdout: stdout,
	}
}

// Call is one call of the plugin. It is about one attachment, which its log names, except for GC and STATUS.
type Call struct {
	Host
	Config     *config.Config
	Attachment *attachment.Attachment
	Key        journal.Key
	argsError  error          // why CNI_ARGS cannot be parsed; nil = they can
	received   chan os.Signal // SIGTERM and SIGINT; nil = they end the process
}

// newCall returns the call with these arguments. The error may be one of any verb, for which the configuration is unusable.
func newCall(h *Host, verb string, args attachment.Args, cfg *config.Config) (*Call, error) {
	for _, problem := range cfg.Problems { // every verb needs the name; only DEL works without the version
		if problem.Key == "name" || problem.Key == "cniVersion" && verb != "DEL" || problem.Key == "cni.dev/valid-attachments" && verb == "GC" {
			return nil, problem
		}
	}
	if utils.ValidateNetworkName(cfg.Name) != nil {
		remedy := "give the network another name"
		if cfg.Name == "" {
			remedy = `set the key "name", spelled in lower case`
		}
		return nil, failure.New(failure.Config, fmt.Errorf("name: %q is not a valid network name: it must consist of letters, digits, '_', '.' and '-', and begin with a letter or digit", cfg.Name), remedy)
	}
	if err := checkVersion(cfg, verb, h.Log); err != nil {
		return nil, err
	}
	for _, w := range cfg.Warnings() {
		h.Log.Warn(w)
	}
	return about(h, args, cfg), nil
}

// checkVersion returns an error if the plugin does not support the configuration's CNI version, or if the version does not
// have the verb. DEL needs a version only for delegates of an attachment without an entry, so that it takes any.
func checkVersion(cfg *config.Config, verb string, log *slog.Logger) error {
	const newest = "1.1.0"
	err := new(version.Reconciler).Check(cfg.CNIVersion, versions)
	if err != nil && verb == "DEL" {
		log.Warn("cniVersion ignored", "error", err.Details())
		cfg.CNIVersion = newest
		return nil
	}
	if err != nil {
		return types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", err.Details())
	}
	since := cmp.Or(map[string]string{"CHECK": "0.4.0", "GC": newest, "STATUS": newest}[verb], "0.1.0")
	if has, err := version.GreaterThanOrEqualTo(cfg.CNIVersion, since); err != nil || !has {
		return failure.New(types.ErrIncompatibleCNIVersion, fmt.Errorf("cniVersion %s has no %s", cfg.CNIVersion, verb), "set cniVersion to "+newest)
	}
	return nil
}

// versions are the CNI versions that the plugin supports.
var versions = version.PluginSupports("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

// about returns a call about the attachment of the arguments.
func about(h *Host, args attachment.Args, cfg *config.Config) *Call {
	att, err := attachment.New(cfg, args, h.Node.DeviceInfoDir)
	key := journal.Key{Network: att.Network, ContainerID: att.ContainerID, IfName: att.IfName}
	c := &Call{Host: *h, Config: cfg, Attachment: att, Key: key, argsError: err}
	if key.ContainerID != "" {
		c.Log = c.Log.With("attachment", key.String())
	}
	c.Listen = c.listen
	return c
}

// itself reports whether devinfo runs as its own delegate.
func (c *Call) itself() bool { return c.Within == c.Key.String() }

// strict returns the first problem of the settings, the configuration or CNI_ARGS, for ADD, CHECK and STATUS.
func (c *Call) strict() error {
	switch {
	case c.NodeError != nil:
		return failure.New(failure.Config, c.NodeError, "correct the file, or remove it to use the defaults")
	case len(c.Config.Problems) > 0:
		return c.Config.Problems[0]
	case c.SysfsError != nil:
		return failure.New(failure.IO, c.SysfsError, "mount it there, or set sysfs in the node settings")
	case c.argsError != nil:
		return failure.New(failure.Environment, c.argsError, "")
	}
	return c.Journal.Own()
}

// lenient logs the same problems as warnings, for DEL and GC.
func (c *Call) lenient() {
	if c.NodeError != nil {
		c.Log.Warn("using the default node settings", "error", c.NodeError)
	}
	for _, problem := range c.Config.Problems {
		c.Log.Warn("key ignored", "error", problem)
	}
	if c.argsError != nil {
		c.Log.Warn("CNI_ARGS ignored", "error", c.argsError)
	}
}

// unlessStrict returns the error if the configuration is strict. Otherwise it logs it as a warning, and returns it with its
// remedy as the reason for what ADD leaves out.
func (c *Call) unlessStrict(err error) (reason string, _ error) {
	if err == nil || c.Config.Strict {
		return "", err
	}
	log := c.Log
	reason = err.Error()
	if remedy := failure.Remedy(err); remedy != "" {
		log = log.With("remedy", remedy)
		reason += ": " + remedy
	}
	log.Warn(err.Error())
	return reason, nil
}

// infoFileName returns the name of the device-info file in its directory, or "" if the runtime passed no path.
func (c *Call) infoFileName() (string, error) {
	if c.Attachment.Path == "" {
		return "", nil
	}
	name, err := c.Infos.Name(c.Attachment.Path)
	if err == nil {
		return name, nil
	}
	key, remedy := "runtimeConfig.CNIDeviceInfoFile", "use "+c.Node.DeviceInfoDir+"/NAME with a short NAME that begins with a letter, or change deviceInfoDir in the node settings"
	if c.Attachment.Path != c.Config.InfoFile {
		key, remedy = `deviceInfoFile "auto"`, fmt.Sprintf("it is made of the network's name (%d bytes), the container ID (%d) and the interface name (%d): "+
			"use a shorter network name, or a plainer interface name", len(c.Key.Network), len(c.Key.ContainerID), len(c.Key.IfName))
	}
	err = fmt.Errorf("%s: %w", key, err)
	if errors.As(err, new(*store.NameError)) {
		err = failure.New(failure.Config, err, remedy)
	}
	return "", err
}

// network returns the delegates, for the verbs that do not concern one attachment.
func (c *Call) network() (*cniexec.Network, error) {
	e := &journal.Entry{Key: journal.Key{Network: c.Config.Name}, CNIVersion: c.Config.CNIVersion}
	return c.Network(e, c.Config.DelegateConfigs(), "")
}

// checkNetns returns an error unless CNI_NETNS is a network namespace other than this process's own, in which delegates
// would look for the pod's interface. CNI_NETNS_OVERRIDE allows the own one.
func checkNetns(args attachment.Args) error {
	if !filepath.IsAbs(args.Netns) { // it would lead elsewhere for whoever reads the journal
		return failure.New(failure.Environment, fmt.Errorf("CNI_NETNS %q: must be an absolute path", args.Netns), "the runtime must set it")
	}
	if err := link.CheckNetns(args.Netns); err != nil {
		return failure.New(failure.Code(err), fmt.Errorf("CNI_NETNS %w", err), "it must be the path of the container's network namespace")
	}
	own, err := link.IsOwnNetns(args.Netns)
	switch {
	case args.AnyNetns:
		return nil
	case err != nil:
		return failure.New(failure.Netns, err, "mount proc")
	case own:
		return failure.New(failure.Netns, fmt.Errorf("CNI_NETNS %s is the plugin's own network namespace", args.Netns),
			"pass the container's network namespace, or set CNI_NETNS_OVERRIDE=1")
	}
	return nil
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
