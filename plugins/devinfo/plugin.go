package plugin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/safefile"
)

// Plugin is the plugin on one node.
type Plugin struct {
	Node      config.Node
	NodeError error // error from reading the settings; Node has the defaults then

	Finder  discovery.Finder
	Infos   *store.Dir // the device-info files
	Specs   *store.Dir // the CDI specs
	Nodes   grant.Nodes
	Journal *journal.Journal
	BootID  string

	// Root is the root directory of the delegates, such as the host's in a container; "" = this process's root.
	Root string

	Stdout io.Writer
	Log    *slog.Logger

	// Listen starts to receive the signals that would otherwise end the process. It is called before the first
	// delegate. After a signal, ADD stops once the running delegate has ended; the other verbs finish.
	Listen  func() <-chan os.Signal
	once    sync.Once // for Listen
	signals <-chan os.Signal

	cniVersion string // cniVersion of the configuration; "" before it is parsed

	// Within is the value of WithinEnv: the attachment that this process runs in as a delegate.
	Within string
}

// WithinEnv is an environment variable with the attachment's key for delegates. Without it, a delegate that is devinfo
// itself, under another name or inside another plugin, would take the ADD for a killed one and call itself for ever.
const WithinEnv = "DEVINFO_WITHIN"

// New returns a plugin for the node's settings and the device nodes below /dev. It opens and creates nothing.
func New(node config.Node, finder discovery.Finder, bootID string, stdout io.Writer, log *slog.Logger) *Plugin {
	return &Plugin{
		Node:    node,
		Finder:  finder,
		Infos:   store.Open(node.DeviceInfoDir),
		Specs:   store.Open(node.CDIDir),
		Nodes:   grant.NodesBelow(""),
		Journal: journal.Open(node.StateDir, bootID),
		BootID:  bootID,
		Stdout:  stdout,
		Log:     log,
	}
}

// call is one invocation of the plugin about one attachment.
type call struct {
	plugin *Plugin
	args   *Args
	cfg    *config.Config
	att    *attachment.Attachment
	key    journal.Key
	log    *slog.Logger
	reason string // last warning of unlessStrict, with its remedy
}

// parse reads the configuration and logs a warning for each unknown key. It returns an error if the name of the
// network is invalid, or if the CNI version does not have the verb.
func (p *Plugin) parse(args *Args) (*config.Config, error) {
	cfg, err := config.Parse(args.StdinData)
	if err != nil {
		return nil, fail(codeDecoding, err, "")
	}
	for _, problem := range cfg.Problems { // every verb needs the name; only DEL works without the version
		if problem.Key == "name" || problem.Key == "cniVersion" && args.Command != "DEL" {
			return nil, problem
		}
	}
	if !journal.IsIdentifier(cfg.Name) {
		return nil, fail(codeConfig, fmt.Errorf("name: %q is not a valid network name: it must consist of letters, digits, '_', '.' and '-', and begin with a letter or digit", cfg.Name),
			`set the key "name", spelled in lower case`)
	}
	if err := checkVersion(cfg.CNIVersion, args.Command); err != nil {
		return nil, err
	}
	p.cniVersion = cfg.CNIVersion
	for _, w := range cfg.Warnings() {
		p.Log.Warn(w)
	}
	return cfg, nil
}

// open begins a call. If CNI_ARGS cannot be parsed, it returns an error and a call that is usable without them.
func (p *Plugin) open(cfg *config.Config, args *Args) (*call, error) {
	att, err := attachment.New(cfg, args.Args, p.Node.DeviceInfoDir)
	key := journal.Key{Network: att.Network, ContainerID: att.ContainerID, IfName: att.IfName}
	if err != nil {
		err = fail(codeEnvironment, err, "")
	}
	return &call{plugin: p, args: args, cfg: cfg, att: att, key: key, log: p.Log.With("attachment", key.String())}, err
}

