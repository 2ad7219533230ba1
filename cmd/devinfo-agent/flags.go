package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/pflag"

	"devinfo-cni.io/pkg/config"
)

// options are the command line.
type options struct {
	nodeName string

	plugin         string // "" = devinfo beside this executable
	cniBinDir      string
	allowDowngrade bool
	replaceForeign bool
	settingsDir    string // "" = node.json is left alone
	nodeConfig     string
	checkInterval  time.Duration

	sweepInterval time.Duration
	cniPath       string // "" = cniBinDir
	hostRoot      string // "" = delegates are not run

	inject            bool
	deviceRoot        string // "" = hostRoot, else /
	nriSocket         string
	nriIndex          string
	whenMissing       string
	excludeNamespaces []string

	runDir         string
	metricsAddress string
	auditInterval  time.Duration
	maxSeries      int
	logFormat      string
	verbosity      int
	uninstall      bool
	uninstallInUse bool
}

const (
	hostRootHelp = "`directory` where the host's root is mounted, / outside of a container: a sweep runs the DEL of delegates with it as theirs. " +
		"Without it, attachments that have delegates are counted, and left to the runtime and to devinfoctl gc"
	settingsHelp = "`directory`, of a mounted ConfigMap say, with the node settings: <node name>.json, else default.json, is checked and put in place as --node-config. " +
		"Without the flag the node's settings are left alone"
	foreignHelp = "replace a file of the plugin's name that is not a devinfo plugin, and node settings that no agent has put in place"
)

// add defines the flags.
func (o *options) add(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "`name` of this node, for --settings-dir (default $NODE_NAME)")

	f.StringVar(&o.cniBinDir, "cni-bin-dir", "/opt/cni/bin", "`directory` of the node's CNI plugins, which must exist: the plugin is put there, and kept there")
	f.StringVar(&o.plugin, "plugin", "", "`file` of the plugin to put there (default devinfo beside this program)")
	f.BoolVar(&o.allowDowngrade, "allow-downgrade", false, "replace a plugin of a higher version; never done where the journal has entries that the lower one cannot read")
	f.BoolVar(&o.replaceForeign, "replace-foreign", false, foreignHelp)
	f.StringVar(&o.settingsDir, "settings-dir", "", settingsHelp)
	f.StringVar(&o.nodeConfig, "node-config", config.NodeFile, "node settings `file` of the plugin")
	f.DurationVar(&o.checkInterval, "check-interval", 5*time.Second, "after which `time` plugin and settings are looked at again")

	f.DurationVar(&o.sweepInterval, "sweep-interval", 5*time.Minute, "after which `time` what dead sandboxes and older boots left is removed again; 0 = never, not at the start either")
	f.StringVar(&o.cniPath, "cni-path", "", "`directories` of delegates, separated by colons, as the host sees them (default --cni-bin-dir)")
	f.StringVar(&o.hostRoot, "host-root", "", hostRootHelp)

	f.BoolVar(&o.inject, "inject", true, "give containers their device information, by NRI")
	f.StringVar(&o.deviceRoot, "device-root", "", "`directory` below which the host's /dev is mounted: /host for /host/dev (default --host-root, else /)")
	f.StringVar(&o.nriSocket, "nri-socket", "/var/run/nri/nri.sock", "NRI `socket` of the container runtime")
	f.StringVar(&o.nriIndex, "nri-plugin-index", "60", "two `digits` that order the plugins of the runtime")
	f.StringVar(&o.whenMissing, "when-missing", "pass", "pass or refuse a container whose device information should be there and is not")
	f.StringSliceVar(&o.excludeNamespaces, "inject-exclude-namespaces", nil, "`namespaces`, comma-separated, whose pods are given nothing")

	f.StringVar(&o.runDir, "run-dir", "/var/run/devinfo-agent", "`directory` of the agent's own, the same path on the host: the lock of the one agent of the node, and what containers mount")
	f.StringVar(&o.metricsAddress, "metrics-address", "", "`host:port` for /healthz and /metrics, without authentication; none by default. /metrics names pods")
	f.DurationVar(&o.auditInterval, "audit-interval", time.Minute, "after which `time` the attachments are looked at again, for /metrics")
	f.IntVar(&o.maxSeries, "max-attachment-series", 1000, "how many attachments /metrics names at most; all are counted")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json, to standard error")
	f.IntVarP(&o.verbosity, "v", "v", 0, "verbosity of the log: 4 for debugging")

	f.BoolVar(&o.uninstall, "uninstall", false, "remove the plugin and the node settings that an agent has put in place, and end; not while an agent runs on the node")
	f.BoolVar(&o.uninstallInUse, "uninstall-in-use", false, "uninstall although attachments are there, whose pods cannot be deleted without the plugin")
}

