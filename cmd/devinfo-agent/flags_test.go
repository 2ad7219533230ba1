package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/difftest"
)

// parsed returns the options of a command line, and the errors of check.
func parsed(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	var o options
	cmd := cobra.Command{}
	o.add(cmd.Flags())
	difftest.Must(t, cmd.Flags().Parse(args))
	return &o, o.check()
}

func TestDefaultsAreValid(t *testing.T) {
	t.Setenv("NODE_NAME", "n1")
	o, err := parsed(t)
	if err != nil || o.Settings.Node != "n1" || o.Plugin.Dir != "/opt/cni/bin" || !o.inject {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestErrorsNameInvalidFlags(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for args, want := range map[string]string{
		"--settings-dir=/s":                             "--settings-dir requires the node's name",
		"--node-name=../n":                              `--node-name: "../n" is not a node name`,
		"--nri-plugin-index=5":                          `--nri-plugin-index: "5" must be two digits`,
		"--missing-info=maybe":                          `--missing-info: "maybe" must be allow or reject`,
		"--log-format=xml":                              `--log-format: "xml" must be text or json`,
		"--metrics-address=9810":                        `--metrics-address: "9810" must be host:port`,
		"--gc-interval=10ms":                            `--gc-interval: "10ms" must be 0 or at least 1s`,
		"--inject-namespaces=a,[":                       `--inject-namespaces: "[" must be a namespace, or a pattern`,
		"--keep-running":                                "--keep-running requires --uninstall and --metrics-address",
		"--force":                                       "--force requires --uninstall: give both",
		"--metrics-address=:98100":                      `--metrics-address: ":98100" must be host:port`,
		"--metrics-address=:metrics":                    `--metrics-address: ":metrics" must be host:port`,
		"--keep-running --uninstall":                    "--keep-running requires --uninstall and --metrics-address",
		"--cni-bin-dir=bin":                             `--cni-bin-dir: "bin" is not an absolute path`,
		"--cni-path=/a:b":                               `--cni-path: "b" is not an absolute path`,
		"--run-dir=":                                    `--run-dir: "" is not an absolute path`,
		"--host-root=host --run-dir=run":                `--host-root: "host" is not an absolute path` + "\n" + `--run-dir: "run" is not an absolute path`,
		"--gc-interval=0 --host-root=/ --node-name=a.b": "",
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
