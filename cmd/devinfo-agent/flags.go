package main

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/pflag"

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/httpstatus"
	"devinfo-cni.io/pkg/inject"
	"devinfo-cni.io/pkg/install"
)

// options are the command line: what the agent is, of which [options.agent] makes the whole, and how
// it is run.
type options struct {
	agent.Options // Settings.Dir "" = node.json is left alone; Injection.HostRoot "" = HostRoot, else /

	inject         bool
	runDir         string
	metricsAddress string
	logFormat      string
	verbosity      int
	uninstall      bool
	force          bool
	keepRunning    bool
}

const (
	hostRootHelp = "`directory` where the host's root is mounted, / outside of a container: a sweep runs the DEL of delegates with it as theirs. " +
		"Without it, attachments that have delegates are counted, and left to the runtime and to devinfoctl gc"
	settingsHelp = "`directory`, of a mounted ConfigMap say, with the node settings: <node name>.json, else default.json, is checked and put in place as --node-config. " +
		"Without the flag the node's settings are left alone"
	foreignHelp = "overwrite a file of the plugin's name that is not a devinfo plugin, and node settings that no agent has put in place"
)

// add defines the flags.
func (o *options) add(f *pflag.FlagSet) {
	f.SortFlags = false
	plugin, settings, injection := &install.Plugin{}, &install.Settings{}, &inject.Options{}
	o.Plugin, o.Settings, o.Injection = plugin, settings, injection
	f.StringVar(&settings.Node, "node-name", os.Getenv("NODE_NAME"), "`name` of this node, for --settings-dir (default $NODE_NAME)")

	f.StringVar(&plugin.Dir, "cni-bin-dir", "/opt/cni/bin", "`directory` of the node's CNI plugins, which must exist: the plugin is put there, and kept there")
	f.BoolVar(&plugin.OverwriteForeign, "overwrite-foreign", false, foreignHelp)
	f.StringVar(&settings.Dir, "settings-dir", "", settingsHelp)
	f.StringVar(&o.NodeConfig, "node-config", config.NodeFile, "node settings `file` of the plugin")

	f.DurationVar(&o.SweepInterval, "gc-interval", 5*time.Minute, "after which `time` what dead sandboxes and older boots left is removed again; 0 = never, not at the start either")
	f.StringVar(&o.CNIPath, "cni-path", "", "`directories` of delegates, separated by colons, as the host sees them (default --cni-bin-dir)")
	f.StringVar(&o.HostRoot, "host-root", "", hostRootHelp)

	f.BoolVar(&o.inject, "inject", true, "give containers their device information, by NRI")
	f.StringVar(&injection.HostRoot, "device-root", "", "`directory` below which the host's /dev is mounted: /host for /host/dev (default --host-root, else /)")
	f.StringVar(&injection.Socket, "nri-socket", "/var/run/nri/nri.sock", "NRI `socket` of the container runtime")
	f.StringVar(&injection.Index, "nri-plugin-index", "60", "two `digits` that order the plugins of the runtime")
	f.StringVar((*string)(&injection.MissingInfo), "missing-info", "allow", "allow or reject containers whose device-info files are missing; always reject where the pod requires the interface")
	f.StringSliceVar(&injection.Only, "inject-namespaces", nil, "`namespaces`, comma-separated, * for anything: pods in others are given nothing (default all)")
	f.StringSliceVar(&injection.Except, "inject-exclude-namespaces", nil, "`namespaces`, written in the same way, whose pods are given nothing")

	f.StringVar(&o.runDir, "run-dir", "/var/run/devinfo-agent", "`directory` of the agent's own, the same path on the host: the lock of the one agent of the node, and what containers mount")
	f.StringVar(&o.metricsAddress, "metrics-address", "", "`host:port` for /healthz and /metrics, without authentication; none by default. /metrics names pods")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json, to standard error")
	f.IntVarP(&o.verbosity, "v", "v", 0, "verbosity of the log: 4 for debugging")

	f.BoolVar(&o.uninstall, "uninstall", false, "remove the plugin and the node settings that an agent has put in place, and end; not while an agent runs on the node")
	f.BoolVar(&o.force, "force", false, "with --uninstall: uninstall even if attachments exist; their pods cannot be deleted without the plugin")
	f.BoolVar(&o.keepRunning, "keep-running", false, "after --uninstall, keep running and report ready on /healthz until terminated, for use in a DaemonSet")
}

var index = regexp.MustCompile(`^[0-9]{2}$`)

// check returns all errors of the flags.
func (o *options) check() error {
	var errs commandline.FlagErrors
	errs.If(o.Settings.Dir != "" && o.Settings.Node == "", "--node-name: --settings-dir needs the name of the node: give it, or set NODE_NAME")
	errs.Value(o.Settings.Node != "" && o.Settings.Node != filepath.Base(o.Settings.Node), "node-name", o.Settings.Node, "is not a node name")
	errs.Value(!index.MatchString(o.Injection.Index), "nri-plugin-index", o.Injection.Index, "must be two digits, such as 60")
	errs.Value(o.Injection.MissingInfo != inject.Allow && o.Injection.MissingInfo != inject.Reject, "missing-info", o.Injection.MissingInfo, "must be allow or reject")
	errs.Value(o.logFormat != "text" && o.logFormat != "json", "log-format", o.logFormat, "must be text or json")
	errs.Value(o.metricsAddress != "" && !httpstatus.Valid(o.metricsAddress), "metrics-address", o.metricsAddress, "must be host:port, such as 127.0.0.1:9810 or :9810")
	for flag, patterns := range map[string][]string{"inject-namespaces": o.Injection.Only, "inject-exclude-namespaces": o.Injection.Except} {
		for _, pattern := range patterns {
			_, err := path.Match(pattern, "")
			errs.Value(err != nil || pattern == "", flag, pattern, "must be a namespace, or a pattern such as team-*")
		}
	}
	errs.If(o.force && !o.uninstall, "--force: goes with --uninstall: give both")
	errs.If(o.keepRunning && (!o.uninstall || o.metricsAddress == ""), "--keep-running: goes with --uninstall and --metrics-address: give both")
	errs.Value(o.SweepInterval < time.Second && o.SweepInterval != 0, "gc-interval", o.SweepInterval, "is less than 1s, and not 0")
	errs.Path("cni-bin-dir", o.Plugin.Dir)
	errs.Given("settings-dir", o.Settings.Dir)
	errs.Path("node-config", o.NodeConfig)
	errs.Given("host-root", o.HostRoot)
	errs.Given("device-root", o.Injection.HostRoot)
	errs.Path("nri-socket", o.Injection.Socket)
	errs.Path("run-dir", o.runDir)
	for _, dir := range filepath.SplitList(o.CNIPath) {
		errs.Path("cni-path", dir)
	}
	return errors.Join(errs...)
}

// checkHost says which directories are not there: else delegates and device nodes would be missed only once
// they are needed.
func (o *options) checkHost() error {
	dev := o.Injection.HostRoot
	if dev != "" {
		dev = filepath.Join(dev, "dev")
	}
	return errors.Join(
		commandline.Dir("host-root", o.HostRoot, "name the directory where the host's root is mounted, / outside of a container"),
		commandline.Dir("device-root", dev, "name the directory below which the host's /dev is mounted, /host for /host/dev"))
}
