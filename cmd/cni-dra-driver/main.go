// Cni-dra-driver is the node agent of the CNI DRA driver. It attaches the pods of a node to the CNI networks that
// their resource claims request. It runs as a container of a DaemonSet (see deploy/cni-dra-driver) or as a process
// of the host. Package pkg/dra does the work.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/httpstatus"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/dra/claim"
)

const driver = view.Driver // short for the name of the DRA driver

func main() { os.Exit(commandline.RunAgent(command(), os.Stderr, os.Geteuid())) }

const about = `cni-dra-driver attaches the pods of this node to the CNI networks that their
ResourceClaims request (driver ` + driver + `). It needs root, the
kubelet's plugin directories, and a container runtime with NRI and CDI.

Exit codes:
  0  ended by a signal, or uninstalled
  1  cni-dra-driver could not start, continue or uninstall, or a command failed
  2  the command line is invalid`

func command() *cobra.Command {
	o := options{linger: linger}
	cmd := &cobra.Command{
		Use: "cni-dra-driver", Short: "attach pods to CNI networks by Dynamic Resource Allocation", Long: about,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd.Flags()); err != nil {
				return clierr.Misuse("see cni-dra-driver --help", "%w", err)
			}
			o.podResourcesGiven = cmd.Flags().Changed("pod-resources-socket")
			if self, err := os.Executable(); err == nil && o.gate == "" {
				o.gate = filepath.Join(filepath.Dir(self), gateName)
			}
			var level klog.Level
			if err := level.Set(strconv.Itoa(o.verbosity)); err != nil {
				return fmt.Errorf("-v: %w", err)
			}
			log := commandline.Logger(o.logFormat, o.verbosity)
			klog.SetSlogLogger(log) // also for the Kubernetes libraries
			return run(cmd.Context(), &o, log)
		},
	}
	o.add(cmd.Flags())
	cmd.AddCommand(clearCommand(), inventoryCommand())
	commandline.Finish(cmd)
	return cmd
}

const clearAbout = `Clear makes the driver of this node drop the records of attachments whose DEL was given up
(devinfoctl list --undeleted). This takes at most a minute and runs no further DEL. The driver then
offers their devices again. First clean up after the failed DEL: remove addresses in the files of an
IPAM plugin and leftover interfaces, and reset device settings.`

