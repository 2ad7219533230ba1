package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/httpstatus/httpstatustest"
	"devinfo-cni.io/pkg/ctl/commandline"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
	"devinfo-cni.io/test/undertest"
)

func TestMain(m *testing.M) { undertest.Temp(m) }

// node is a directory with the files of a node.
type node struct {
	t     testing.TB
	dir   string
	agent string // path of devinfo-agent, with the plugin beside it
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t, t.TempDir(), filepath.Join(undertest.Once(t, "v1.2.0", ".", "../devinfo"), "devinfo-agent")}
	n.must(os.Mkdir(n.at("bin"), 0o755))
	n.settings("")
	return n
}

// settings writes the node's settings: the keys with the test's directories, then the JSON in more.
func (n *node) settings(more string) {
	n.t.Helper()
	text := fmt.Sprintf(`{"stateDir": %q, "deviceInfoDir": %q, "cdiDir": %q%s}`, n.at("state"), n.at("info"), n.at("cdi"), more)
	difftest.Write(n.t, n.at("settings/n1.json"), text, 0o644)
}

func (n *node) at(name string) string { return filepath.Join(n.dir, name) }

func (n *node) must(err error) {
	n.t.Helper()
	difftest.Must(n.t, err)
}

// command returns the command of an agent that writes its log to the test's output.
func (n *node) command(flags ...string) *exec.Cmd {
	n.t.Helper()
	all := append([]string{
		"--node-name=n1", "--cni-bin-dir=" + n.at("bin"), "--settings-dir=" + n.at("settings"), "--node-config=" + n.at("etc/node.json"),
		"--run-dir=" + n.at("run"), "--nri-socket=" + n.at("nri.sock"),
	}, flags...)
	cmd := exec.Command(n.agent, all...)
	cmd.Stdout, cmd.Stderr = n.t.Output(), n.t.Output()
	cmd.WaitDelay = time.Minute
	return cmd
}

// start starts an agent. The test's cleanup kills it if it still runs.
func (n *node) start(flags ...string) *exec.Cmd {
	n.t.Helper()
	cmd := n.command(flags...)
	n.must(cmd.Start())
	n.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// An agent with --keep-running stays ready after the uninstallation. The test also holds an flock on run-dir,
// which must not block the agents, because every user who can read the directory can take that flock.
func TestRollingUpdateAndUninstall(t *testing.T) {
	n := newNode(t)
	n.must(os.Mkdir(n.at("run"), 0o755))
	storetest.Lock(t, n.at("run"))
	first, second := httpstatustest.Free(t), httpstatustest.Free(t)
	one := n.start("--metrics-address=" + first)
	httpstatustest.WaitHealth(t, first, "200 ", "[+] lock", "[+] settings-dir\n", "[+] plugin", "[+] settings\n", "[+] gc", "[+] attachments")
	text, err := httpstatustest.Get(first, "/metrics")
	n.must(err)
	difftest.Contains(t, text, `devinfo_plugin_info{journal_format="3",version="v1.2.0"} 1`)
	two := n.start("--metrics-address=" + second)
	httpstatustest.WaitHealth(t, second, "503 ", "[-] lock: another devinfo-agent runs on this node", "[-] plugin: has not started yet")

	n.must(one.Process.Signal(syscall.SIGTERM))
	n.must(one.Wait()) // fails unless the exit code is 0
	httpstatustest.WaitHealth(t, second, "[+] lock", "[+] plugin")
	n.must(two.Process.Signal(syscall.SIGTERM))
	n.must(two.Wait())

	for _, name := range []string{"bin/devinfo", "etc/node.json"} {
		_, err := os.Stat(n.at(name))
		n.must(err)
	}
	last := n.start("--metrics-address="+first, "--uninstall", "--keep-running")
	httpstatustest.WaitHealth(t, first, "200 ", "[+] uninstalled")
	n.must(last.Process.Signal(syscall.SIGTERM))
	n.must(last.Wait())
	difftest.Holds(t, n.at("bin"))
	difftest.Holds(t, n.at("etc"))
	n.must(n.command("--uninstall").Run()) // a second uninstallation succeeds
}

func TestExitCodeDistinguishesInvalidFlags(t *testing.T) {
	n := newNode(t)
	const see = "\n  see devinfo-agent --help\n"
	for flag, says := range map[string]string{
		"--gc-interval=1ms": see, "run": see, "--run-dir=/proc/none": "--run-dir: mkdir /proc/none: ",
		"--host-root=/none":     "--host-root: stat /none: no such file or directory: set it to the directory where the host's root filesystem is mounted",
		"--host-root=/dev/null": "--host-root: /dev/null is no directory (mode Dcrw-rw-rw-): set it to",
		"--device-root=/none":   "--device-root: stat /none/dev: no such file or directory: set it to the directory under which the host's /dev is mounted",
	} {
		cmd, code := n.command(flag), map[bool]int{true: clierr.Usage, false: commandline.Failed}[says == see]
		var text bytes.Buffer
		cmd.Stderr = &text
		if _ = cmd.Run(); cmd.ProcessState.ExitCode() != code || !strings.Contains(text.String(), says) {
			t.Errorf("%q: %v, want %d and %q: %s", flag, cmd.ProcessState, code, says, &text)
		}
	}
}

func TestUninstallReportsARunningAgent(t *testing.T) {
	n := newNode(t)
	address := httpstatustest.Free(t)
	n.start("--metrics-address=" + address)
	httpstatustest.WaitHealth(t, address, "[+] plugin")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // like SIGTERM
	flags := []string{"--node-config=" + n.at("etc/node.json"), "--cni-bin-dir=" + n.at("bin"), "--run-dir=" + n.at("run")}
	o, err := parsed(t, append(flags, "--inject=false")...)
	difftest.Must(t, err, run(ctx, o, commandline.Logger(o.logFormat, o.verbosity))) // it only waits
	difftest.Equal(t, []bool{o.Settings == nil, o.Injection == nil}, []bool{true, true})
	o, err = parsed(t, append(flags, "--uninstall")...)
	n.must(err)
	difftest.Says(t, run(ctx, o, commandline.Logger(o.logFormat, o.verbosity)),
		"--uninstall: another devinfo-agent runs on this node: it holds the lock "+n.at("run/lock")+": delete its DaemonSet first")
}

// parsed returns the options of a command line, and the errors of check.
func parsed(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	var o options
	cmd := cobra.Command{}
	o.add(cmd.Flags())
	difftest.Must(t, cmd.Flags().Parse(args))
	return &o, o.check(cmd.Flags())
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
	goldentest.Lines(t, "testdata/flags.txt", func(args string) []string {
		if _, err := parsed(t, strings.Fields(args)...); err != nil {
			return strings.Split(err.Error(), "\n")
		}
		return nil
	})
}