var index = regexp.MustCompile(`^[0-9]{2}$`)

// check reports everything that is wrong with the flags.
func (o *options) check() error {
	var errs []error
	bad := func(flag string, value any, why string) {
		errs = append(errs, fmt.Errorf("--%s: %q %s", flag, fmt.Sprint(value), why))
	}
	if o.settingsDir != "" && o.nodeName == "" {
		errs = append(errs, errors.New("--node-name: --settings-dir needs the name of the node: give it, or set NODE_NAME"))
	}
	if o.nodeName != "" && o.nodeName != filepath.Base(o.nodeName) {
		bad("node-name", o.nodeName, "is not a node name")
	}
	if !index.MatchString(o.nriIndex) {
		bad("nri-plugin-index", o.nriIndex, "must be two digits, such as 60")
	}
	if o.whenMissing != "pass" && o.whenMissing != "refuse" {
		bad("when-missing", o.whenMissing, "must be pass or refuse")
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		bad("log-format", o.logFormat, "must be text or json")
	}
	if o.metricsAddress != "" {
		if _, port, err := net.SplitHostPort(o.metricsAddress); err != nil || port == "" {
			bad("metrics-address", o.metricsAddress, "must be host:port, such as 127.0.0.1:9810 or :9810")
		}
	}
	if o.maxSeries < 0 {
		bad("max-attachment-series", o.maxSeries, "is less than 0")
	}
	errs = append(errs, o.checkTimes()...)
	errs = append(errs, o.checkPaths()...)
	return errors.Join(errs...)
}

func (o *options) checkTimes() (errs []error) {
	for _, t := range []struct {
		flag  string
		value time.Duration
		never bool // 0 is allowed
	}{
		{"check-interval", o.checkInterval, false}, {"sweep-interval", o.sweepInterval, true}, {"audit-interval", o.auditInterval, false},
	} {
		if t.value < time.Second && (t.value != 0 || !t.never) {
			errs = append(errs, fmt.Errorf("--%s: %q is less than 1s", t.flag, t.value))
		}
	}
	return errs
}

func (o *options) checkPaths() (errs []error) {
	paths := []struct {
		flag, value string
		optional    bool
	}{
		{"plugin", o.plugin, true}, {"cni-bin-dir", o.cniBinDir, false}, {"settings-dir", o.settingsDir, true}, {"node-config", o.nodeConfig, false},
		{"host-root", o.hostRoot, true}, {"device-root", o.deviceRoot, true}, {"nri-socket", o.nriSocket, false}, {"run-dir", o.runDir, false},
	}
	for _, dir := range filepath.SplitList(o.cniPath) {
		paths = append(paths, struct {
			flag, value string
			optional    bool
		}{"cni-path", dir, false})
	}
	for _, p := range paths {
		if !filepath.IsAbs(p.value) && (p.value != "" || !p.optional) {
			errs = append(errs, fmt.Errorf("--%s: %q is not an absolute path", p.flag, p.value))
		}
	}
	return errs
}
