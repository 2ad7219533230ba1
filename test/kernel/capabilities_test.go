package kernel_test

import (
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
)

// playConfined executes its second argument with the capabilities in its first, a mask. It is the test binary under
// the name "confined". It removes the other capabilities from the bounding set, so that not even root can regain
// them.
func playConfined() {
	goruntime.LockOSThread()
	mask, err := strconv.ParseUint(os.Args[1], 10, 64)
	for c := uintptr(0); err == nil && c <= unix.CAP_LAST_CAP; c++ {
		if there, _ := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); there == 1 && mask&(1<<c) == 0 {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	none := [2]unix.CapUserData{}
	if err == nil {
		err = unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
	}
	panic(fmt.Sprint(err, unix.Exec(os.Args[2], os.Args[2:], os.Environ())))
}

// confined changes a call of the plugin so that it has only these capabilities.
func confined(t *testing.T, cmd *exec.Cmd, capabilities ...int) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	var mask uint64
	for _, c := range capabilities {
		mask |= 1 << c
	}
	cmd.Args = []string{"confined", fmt.Sprint(mask), cmd.Path}
	cmd.Path = self
	return cmd
}

// ownProcess returns a process's network namespace as a path in /proc, which a runtime without bind mounts passes.
func ownProcess(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
}

const podArgs = podUID + ";IgnoreUnknown=1"

// With these capabilities all verbs have the same result as with all capabilities. Without one of them ADD fails. The
// plugin needs them only to enter the pod's namespace.
func TestVerbsWorkWithSmallestSetsOfCapabilities(t *testing.T) {
	const memif = `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "deviceInfo": {"type": "memif", "memif": {"role": "slave", "mode": "ip",
		"path": "/run/memif/m.sock"}}, "cdi": {"name": "{podUID}-{ifName}", "socketDir": "/run/sockets/6e0c"},
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoFile + `"}}`
	onStage(t, func(t *testing.T, bound string) {
		nodeSettings(t, map[string]any{"cdiDir": cdiDir, "socketDirs": []string{"/run/sockets"}})
		must(t, os.MkdirAll("/run/sockets/6e0c", 0o755))
		process := ownProcess(t)
		linktest.AddVeth(t, "nic", "peer", linktest.NewNetns(t))
		for name, c := range map[string]struct {
			netns, conf string
			needs       []int
		}{
			"a VF":              {bound, standalone, []int{unix.CAP_SYS_ADMIN}},
			"a process":         {process, standalone, []int{unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE}},
			"CDI and a socket":  {bound, memif, []int{unix.CAP_SYS_ADMIN}},
			"a plain delegate":  {bound, delegates(`{"type": "child"}`), []int{unix.CAP_SYS_ADMIN}},
			"macvlan delegated": {bound, delegates(`{"type": "macvlan", "master": "nic"}`), []int{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}},
		} {
			t.Run(name, func(t *testing.T) {
				want := lifeOf(t, c.netns, c.conf)
				same(t, "with the needed capabilities", lifeOf(t, c.netns, c.conf, c.needs...), want)
				for n := range c.needs {
					fewer := slices.Delete(slices.Clone(c.needs), n, n+1)
					if a := finish(t, confined(t, devinfo("ADD", c.netns, c.conf, podArgs), fewer...)); a.exit != 1 {
						t.Errorf("ADD without capability %d: exit code %d\n%s%s", c.needs[n], a.exit, a.stdout, a.stderr)
					}
					call(t, "DEL", c.netns, c.conf, podArgs).ok(t)
				}
				nothingLeft(t)
			})
		}
	})
}

// lifeOf returns the results of the verbs. They run with these capabilities, or with all if none are given.
func lifeOf(t *testing.T, netns, conf string, capabilities ...int) string {
	t.Helper()
	var story strings.Builder
	for _, verb := range []string{"STATUS", "ADD", "CHECK", "DEL", "ADD", "GC"} {
		cmd := devinfo(verb, netns, forGC(conf), podArgs)
		if len(capabilities) > 0 {
			cmd = confined(t, cmd, capabilities...)
		}
		a := finish(t, cmd)
		fmt.Fprintf(&story, "%s: exit code %d %s\n%s\n%s", verb, a.exit, plain(a.stdout), files(t, infoDir, cdiDir, stateDir), read(t, infoFile))
		if a.exit != 0 {
			t.Errorf("%s with %v: %s%s", verb, capabilities, a.stdout, a.stderr)
		}
	}
	return story.String()
}

func TestDELAndGCNeedNoCapability(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		for _, netns := range []string{pod, ownProcess(t)} {
			for verb, text := range map[string]string{"DEL": standalone, "GC": forGC(standalone)} {
				call(t, "ADD", netns, standalone).ok(t)
				finish(t, confined(t, devinfo("STATUS", "", standalone))).ok(t)
				finish(t, confined(t, devinfo(verb, netns, text))).ok(t)
				nothingLeft(t)
			}
		}
	})
}
