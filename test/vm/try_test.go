//go:build vm

package vm_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/test/goldentest"
)

// try runs devinfo-try, which is beside the tests, and returns its exit status and what it prints.
func try(t *testing.T, env []string, args ...string) (status int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tryProgram, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// tryProgram is in memory like the plugins.
const tryProgram = plugins + "/devinfo-try"

// The functions of the machine: on igbvf, two of one PF; on virtio-pci, on vp-vdpa with a vDPA device, and on vfio-pci.
var tried = []string{"0000:41:10.0", "0000:41:10.2", "0000:02:00.1", "0000:02:00.2", "0000:01:10.6"}

// The output here is the reference for owners of real NICs, and the report is a capture.
func TestTryPassesOnEachDevice(t *testing.T) {
	needs(t, "igb", "vpvdpa")
	t.Cleanup(func() { vfsBack(t) })
	report := t.TempDir() + "/report.txtar"
	status, said := try(t, nil, append([]string{"--yes", "-o", report}, tried...)...)
	if said = strings.ReplaceAll(said, report, "REPORT"); status != 0 {
		t.Errorf("exit status %d", status)
	}
	goldentest.File(t, "tryhardware/qemu.txt", said)
	host, err := capturefile.Load(report)
	must(t, err)
	var trial struct {
		Results []struct{ Outcome, Facts string }
	}
	must(t, json.Unmarshal(host.File("node/trial.json"), &trial))
	if len(trial.Results) < 40 {
		t.Errorf("the report has %d results", len(trial.Results))
	}
	if kept := os.Getenv("DEVINFO_VM_KEEP"); kept != "" {
		must(t, os.WriteFile(kept, []byte(read(t, report)+"\n"), 0o644))
	}
	status, said = try(t, nil)
	if status != 0 || !strings.Contains(said, "lose their PF") {
		t.Errorf("the list: %d %s", status, said)
	}
}

// A whole function that nothing needs passes too. It stays on its driver.
func TestTryPassesOnPF(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	const pf = "0000:41:00.0"
	write(t, "/sys/bus/pci/devices/"+pf+"/sriov_numvfs", "0")
	if status, said := try(t, nil, "--yes", "-o", t.TempDir()+"/report.txtar", pf, pf); status != 0 || strings.Count(said, " passed\n") != 7 {
		t.Errorf("exit status %d, want 0 and 7 checks:\n%s", status, said)
	}
}

// A defect is a mistake built into a plugin, by a script around it, or into the machine while devinfo-try runs.
type defect struct {
	name   string
	only   string // check that must find it
	plugin string // plugin of the script
	script string // runs the plugin by real; "" = the plugin is right
	during string // a command that runs until the end of the run
	want   string // in the reason of the failure
}

var defects = []defect{
	{name: "wrong representor", only: "without", plugin: "devinfo", script: `real; sed -i 's/"pf-pci-address"/"representor-device": "enp1s0", "pf-pci-address"/' "$FILE"`, want: `"representor-device":"enp1s0"`},
	{name: "wrong PF", only: "without", plugin: "devinfo", script: `real; sed -i 's/0000:41:00.0/0000:01:00.0/' "$FILE"`, want: `expected {"pci":{"pci-address":"0000:41:10.0","pf-pci-address":"0000:41:00.0"}`},
	{name: "RDMA device of another function", only: "without", plugin: "devinfo", script: `real; sed -i 's/"pf-pci-address"/"rdma-device": "rxe0", "pf-pci-address"/' "$FILE"`, want: `"rdma-device":"rxe0"`},
	{name: "no file", only: "without", plugin: "devinfo", script: `real; rm -f "$FILE"`, want: "device-info file"},
	{name: "file left by DEL", only: "without", plugin: "devinfo", script: `cp "$FILE" /tmp/kept 2>/dev/null; real; [ $CNI_COMMAND != DEL ] || cp /tmp/kept "$FILE"`, want: "DEL has left"},
	{name: "CHECK fails", only: "without", plugin: "devinfo", script: `[ $CNI_COMMAND != CHECK ] || exit 1; real`, want: "CHECK: "},
	{name: "wrong PCI address in the result", only: "by deviceID, after", plugin: "devinfo", script: `real | sed 's/"pciID":"0000:41:10.0"/"pciID":"0000:41:10.2"/; s/"pciID": "0000:41:10.0"/"pciID": "0000:41:10.2"/'`, want: "pciID in the result"},
	{name: "MAC not restored", only: "by deviceID, after", plugin: "host-device", script: `real; [ $CNI_COMMAND != DEL ] || ip link set enp65s0v0 address 02:00:00:00:00:99`, want: "now 02:00:00:00:00:99"},
	{name: "MTU not restored", only: "by its interface", plugin: "host-device", script: `real; [ $CNI_COMMAND != DEL ] || ip link set enp65s0v0 mtu 1300`, want: "MTU: 1500 before, now 1300"},
	{name: "the device below a macvlan is not found", only: "macvlan", plugin: "devinfo", script: `real; rm -f "$FILE"`, want: "device-info file"},
	{name: "not back from vfio-pci", only: "vfio", during: `while :; do [ "$(basename "$(readlink /sys/bus/pci/devices/0000:41:10.0/driver)")" = igbvf ] || break; done; while :; do echo none >/sys/bus/pci/devices/0000:41:10.0/driver_override; done`, want: "not as before"},
}

func TestTryFindsDefects(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	const vf = "0000:41:10.0"
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			before := portrait(t, vf, "enp65s0", 0)
			report := t.TempDir() + "/report.txtar"
			env := []string{"DEVINFO_TRY_PATIENCE=15s"}
			if d.script != "" {
				env = append(env, "DEVINFO_TRY_PLUGINS="+d.plugins(t))
			}
			var disturber *exec.Cmd
			if d.during != "" {
				disturber = exec.Command("sh", "-c", d.during)
				must(t, disturber.Start())
			}
			status, said := try(t, env, "--yes", "-o", report, "--only", d.only, vf)
			if disturber != nil {
				must(t, disturber.Process.Kill())
				_ = disturber.Wait()
			}
			if status != 1 || !strings.Contains(said, "failed: ") || !strings.Contains(said, d.want) {
				t.Errorf("exit status %d, want 1 and %q:\n%s", status, d.want, said)
			}
			if status, said := try(t, nil, "--restore"); status != 0 {
				t.Errorf("--restore: %d %s", status, said)
			}
			must(t, os.RemoveAll("/var/lib/devinfo-try"))
			same(t, "the VF", portrait(t, vf, "enp65s0", 0), before)
		})
	}
}

