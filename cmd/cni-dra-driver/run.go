package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/httpstatus"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
)

// run runs the driver until ctx ends or a permanent error occurs.
func run(ctx context.Context, o *options, log *slog.Logger) error {
	log.Info("cni-dra-driver", "version", build.Read().Version, "node", o.nodeName, "allowClaimConfig", o.allowed)
	client, err := connect(o)
	if err != nil {
		return err
	}
	if o.uninstall {
		return uninstall(ctx, o, client, log)
	}
	return serve(ctx, o, client, log)
}

// serve runs the driver. With --uninstall it offers no devices, and returns [errUnused] once no claim is on record.
func serve(ctx context.Context, o *options, client kubernetes.Interface, log *slog.Logger) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	node, bootID, err := o.node()
	if err != nil {
		return err
	}
	agent, err := newAgent(o, node, bootID, client, registry, log)
	if err != nil {
		return err
	}
	defer agent.Close()
	mounted := []string{o.pluginsDir, o.registrarDir, agent.Options.CDIDir, agent.Options.DeviceInfoDir, filepath.Dir(o.nriSocket), filepath.Dir(o.nodeConfig), link.NetnsDir}
	var background sync.WaitGroup
	background.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			now, _, err := o.node()
			if gone := store.Removed(append(mounted, now.SocketDirs...)...); gone != nil {
				fail(gone)
			}
			if err != nil {
				log.Error("going on with the directories of the start", "error", err)
			} else if err := moved(node, now); err != nil {
				fail(err)
			}
			if err := o.keepGate(log); err != nil {
				log.Error("the runtime cannot create containers of claims", "error", err)
			}
		}, cmp.Or(o.every, time.Minute))
	})
	kubelet, err := dra.StartKubelet(ctx, agent, dra.KubeletOptions{
		Node: o.nodeName, Client: client, PluginDir: o.pluginDir(), RegistrarDir: o.registrarDir,
		Limit: o.maxAttachments, Metadata: o.metadata, Withdraw: o.uninstall, Fatal: fail,
	})
	if err != nil {
		return err
	}
	defer kubelet.Stop()
	checks := []httpstatus.Check{
		{Name: "kubelet", Ask: kubelet.Registered}, {Name: "nri", Ask: agent.Connected},
		{Name: "state", Ask: agent.Ready}, {Name: "external-allocations", Ask: agent.Node.OthersKnown, Optional: true},
	}
	if o.uninstall {
		checks = append(checks, httpstatus.Check{Name: "uninstalled", Ask: func() error { return cmp.Or(dra.InUse(agent.Records()), errUnused) }})
	}
	defer httpstatus.Serve(ctx, o.metricsAddress, registry, log, checks...)()
	if o.uninstall {
		background.Go(func() {
			o.awaitUnused(ctx, agent)
			fail(errUnused)
		})
	}
	background.Go(func() { agent.ServeNRI(ctx, o.nriSocket, o.nriIndex) })
	agent.Run(ctx) // also waits for operations in progress
	background.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	log.Info("ended")
	return nil
}

// pluginDir is the driver's directory below the kubelet's plugin directory.
func (o *options) pluginDir() string { return filepath.Join(o.pluginsDir, driver) }

func (o *options) stateDir() string { return filepath.Join(o.pluginDir(), "state") }

