package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/build"
)

// programs has agent and plugin, built once.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "devinfo-agent-")
	if err != nil {
		panic(err)
	}
	programs = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func built(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(programs, "devinfo-agent")); err == nil {
		return
	}
	cmd := exec.Command("go", "build", "-ldflags", "-s -w -X devinfo-cni.io/pkg/build.version=v1.2.0", "-o", programs+"/", ".", "../devinfo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// node is where agents run: a directory with what a node has.
type node struct {
	t   *testing.T
	dir string
}

func newNode(t *testing.T) *node {
	t.Helper()
	built(t)
	n := &node{t, t.TempDir()}
	for _, name := range []string{"bin", "settings"} {
		n.must(os.Mkdir(n.at(name), 0o755))
	}
	settings := fmt.Sprintf(`{"stateDir": %q, "deviceInfoDir": %q, "cdiDir": %q}`, n.at("state"), n.at("info"), n.at("cdi"))
	n.must(os.WriteFile(n.at("settings/n1.json"), []byte(settings), 0o644))
	return n
}

func (n *node) at(name string) string { return filepath.Join(n.dir, name) }

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// command is an agent's, whose log is the test's.
func (n *node) command(flags ...string) *exec.Cmd {
	n.t.Helper()
	all := append([]string{
		"--node-name=n1", "--cni-bin-dir=" + n.at("bin"), "--settings-dir=" + n.at("settings"), "--node-config=" + n.at("etc/node.json"),
		"--run-dir=" + n.at("run"), "--nri-socket=" + n.at("nri.sock"),
	}, flags...)
	cmd := exec.Command(filepath.Join(programs, "devinfo-agent"), all...)
	cmd.Stdout, cmd.Stderr = n.t.Output(), n.t.Output()
	cmd.WaitDelay = time.Minute
	return cmd
}

// start starts an agent, and has it ended with the test at the latest.
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

// health asks an agent until it says all of that.
func (n *node) health(address string, says ...string) {
	n.t.Helper()
	text := ""
	for limit := time.Now().Add(3 * time.Minute); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		text, _ = get(address, "/healthz")
		missing := false
		for _, s := range says {
			missing = missing || !strings.Contains(text, s)
		}
		if !missing {
			return
		}
	}
	n.t.Fatalf("/healthz of %s does not say %q:\n%s", address, says, text)
}

func get(address, path string) (string, error) {
	answer, err := http.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.Status + "\n" + string(text), err
}

// free is an address that nobody uses.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// A rolling update, and the end.
func TestARealAgentIsFollowedByTheNextAndUninstalled(t *testing.T) {
	n := newNode(t)
	first, second := free(t), free(t)
	one := n.start("--metrics-address=" + first)
	n.health(first, "[+] lock", "[+] plugin", "[+] settings", "[+] sweep", "[+] attachments")
	if text, err := get(first, "/metrics"); err != nil || !strings.Contains(text, `devinfo_plugin_info{journal_format="2",version="v1.2.0"} 1`) {
		t.Errorf("%v\n%s", err, text)
	}
	two := n.start("--metrics-address=" + second)
	n.health(second, "503 ", "[-] lock: another devinfo-agent runs on this node", "[-] plugin: has not begun")

	n.must(one.Process.Signal(syscall.SIGTERM))
	n.must(one.Wait()) // and with that exit code 0
	n.health(second, "[+] lock", "[+] plugin")
	n.must(two.Process.Signal(syscall.SIGTERM))
	n.must(two.Wait())

	for _, name := range []string{"bin/devinfo", "etc/node.json"} {
		_, err := os.Stat(n.at(name))
		n.must(err)
	}
	n.must(n.command("--uninstall").Run())
	n.must(n.command("--uninstall").Run()) // a Job may be run again
	for _, dir := range []string{"bin", "etc"} {
		if left, err := os.ReadDir(n.at(dir)); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
}

func TestAnAgentWorksWithoutItsMetricsAndServesThemLater(t *testing.T) {
	n := newNode(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	n.must(err)
	address := taken.Addr().String()
	n.start("--metrics-address=" + address)
	for limit := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(n.at("bin/devinfo")); err == nil {
			break
		} else if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
	n.must(taken.Close())
	n.health(address, "[+] plugin")
}

func TestExitCodesTellTheCommandLineFromTheRest(t *testing.T) {
	n := newNode(t)
	for want, flags := range map[int][]string{
		exitUsage:  {"--check-interval=1ms"},
		exitFailed: {"--run-dir=/proc/none"},
	} {
		cmd := n.command(flags...)
		if _ = cmd.Run(); cmd.ProcessState.ExitCode() != want {
			t.Errorf("%q: %v, want %d", flags, cmd.ProcessState, want)
		}
	}
}

func TestItSaysItsVersionAsAllProgramsDo(t *testing.T) {
	built(t)
	for _, arg := range []string{"version", "--version"} {
		out, err := exec.Command(filepath.Join(programs, "devinfo-agent"), arg).Output()
		if want := "devinfo-agent " + (build.Info{Version: "v1.2.0", Go: runtime.Version()}).String() + "\n"; err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; want %q", arg, out, err, want)
		}
	}
}

func TestAnUninstallDoesNotWaitForEver(t *testing.T) {
	n := newNode(t)
	address := free(t)
	n.start("--metrics-address=" + address)
	n.health(address, "[+] plugin")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as SIGTERM does
	o := options{runDir: n.at("run"), uninstall: true, cniBinDir: n.at("bin"), nodeConfig: n.at("etc/node.json"), plugin: n.at("none")}
	err := run(ctx, &o, logger(&o))
	if err == nil || !strings.Contains(err.Error(), "--uninstall: another devinfo-agent runs on this node: it has "+n.at("run")+" locked: delete its DaemonSet first") {
		t.Errorf("got %v", err)
	}
}
