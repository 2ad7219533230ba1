package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/test/difftest"
)

// parse parses and checks a command line.
func parse(t *testing.T, args ...string) (options, error) {
	t.Helper()
	var o options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.add(flags)
	must(t, flags.Parse(args))
	return o, o.check()
}

func TestOnlyNodeNameIsRequired(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	if _, err := parse(t); err == nil {
		t.Error("not even that")
	}
	t.Setenv("NODE_NAME", "n1")
	got, err := parse(t)
	want := options{
		nodeName: "n1", pluginsDir: "/var/lib/kubelet/plugins", registrarDir: "/var/lib/kubelet/plugins_registry",
		nodeConfig: "/etc/cni/devinfo/node.json", cniBinDir: "/opt/cni/bin",
		nriSocket: "/var/run/nri/nri.sock", nriIndex: "50", podResources: "/var/lib/kubelet/pod-resources/kubelet.sock", logFormat: "text",
		delMaxFailures: 5, delMinRetryTime: 2 * time.Minute, carrierGrace: time.Minute, numaNode: "scalar",
	}
	must(t, err)
	difftest.Same(t, "options", got, want, cmp.AllowUnexported(options{}))
}

func TestErrorNamesEachWrongFlagAndItsValue(t *testing.T) {
	_, err := parse(t, "--node-name=", "--max-attachments=-1", "--del-max-failures=0", "--del-min-retry-time=-1s", "--nri-plugin-index=5", "--allow-claim-config=macvlan,*,../sh", "--log-format=xml",
		"--metrics-address=:98090", "--kubelet-plugins-dir=a", "--kubelet-registrar-dir=", "--node-config=b", "--nri-socket=c", "--cdi-dir=d",
		"--host-root=e", "--kubeconfig=f", "--cni-bin-dir=bin", "--cni-path=/ok:g", "--capture=h", "--evict-lost", "--carrier-grace=5m", "--numa-node=both", "--force", "--keep-running")
	if err == nil {
		t.Fatal("no error")
	}
	difftest.Equal(t, strings.Split(err.Error(), "\n"), []string{
		`--node-name: give the name of the Node object, or set NODE_NAME`,
		`--max-attachments: "-1" must be 0 or more`,
		`--del-max-failures: "0" must be 1 or more`,
		`--del-min-retry-time: "-1s" must be 0 or more`,
		`--nri-plugin-index: "5" must be two digits, such as 50`,
		`--allow-claim-config: "*" must be a CNI plugin type such as macvlan; wildcards are not supported`,
		`--allow-claim-config: "../sh" must be a CNI plugin type such as macvlan; wildcards are not supported`,
		`--capture: "h" has no effect without --devices: give both, or neither`,
		`--evict-lost: "true" has no effect without --devices: give both, or neither`,
		`--carrier-grace: "5m0s" has no effect without --devices: give both, or neither`,
		`--numa-node: "both" must be scalar or list`,
		`--force: goes with --uninstall: give both`,
		`--keep-running: goes with --uninstall and --metrics-address: give both`,
		`--log-format: "xml" must be text or json`,
		`--metrics-address: ":98090" must be host:port, such as 127.0.0.1:9809 or :9809`,
		`--kubelet-plugins-dir: "a" is not an absolute path`,
		`--kubelet-registrar-dir: "" is not an absolute path`,
		`--node-config: "b" is not an absolute path`,
		`--nri-socket: "c" is not an absolute path`,
		`--cdi-dir: "d" is not an absolute path`,
		`--host-root: "e" is not an absolute path`,
		`--kubeconfig: "f" is not an absolute path`,
		`--capture: "h" is not an absolute path`,
		`--cni-bin-dir: "bin" is not an absolute path`,
		`--cni-path: "g" is not an absolute path`,
	})
}

func TestHelpExplainsTrustOfAllowedTypes(t *testing.T) {
	help := command().Flag("allow-claim-config").Usage
	difftest.Contains(t, help, "root on this node", "dataDir", "IPAM")
}

func TestInvalidCommandLineRefersToHelp(t *testing.T) {
	for line, want := range map[string]string{
		"--nope":            "unknown flag: --nope; see cni-dra-driver --help",
		"inventori":         `unknown command "inventori"; did you mean inventory? See cni-dra-driver --help`,
		"--node-name=":      "--node-name: give the name of the Node object, or set NODE_NAME; see cni-dra-driver --help",
		"clear":             "clear: CLAIM-UID is missing; see cni-dra-driver clear --help",
		"inventory x":       `inventory: unexpected argument "x"; see cni-dra-driver inventory --help`,
		"inventory -o wide": `--output: unknown value "wide"; give one of table, json, yaml`,
	} {
		cmd := command()
		cmd.SetArgs(strings.Fields(line))
		err, refused := cmd.Execute(), new(clierr.Error)
		if !errors.As(err, &refused) || refused.Code != clierr.Usage || err.Error()+"; "+refused.Remedy != want {
			t.Errorf("%s: got %v; %s", line, err, refused.Remedy)
		}
	}
}
