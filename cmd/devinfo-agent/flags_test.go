package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// parsed are the options of a command line, and what is wrong with them.
func parsed(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	var o options
	flags := pflag.NewFlagSet("devinfo-agent", pflag.ContinueOnError)
	o.add(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &o, o.check()
}

func TestDefaultsMakeSense(t *testing.T) {
	t.Setenv("NODE_NAME", "n1")
	o, err := parsed(t)
	if err != nil || o.nodeName != "n1" || o.cniBinDir != "/opt/cni/bin" || !o.inject {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestEveryFlagThatMakesNoSenseIsNamed(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for args, want := range map[string]string{
		"--settings-dir=/s":                                "--node-name: --settings-dir needs the name of the node",
		"--node-name=../n":                                 `--node-name: "../n" is no name of a node`,
		"--nri-plugin-index=5":                             `--nri-plugin-index: "5" must be two digits`,
		"--when-missing=maybe":                             `--when-missing: "maybe" must be pass or refuse`,
		"--log-format=xml":                                 `--log-format: "xml" must be text or json`,
		"--metrics-address=9810":                           `--metrics-address: "9810" must be host:port`,
		"--max-attachment-series=-1":                       `--max-attachment-series: "-1" is less than 0`,
		"--check-interval=0s":                              `--check-interval: "0s" is less than 1s`,
		"--sweep-interval=10ms":                            `--sweep-interval: "10ms" is less than 1s`,
		"--cni-bin-dir=bin":                                `--cni-bin-dir: "bin" is not an absolute path`,
		"--cni-path=/a:b":                                  `--cni-path: "b" is not an absolute path`,
		"--run-dir=":                                       `--run-dir: "" is not an absolute path`,
		"--host-root=host --plugin=devinfo":                `--plugin: "devinfo" is not an absolute path` + "\n" + `--host-root: "host" is not an absolute path`,
		"--sweep-interval=0 --host-root=/ --node-name=a.b": "",
	} {
		_, err := parsed(t, strings.Fields(args)...)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

// Manifests name them.
func TestFlagsHaveADescriptionEach(t *testing.T) {
	var o options
	flags := pflag.NewFlagSet("devinfo-agent", pflag.ContinueOnError)
	o.add(flags)
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		names = append(names, f.Name)
		if f.Usage == "" {
			t.Errorf("--%s has none", f.Name)
		}
	})
	if len(names) < 20 || !slices.Contains(names, "uninstall") {
		t.Errorf("%q", names)
	}
}