// plugins returns a directory with the plugins of devinfo-try, one of them with the defect.
func (d defect) plugins(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"devinfo", "host-device", "macvlan"} {
		must(t, os.Symlink(plugins+"/"+name, dir+"/"+name))
	}
	must(t, os.Remove(dir+"/"+d.plugin))
	script := "#!/bin/sh\ncat >/tmp/stdin.$$\nFILE=$(sed -n 's/.*\"CNIDeviceInfoFile\":\"\\([^\"]*\\)\".*/\\1/p' /tmp/stdin.$$)\nreal() { " + plugins + "/" + d.plugin + " </tmp/stdin.$$; }\n" + d.script + "\nexit 0\n"
	must(t, os.WriteFile(dir+"/"+d.plugin, []byte(script), 0o755))
	return dir
}

// killings are the checks within which devinfo-try is killed.
var killings = []string{"by deviceID, after", "delegate", "killed", "macvlan", "restored", "bound again", "bound to vfio"}

// Whenever devinfo-try is killed, --restore brings the function back. Interrupted, it does that itself. DEVINFO_VM_KILLS is the
// number of kills, one within each check in turn.
func TestTryIsKilled(t *testing.T) {
	needs(t, "igb")
	kills := kills(t)
	t.Cleanup(func() { vfsBack(t) })
	const vf = "0000:41:10.0"
	_, _, _, unchanged := kept(t, vf, "enp65s0v0", "enp65s0", 0)
	before, done, longest := portrait(t, vf, "enp65s0", 0), map[string]int{}, map[string]time.Duration{}
	random := rand.New(rand.NewPCG(1, uint64(kills)))
	for n := range kills {
		args := []string{"--yes", "-o", t.TempDir() + "/report.txtar", "--only", killings[n%len(killings)], vf}
		begin := func() *exec.Cmd {
			cmd := exec.Command(tryProgram, args...)
			must(t, cmd.Start())
			eventually(t, "the run has begun", func() bool { return exists("/var/lib/devinfo-try/run.json") || ended(cmd.Process.Pid) })
			return cmd
		}
		if longest[args[4]] == 0 {
			cmd, began := begin(), time.Now()
			must(t, cmd.Wait())
			longest[args[4]] = time.Since(began)
		}
		cmd := begin()
		for deadline := time.Now().Add(time.Duration(random.Int64N(int64(longest[args[4]])))); time.Now().Before(deadline) && !ended(cmd.Process.Pid); {
			time.Sleep(20 * time.Millisecond)
		}
		now, signal := portrait(t, vf, "enp65s0", 0), os.Kill
		if n%5 == 4 {
			signal = os.Interrupt
		}
		_ = cmd.Process.Signal(signal)
		_ = cmd.Wait()
		what := fmt.Sprintf("%s, %v, changed %v", args[4], signal, now != before)
		t.Log(n, what)
		done[what]++
		if signal == os.Interrupt && exists("/var/lib/devinfo-try/run.json") {
			t.Errorf("kill %d: the interrupted run has not ended", n)
		}
		if status, said := try(t, nil, "--restore"); status != 0 {
			t.Errorf("kill %d: --restore: %d %s", n, status, said)
		}
		unchanged()
		if pods, _ := filepath.Glob("/run/netns/devinfo-try-*"); exists("/var/lib/devinfo-try/run.json") || len(pods) > 0 {
			t.Errorf("kill %d: something is left", n)
		}
	}
	t.Logf("%d kills: %v", kills, done)
}