// openStrict is open for ADD and CHECK, which refuse settings or a configuration with any problem.
func (p *Plugin) openStrict(args *Args) (*call, error) {
	cfg, err := p.parse(args)
	if err == nil {
		err = p.strict(cfg)
	}
	if err != nil {
		return nil, err
	}
	return p.open(cfg, args)
}

// nested reports whether this process runs as a delegate of the attachment that the call is about.
func (c *call) nested() bool { return c.plugin.Within != "" && c.plugin.Within == c.key.String() }

// strict returns the first problem of the settings or the configuration.
func (p *Plugin) strict(cfg *config.Config) error {
	if p.NodeError != nil {
		return fail(codeConfig, p.NodeError, "correct the file, or remove it to use the defaults")
	}
	if len(cfg.Problems) > 0 {
		return cfg.Problems[0]
	}
	if p.Finder.Sys == nil {
		return fail(codeIO, fmt.Errorf("no sysfs at %s", p.Node.Sysfs), "mount it there, or set sysfs in the node settings")
	}
	return nil
}

// lenient logs the problems of the settings and the configuration as warnings, for DEL.
func (p *Plugin) lenient(cfg *config.Config) {
	if p.NodeError != nil {
		p.Log.Warn("using the default node settings", "error", p.NodeError)
	}
	for _, problem := range cfg.Problems {
		p.Log.Warn("key ignored", "error", problem)
	}
}

// infoFileName returns the name of the device-info file in its directory, or "" if the runtime passed no path.
func (c *call) infoFileName() (string, error) {
	if c.att.Path == "" {
		return "", nil
	}
	name, err := c.plugin.Infos.Name(c.att.Path)
	if err == nil {
		return name, nil
	}
	if c.att.Path != c.cfg.InfoFile {
		return "", fail(codeConfig, fmt.Errorf("deviceInfoFile \"auto\": %w", err), fmt.Sprintf("it is made of the network's name (%d bytes), "+
			"the container ID (%d) and the interface name (%d): use a shorter network name, or a plainer interface name", len(c.att.Network), len(c.att.ContainerID), len(c.att.IfName)))
	}
	err = fmt.Errorf("runtimeConfig.CNIDeviceInfoFile: %w", err)
	if as[*store.NameError](err) {
		err = fail(codeConfig, err, "use a path in "+c.plugin.Node.DeviceInfoDir+", or change deviceInfoDir in the node settings")
	}
	return "", err
}

// foreignReason returns the reason why a device-info file or a CDI spec belongs to another attachment: that attachment
// holds a lease of it, or a device-info file is named after another container. It returns "" if neither is true.
func (c *call) foreignReason(kind journal.Kind, name string) (why string, err error) {
	owner, err := c.plugin.Journal.Owner(kind, name)
	switch {
	case err != nil || owner != nil && *owner == c.key:
	case owner != nil:
		why = "belongs to attachment " + owner.String()
	case kind == journal.OfFile && attachment.BelongsToOtherContainer(name, c.key.ContainerID):
		why = "is named after another container"
	}
	return why, err
}

// entry returns the attachment's journal entry, locked, or nil if the journal has none.
func (c *call) entry() (*journal.Entry, error) {
	e, err := c.plugin.Journal.Lock(context.Background(), c.key, lockWait)
	if as[*safefile.BusyError](err) {
		err = fail(codeTryAgain, fmt.Errorf("an earlier call for this attachment is still running: %w", err), "try again; if the error stays, find out why that process hangs")
	}
	return e, err
}

// lock is like entry, for calls that modify the attachment. If the entry is corrupt, lock logs a warning and returns
// an entry with the facts that the leases still show. corrupt is true in that case.
func (c *call) lock() (e *journal.Entry, corrupt bool, err error) {
	e, err = c.entry()
	if !as[*store.CorruptError](err) {
		return e, false, err
	}
	c.log.Warn("journal entry ignored", "error", err)
	if err := c.plugin.Journal.FillFromLeases(e); err != nil {
		e.Unlock()
		return nil, false, err
	}
	e.Dir, e.CDI.Dir = c.plugin.Node.DeviceInfoDir, c.plugin.Node.CDIDir
	return e, true, nil
}
