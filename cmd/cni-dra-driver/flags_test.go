package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestOnlyNodeNameIsRequired(t *testing.T) {
	var o options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.add(flags)
	difftest.Must(t, flags.Parse([]string{"--node-name=n1"}), o.check(flags))
	difftest.Same(t, "options", o, options{
		nodeName: "n1", pluginsDir: "/var/lib/kubelet/plugins", registrarDir: "/var/lib/kubelet/plugins_registry",
		nodeConfig: "/etc/cni/devinfo/node.json", cniBinDir: "/opt/cni/bin",
		nriSocket: "/var/run/nri/nri.sock", nriIndex: "50", podResources: "/var/lib/kubelet/pod-resources/kubelet.sock", logFormat: "text",
		delMaxFailures: 5, delMinRetryTime: 2 * time.Minute, carrierGrace: time.Minute, numaNode: "scalar",
	}, cmp.AllowUnexported(options{}))
}

func TestErrorNamesEachWrongFlagOrRefersToHelp(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	goldentest.Lines(t, "testdata/flags.txt", func(line string) []string {
		cmd := command()
		cmd.SetArgs(strings.Fields(line))
		err := cmd.Execute()
		refused := difftest.As[*clierr.Error](t, err)
		difftest.Equal(t, refused.Code, clierr.Usage)
		return strings.Split(err.Error()+"; "+refused.Remedy, "\n")
	})
}