// clearCommand leaves a request for the running driver, because only the driver changes records.
func clearCommand() *cobra.Command {
	var pluginsDir, nodeConfig string
	cmd := &cobra.Command{
		Use: "clear CLAIM-UID...", Short: "drop the records of attachments whose DEL was given up", Long: clearAbout,
		Args: commandline.Many("CLAIM-UID"),
		RunE: func(cmd *cobra.Command, uids []string) error {
			dir := filepath.Join(pluginsDir, driver, "state")
			if pluginsDir == "" {
				node, err := config.LoadNode(nodeConfig)
				if err != nil {
					return fmt.Errorf("--node-config: %w", err)
				}
				dir = state.NodeDir(node.StateDir)
			}
			if _, err := os.Stat(dir); err != nil {
				return fmt.Errorf("the driver's state: %w: give --kubelet-plugins-dir the value that the driver has", err)
			}
			var errs []error
			for _, uid := range uids {
				c, err := state.Clear(dir, uid)
				errs = append(errs, err)
				if c == nil {
					continue
				}
				for _, at := range c.Undeleted {
					namespace, name := at.Args.Name()
					fmt.Fprintf(cmd.OutOrStdout(), "claim %s/%s, pod %s/%s: interface %s in network %s, device %s/%s: cleared\n",
						c.Namespace, c.Name, namespace, name, at.IfName, at.Network, at.Pool, at.Device)
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringVar(&pluginsDir, "kubelet-plugins-dir", "", "`directory` of the kubelet's plugins, the value that the driver has (default: the state is in $"+state.DirVariable+" if set, else where the last driver of this node had it)")
	cmd.Flags().StringVar(&nodeConfig, "node-config", config.NodeFile, "node settings `file` of the devinfo plugin, for stateDir; it need not exist")
	return cmd
}

// gateName is the program that the runtime runs for each container of a claim. It is installed beside the CNI
// plugins, because the host allows programs to run from there.
const gateName = "cni-dra-gate"

// keepGate installs the gate program if it differs. The runtime creates no container of a claim without it.
func (o *options) keepGate(log *slog.Logger) error {
	warning, err := install.Program(o.gate, filepath.Join("/", o.hostRoot, o.cniBinDir, gateName))
	if err != nil {
		return fmt.Errorf("%s: %w", gateName, err)
	}
	if warning != nil {
		log.Warn("the runtime may not be allowed to run the gate program", "program", gateName, "error", warning)
	}
	return nil
}

// options holds the values of the flags.
type options struct {
	nodeName, kubeconfig           string
	pluginsDir, registrarDir       string
	nodeConfig                     string
	cdiDir                         string // "" = cdiDir of the node settings
	cniBinDir, cniPath             string // cniPath "" = cniBinDir
	allowed                        []string
	hostRoot                       string
	nriSocket, nriIndex            string
	gate                           string // path of the program cni-dra-gate to install on the node; "" = beside this program
	devices                        string // rules file; "" = the driver offers no devices of the node
	captureFile                    string // capture file whose devices are offered instead of this node's; "" = none
	podResources                   string
	podResourcesGiven              bool // whether the command line sets podResources
	evictLost, metadata            bool
	numaNode                       string // a key of numaForms
	carrierGrace, delMinRetryTime  time.Duration
	maxAttachments, delMaxFailures int
	metricsAddress, logFormat      string
	verbosity                      int

	uninstall, force, keepRunning bool
	linger                        time.Duration // see awaitUnused
	every                         time.Duration // interval of the checks of the node; 0 = a minute
}

const allowHelp = "CNI plugin `types`, comma-separated, that the configuration in a ResourceClaim may use, including delegates and IPAM " +
	"plugins; by default none: the DeviceClass, which only administrators write, has the configuration, and a claim can " +
	"only choose the interface name. A CNI plugin runs as root on the node and does what its configuration requests. " +
	"Allowing a type therefore trusts each user who may create claims, in any namespace, as root on this node. For " +
	`example, host-local writes into the directory that "dataDir" names`

const carrierGrace = time.Minute

// linger gives the kubelet time to get the answer to its last Unprepare. Without the answer the kubelet would call
// again, and nothing would serve the call.
const linger = 10 * time.Second

// add defines the flags.
func (o *options) add(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "`name` of this node's Node object (default $NODE_NAME)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: the service account of the pod)")
	f.StringSliceVar(&o.allowed, "allow-claim-config", nil, allowHelp)
	f.StringVar(&o.devices, "devices", "", "`file` with the rules that select the node devices to offer and how, {devices: [...]}; the command inventory prints their effect (default: offer no devices of the node)")
	f.StringVar(&o.captureFile, "capture", "", "capture `file`, written by devinfoctl capture; its devices are offered instead of this node's, to try rules and classes without the hardware; read again when the node changes; only with --devices")
	f.StringVar(&o.podResources, "pod-resources-socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "`socket` of the kubelet's PodResources API, which lists the devices that device plugins have allocated, as the host sees it; only with --devices")
	f.BoolVar(&o.evictLost, "evict-lost", false, "evict pods whose device no longer exists on the node, by a taint with effect NoExecute; only with --devices")
	f.DurationVar(&o.carrierGrace, "carrier-grace", carrierGrace, "`time` without carrier until the kubelet gets to know a device as unhealthy; 0 = at once; only with --devices")
	f.StringVar(&o.numaNode, "numa-node", "scalar", "`form` of the attribute resource.kubernetes.io/numaNode in ResourceSlices and metadata: scalar, the device's NUMA node, or list, which adds the nearest nodes of its socket; list needs the feature gate DRAListTypeAttributes in kube-apiserver and kube-scheduler")
	f.IntVar(&o.maxAttachments, "max-attachments", 0, "maximum number of attachments on the node; 0 = no limit")
	f.IntVar(&o.delMaxFailures, "del-max-failures", claim.DefaultDelMaxFailures, "number of failures until a DEL is given up once its network namespace no longer exists; the record is kept and the pod can be deleted")
	f.DurationVar(&o.delMinRetryTime, "del-min-retry-time", claim.DefaultDelMinRetryTime, "minimum `time` of retrying a DEL before it is given up")
	f.BoolVar(&o.metadata, "enable-device-metadata", false, "write the device metadata of claims into their containers, below /var/run/kubernetes.io/dra-device-attributes (KEP-5304)")
	f.StringVar(&o.cniBinDir, "cni-bin-dir", "/opt/cni/bin", "`directory` of the node's CNI plugins, as the host sees it; it must exist; cni-dra-gate is installed in it")
	f.StringVar(&o.cniPath, "cni-path", "", "`directories` of the CNI plugins to run, separated by colons, as the host sees them (default --cni-bin-dir)")
	f.StringVar(&o.gate, "gate-binary", "", "`file` of the program cni-dra-gate, which is installed in --cni-bin-dir; the runtime runs it for each container of a claim (default: beside this program)")
	f.StringVar(&o.hostRoot, "host-root", "", "`directory` where the host's root is mounted; CNI plugins run with it as their root; required in a container, together with hostPID (default: none)")
	f.StringVar(&o.nodeConfig, "node-config", config.NodeFile, "node settings `file` of the devinfo plugin, for deviceInfoDir, sysfs, allowedDevices and socketDirs; it need not exist")
	f.StringVar(&o.cdiDir, "cdi-dir", "", "`directory` of the container runtime's CDI specs (default cdiDir of the node settings, else "+config.DefaultNode().CDIDir+")")
	f.StringVar(&o.nriSocket, "nri-socket", "/var/run/nri/nri.sock", "NRI `socket` of the container runtime")
	f.StringVar(&o.nriIndex, "nri-plugin-index", "50", "two `digits`: this plugin's position among the runtime's NRI plugins")
	f.StringVar(&o.pluginsDir, "kubelet-plugins-dir", kubeletplugin.KubeletPluginsDir, "`directory` of the kubelet's plugins; the driver keeps its state below it, in "+driver)
	f.StringVar(&o.registrarDir, "kubelet-registrar-dir", kubeletplugin.KubeletRegistryDir, "`directory` where the kubelet looks for plugin registrations")
	f.StringVar(&o.metricsAddress, "metrics-address", "", "`host:port` of /healthz and /metrics, served without authentication (default: not served)")
	f.BoolVar(&o.uninstall, "uninstall", false, "remove what the driver has put on the node and its ResourceSlices, and end; not while claims are on record")
	f.BoolVar(&o.force, "force", false, "with --uninstall: uninstall even if claims are on record; their pods cannot be deleted without the driver")
	f.BoolVar(&o.keepRunning, "keep-running", false, "with --uninstall: serve claims until none is on record, then uninstall, and report ready on /healthz until terminated, for use in a DaemonSet")
	f.StringVar(&o.logFormat, "log-format", "text", "format of the log on standard error: text or json")
	f.IntVarP(&o.verbosity, "v", "v", 0, "verbosity of the log: 4 for debugging, 6 to log each call of the kubelet")
}

var numaForms = map[string]deviceattribute.AttributeForm{"scalar": deviceattribute.ScalarAttribute, "list": deviceattribute.ListAttribute}

var (
	index      = regexp.MustCompile(`^[0-9]{2}$`)
	pluginType = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
)

// check returns an error with all mistakes in the flags.
func (o *options) check(flags *pflag.FlagSet) error {
	var errs commandline.FlagErrors
	errs.If(o.nodeName == "", "--node-name: give the name of the Node object, or set NODE_NAME")
	errs.Value(o.maxAttachments < 0, "max-attachments", o.maxAttachments, "must be 0 or more")
	errs.Value(o.delMaxFailures < 1, "del-max-failures", o.delMaxFailures, "must be 1 or more")
	errs.Value(o.delMinRetryTime < 0, "del-min-retry-time", o.delMinRetryTime, "must be 0 or more")
	errs.Value(o.carrierGrace < 0, "carrier-grace", o.carrierGrace, "must be 0 or more")
	errs.Value(!index.MatchString(o.nriIndex), "nri-plugin-index", o.nriIndex, "must be two digits, such as 50")
	for _, t := range o.allowed {
		errs.Value(!pluginType.MatchString(t), "allow-claim-config", t, "must be a CNI plugin type such as macvlan; wildcards are not supported")
	}
	const idle = "has no effect without --devices: give both, or neither"
	none := o.devices == ""
	errs.Value(none && o.captureFile != "", "capture", o.captureFile, idle)
	errs.Value(none && o.evictLost, "evict-lost", true, idle)
	errs.Value(none && o.carrierGrace != carrierGrace, "carrier-grace", o.carrierGrace, idle)
	_, known := numaForms[o.numaNode]
	errs.Value(!known, "numa-node", o.numaNode, "must be scalar or list")
	errs.If(o.force && !o.uninstall, "--force: goes with --uninstall: give both")
	errs.If(o.keepRunning && (!o.uninstall || o.metricsAddress == ""), "--keep-running: goes with --uninstall and --metrics-address: give both")
	errs.Value(o.logFormat != "text" && o.logFormat != "json", "log-format", o.logFormat, "must be text or json")
	errs.Value(o.metricsAddress != "" && !httpstatus.Valid(o.metricsAddress), "metrics-address", o.metricsAddress, "must be host:port, such as 127.0.0.1:9809 or :9809")
	errs.Paths(flags)
	return errors.Join(errs...)
}

// checkHost returns an error if a directory or program of the host is missing. The driver creates that of CDI specs.
func (o *options) checkHost(cdi string) error {
	const kubelet = "name the kubelet's directory; in a container it must be mounted at the same path"
	specs := commandline.Dir("cdi-dir", cdi, "name the directory where the container runtime looks for CDI specs")
	if errors.Is(specs, fs.ErrNotExist) {
		specs = nil
	}
	return errors.Join(specs,
		commandline.Dir("cni-bin-dir", filepath.Join(o.hostRoot, o.cniBinDir), "name the directory of the CNI plugins, as the host sees it"),
		commandline.Dir("host-root", o.hostRoot, "name the directory where the host's root is mounted, or omit the flag outside a container"),
		commandline.Dir("kubelet-plugins-dir", o.pluginsDir, kubelet), commandline.Dir("kubelet-registrar-dir", o.registrarDir, kubelet),
		commandline.Program("gate-binary", o.gate, "name "+gateName+", which is shipped with this program and keeps containers out of other pods' networks"))
}
