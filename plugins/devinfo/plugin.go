package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// Plugin is the plugin on one node. From its [cleanup.Cleaner] it has the node's settings (Node), the journal, the Finder
// of devices and the log, and what ends an attachment: Removal, Stale, Collect.
type Plugin struct {
	*cleanup.Cleaner
	NodeError  error       // error from reading the settings; Node has the defaults then
	SysfsError error       // error from opening sysfs; Finder is empty then
	Infos      *store.Dir  // the device-info files
	Specs      *store.Dir  // the CDI specs
	Nodes      grant.Nodes // the device nodes; nil = those below /dev
	Stdout     io.Writer

	cniVersion string // cniVersion of the configuration; "" before it is parsed
}

// New returns a plugin for the node's settings. It opens and creates nothing.
func New(node config.Node, finder discovery.Finder, bootID string, stdout io.Writer, log *slog.Logger) *Plugin {
	return &Plugin{
		Cleaner: cleanup.New(node, finder, bootID, log),
		Infos:   store.Open(node.DeviceInfoDir),
		Specs:   store.Open(node.CDIDir),
		Stdout:  stdout,
	}
}

// Call is one invocation of the plugin. It is about one attachment, except for GC and STATUS.
type Call struct {
	*Plugin
	Args       *Args
	Config     *config.Config
	Attachment *attachment.Attachment
	Key        journal.Key
	Log        *slog.Logger
	argsError  error  // why CNI_ARGS cannot be parsed; nil = they can
	reason     string // last warning of unlessStrict, with its remedy: why an entry has no device
}

func (p *Plugin) parse(args *Args) (*Call, error) {
	cfg, err := config.Parse(args.StdinData)
	if err != nil {
		return nil, failure.New(failure.Decoding, err, "")
	}
	for _, problem := range cfg.Problems { // every verb needs the name; only DEL works without the version
		if problem.Key == "name" || problem.Key == "cniVersion" && args.Command != "DEL" || problem.Key == "cni.dev/valid-attachments" && args.Command == "GC" {
			return nil, problem
		}
	}
	if utils.ValidateNetworkName(cfg.Name) != nil {
		return nil, failure.New(failure.Config, fmt.Errorf("name: %q is not a valid network name: it must consist of letters, digits, '_', '.' and '-', and begin with a letter or digit", cfg.Name),
			remedyOfName(cfg.Name))
	}
	if err := checkVersion(cfg, args.Command, p.Log); err != nil {
		return nil, err
	}
	p.cniVersion, p.CNIPath = cfg.CNIVersion, args.Path
	for _, w := range cfg.Warnings() {
		p.Log.Warn(w)
	}
	return p.call(cfg, args), nil
}

func remedyOfName(name string) string {
	if name == "" {
		return `set the key "name", spelled in lower case`
	}
	return "give the network another name"
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
		return failure.New(types.ErrIncompatibleCNIVersion, fmt.Errorf("cniVersion %s has no %s", cfg.CNIVersion, verb), "set cniVersion to "+since+" or later")
	}
	return nil
}

func (p *Plugin) call(cfg *config.Config, args *Args) *Call {
	att, err := attachment.New(cfg, args.Args, p.Node.DeviceInfoDir)
	key := journal.Key{Network: att.Network, ContainerID: att.ContainerID, IfName: att.IfName}
	return &Call{Plugin: p, Args: args, Config: cfg, Attachment: att, Key: key, Log: p.Log.With("attachment", key.String()), argsError: err}
}

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
	if err := c.Journal.Own(); err != nil {
		return failure.New(failure.Config, err, journal.OwnRemedy)
	}
	return nil
}

// Refusal returns why ADD refuses the configuration or CNI_ARGS on any node, or nil. Runtimes may leave CNI_ARGS, with the
// values of placeholders, out of a DEL.
func (c *Call) Refusal() error {
	if len(c.Config.Problems) > 0 {
		return c.Config.Problems[0]
	}
	_, vetted := attachment.Vet(c.Config)
	var declared error
	if c.Args.CNIArgs != "" {
		_, _, declared = c.Attachment.Declared(c.Config)
	}
	_, path := c.infoFileName()
	if failure.Code(path) != failure.Config {
		path = nil
	}
	return cmp.Or(c.argsError, vetted, declared, path)
}

// lenient logs the same problems as warnings, for DEL and GC.
func (c *Call) lenient() {
	if c.NodeError != nil {
		c.Plugin.Log.Warn("using the default node settings", "error", c.NodeError)
	}
	for _, problem := range c.Config.Problems {
		c.Plugin.Log.Warn("key ignored", "error", problem)
	}
	if c.argsError != nil {
		c.Log.Warn("CNI_ARGS ignored", "error", c.argsError)
	}
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
	if c.Attachment.Path != c.Config.InfoFile {
		return "", failure.New(failure.Config, fmt.Errorf("deviceInfoFile \"auto\": %w", err), fmt.Sprintf("it is made of the network's name (%d bytes), "+
			"the container ID (%d) and the interface name (%d): use a shorter network name, or a plainer interface name", len(c.Attachment.Network), len(c.Attachment.ContainerID), len(c.Attachment.IfName)))
	}
	err = fmt.Errorf("runtimeConfig.CNIDeviceInfoFile: %w", err)
	if errors.As(err, new(*store.NameError)) {
		err = failure.New(failure.Config, err, "use a path in "+c.Node.DeviceInfoDir+", or change deviceInfoDir in the node settings")
	}
	return "", err
}