// kills returns DEVINFO_VM_KILLS. Tests that take minutes in the emulation are skipped without it.
func kills(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("DEVINFO_VM_KILLS"))
	if err != nil || n == 0 {
		t.Skip("DEVINFO_VM_KILLS is not set: it takes minutes in the emulation")
	}
	return n
}

// A boot has undone what a run did. Afterwards --restore only compares, and MACs and states may be new.
func TestTryComparesAfterBoot(t *testing.T) {
	needs(t, "igb")
	_ = kills(t)
	t.Cleanup(func() { vfsBack(t) })
	const vf, record = "0000:41:10.0", "/var/lib/devinfo-try/run.json"
	cmd := exec.Command(tryProgram, "--yes", "-o", t.TempDir()+"/report.txtar", "--only", "bound again", vf)
	must(t, cmd.Start())
	eventually(t, "the run has begun", func() bool { return exists(record) || ended(cmd.Process.Pid) })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	text := read(t, record)
	if status, said := try(t, nil, "--restore"); status != 0 {
		t.Errorf("--restore: %d %s", status, said)
	}
	write(t, record, strings.Replace(text, `"BootID": "`, `"BootID": "earlier-`, 1))
	run(t, "ip", "link", "set", "enp65s0v0", "address", "02:00:00:00:00:66", "up")
	if status, said := try(t, nil, "--restore"); status != 0 || !strings.Contains(said, vf+" is as before") || exists(record) {
		t.Errorf("after a boot: %d %s", status, said)
	}
	if now := mac(t, "enp65s0v0"); now != "02:00:00:00:00:66" {
		t.Errorf("the MAC was changed to %s", now)
	}
}

func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