// connect returns a client of the API server. It sends no request.
func connect(o *options) (kubernetes.Interface, error) {
	from, load := "API server", rest.InClusterConfig
	if o.kubeconfig != "" {
		from, load = "--kubeconfig", func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", o.kubeconfig) }
	}
	c, err := load()
	if errors.Is(err, rest.ErrNotInCluster) {
		err = fmt.Errorf("%w: give --kubeconfig outside a pod", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	c.UserAgent = "cni-dra-driver/" + build.Read().Version
	c.QPS, c.Burst = 50, 100 // because many pods of a node may start at the same time
	c.Wrap(dra.Limit)
	return kubernetes.NewForConfig(c)
}

// node returns the settings and the boot ID of the node. It returns an error if a directory of the host is missing.
func (o *options) node() (node config.Node, bootID string, err error) {
	if node, err = config.LoadNode(o.nodeConfig); err != nil {
		return node, "", fmt.Errorf("--node-config: %w", err)
	}
	node.CDIDir = cmp.Or(o.cdiDir, node.CDIDir)
	if err = o.checkHost(node.CDIDir); err != nil {
		return node, "", err
	}
	bootID, err = journal.BootID()
	return node, bootID, err
}

// moved returns an error if settings name another directory than those with which the driver has started.
func moved(from, to config.Node) error {
	for key, dirs := range map[string][2]string{
		"stateDir": {from.StateDir, to.StateDir}, "deviceInfoDir": {from.DeviceInfoDir, to.DeviceInfoDir}, "devicePluginDir": {from.DevicePluginDir, to.DevicePluginDir},
		"cdiDir": {from.CDIDir, to.CDIDir}, "sysfs": {from.Sysfs, to.Sysfs},
	} {
		if dirs[0] != dirs[1] {
			return fmt.Errorf("the node settings changed %s from %s to %s: the driver must restart to use it", key, dirs[0], dirs[1])
		}
	}
	return nil
}

// newAgent prepares the node for the agent and returns it. Beside another driver it changes nothing.
func newAgent(o *options, node config.Node, bootID string, client kubernetes.Interface, registry prometheus.Registerer, log *slog.Logger) (*dra.Agent, error) {
	alone, err := state.Open(o.stateDir())
	if err != nil {
		return nil, err
	}
	prepared, err := o.agent(node, bootID, client, registry, log)
	if err = errors.Join(err, alone.Close()); err != nil {
		return nil, err
	}
	return claim.New(prepared) // which locks the directory again
}

// agent installs the gate program, records the offer for devinfoctl, and returns the options of the agent.
func (o *options) agent(node config.Node, bootID string, client kubernetes.Interface, registry prometheus.Registerer, log *slog.Logger) (agent claim.Options, err error) {
	sys, err := o.sysfs(node)
	if err != nil {
		return agent, err
	}
	if err := errors.Join(o.checkMounts(link.NetnsDir), o.keepGate(log)); err != nil {
		return agent, err
	}
	offered, err := o.inventory(sys)
	if err != nil {
		return agent, err
	}
	if offered != nil {
		offered.Labels = dra.ReadLabels(client, o.nodeName)
	}
	own, held := o.own(node, sys, bootID)
	if held != nil {
		if err := errors.Join(held.EnsureDir(), state.Announce(filepath.Join("/", o.hostRoot, node.StateDir), o.stateDir())); err != nil {
			return agent, err
		}
	}
	kernel := link.NewKernel(sys.Files())
	return claim.Options{
		Driver: driver, Policy: cniconfig.Policy{Driver: driver, Pool: o.nodeName, AllowClaimTypes: o.allowed},
		Dirs:     o.dirs(node),
		Retries:  claim.Retries{DelMaxFailures: o.delMaxFailures, DelMinRetryTime: o.delMinRetryTime},
		HostRoot: o.hostRoot, Gate: filepath.Join(o.cniBinDir, gateName), BootID: bootID,
		Netns: link.CheckNetns, Unexposed: store.UnexposedBelow,
		Status:   func(ctx context.Context, r status.Report) error { return status.Apply(ctx, client, r) },
		Read:     dra.ReadClaim(client),
		ClaimsOf: dra.ClaimsOf(client),
		Notify:   dra.PostNotices(client, driver, o.nodeName, log),
		Metrics:  registry, Log: log,
		Devices: devices.Options{
			Inventory: offered, NUMANode: numaForms[o.numaNode], Custody: own, Journal: held, Lineage: sys.Lineage,
			Finder:          &discovery.Finder{Sys: sys, Interfaces: kernel, Eswitches: kernel},
			DeviceNodes:     grant.NodesBelow(o.hostRoot),
			Settings:        func() (config.Node, error) { return config.LoadNode(o.nodeConfig) },
			DevicePluginDir: node.DevicePluginDir,
			Advertised: func(ctx context.Context, resource, device string) (bool, error) {
				return podresources.Advertised(ctx, o.podResourcesSocket(), resource, device)
			},
		},
	}, nil
}

// dirs are the directories of the driver.
func (o *options) dirs(node config.Node) claim.Dirs {
	return claim.Dirs{
		StateDir: o.stateDir(), CacheDir: filepath.Join(o.pluginDir(), "cni"),
		CDIDir: node.CDIDir, DeviceInfoDir: node.DeviceInfoDir, CNIBinDirs: filepath.SplitList(cmp.Or(o.cniPath, o.cniBinDir)),
	}
}

// own returns the access to the node's devices and the journal of leases. With --capture it returns nil for both,
// because devices of this node may have the addresses of captured ones.
func (o *options) own(node config.Node, sys *sysfs.FS, bootID string) (*restore.Devices, *journal.Journal) {
	if o.captureFile != "" {
		return nil, nil
	}
	j := o.journal(node, bootID)
	j.SRIOVLocks = filepath.Join("/", o.hostRoot, journal.SRIOVLocks)
	return restore.New(sys, sysfs.Writer(node.Sysfs), settings.Kernel{Kernel: link.NewKernel(sys.Files()), Proc: "/proc"}), j
}

func (o *options) journal(node config.Node, bootID string) *journal.Journal {
	return journal.Open(filepath.Join("/", o.hostRoot, node.StateDir), bootID)
}

// checkMounts returns an error in a container that does not see the runtime's mounts in dir. Without them, the
// driver would take each network namespace for deleted, and detach pods that still run.
func (o *options) checkMounts(dir string) error {
	if o.hostRoot == "" {
		return nil
	}
	sees, err := link.SeesMounts(dir)
	if err == nil && !sees {
		err = fmt.Errorf("%s: the container does not see the network namespaces that the runtime mounts there: mount the directory with mountPropagation: HostToContainer", dir)
	}
	return store.UnlessGone(err) // a runtime that uses a different directory is checked by RunPodSandbox
}

// errUnused ends a driver that is to be uninstalled.
var errUnused = errors.New("no claim is on record")

// uninstall removes the driver's files from the node. With --keep-running it first serves the claims on record,
// because the kubelet needs the driver to delete their pods.
func uninstall(ctx context.Context, o *options, client kubernetes.Interface, log *slog.Logger) error {
	i, err := o.installation(client, log)
	if err != nil {
		return err
	}
	err = i.Uninstall(ctx, o.force)
	if errors.Is(err, dra.ErrInUse) && o.keepRunning {
		log.Warn("not uninstalled yet", "error", err)
		if err = serve(ctx, o, client, log); errors.Is(err, errUnused) {
			err = i.Uninstall(ctx, false)
		}
	}
	if err != nil {
		return fmt.Errorf("--uninstall: %w", err)
	}
	if ctx.Err() != nil {
		return nil
	}
	log.Info("uninstalled")
	if o.keepRunning {
		done := httpstatus.Check{Name: "uninstalled", Ask: func() error { return nil }}
		defer httpstatus.Serve(ctx, o.metricsAddress, prometheus.NewRegistry(), log, done)()
		<-ctx.Done()
	}
	return nil
}

func (o *options) installation(client kubernetes.Interface, log *slog.Logger) (i dra.Installation, err error) {
	node, bootID, err := o.node()
	bin := filepath.Join("/", o.hostRoot, o.cniBinDir)
	return dra.Installation{
		Driver: driver, Node: o.nodeName, Client: client,
		PluginDir: o.pluginDir(), RegistrarDir: o.registrarDir, Dirs: o.dirs(node),
		Gate: filepath.Join(bin, gateName), Plugin: &install.PluginFile{Dir: bin},
		Settings: &install.Settings{To: filepath.Join("/", o.hostRoot, o.nodeConfig)},
		Journal:  o.journal(node, bootID), Log: log,
	}, err
}

// awaitUnused returns once no claim has been on record for o.linger.
func (o *options) awaitUnused(ctx context.Context, agent *dra.Agent) {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < o.linger; {
		select {
		case <-time.After(o.linger / 10):
		case <-ctx.Done():
		}
		if dra.InUse(agent.Records()) != nil {
			began = time.Now()
		}
	}
}
