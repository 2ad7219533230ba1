package dra_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

const agentEnv = "DRA_TEST_AGENT"

// victim configures a driver process that attaches and detaches a pod and kills itself after a step.
type victim struct {
	Dir    string
	KillAt int // step after which the process kills itself; 0 = never
	Behave string
	Pipe   bool // whether plugins inherit file 3
}

func runVictim() {
	var d victim
	check(json.Unmarshal([]byte(os.Getenv(agentEnv)), &d))
	check(os.Unsetenv(agentEnv)) // plugins must not inherit it
	if d.Pipe {
		_, err := unix.FcntlInt(3, unix.F_DUPFD, 100) // files that the agent opens for plugins get lower numbers
		check(err)
		syscall.CloseOnExec(3)
	}
	o := optionsIn(d.Dir)
	addDevices(&o, d.Dir)
	o.Devices.Journal = journalIn(d.Dir, o.BootID)
	o.Status = func(ctx context.Context, _ status.Report) error { <-ctx.Done(); return ctx.Err() } // so that each run has the same steps
	var steps atomic.Int32
	o.Reached = func(name string) {
		if int(steps.Add(1)) == d.KillAt {
			fmt.Println("killed after:", name)
			check(restoretest.Open(d.Dir).Between(func() error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }))
		}
	}
	agent, err := dra.New(o)
	check(err)
	ctx := context.Background()
	go agent.Run(ctx)
	claims := victimClaims(d)
	for _, claim := range claims {
		_, err := agent.Prepare(ctx, claim)
		check(err)
	}
	sb := sandboxIn(d.Dir, "s1", "pod")
	check(agent.RunPodSandbox(ctx, sb))
	check(agent.StopPodSandbox(ctx, sb))
	for _, claim := range claims {
		check(agent.Unprepare(ctx, string(claim.UID)))
	}
	fmt.Println(steps.Load())
}

func victimClaims(d victim) []*resourceapi.ResourceClaim {
	return []*resourceapi.ResourceClaim{
		claimIn(d.Dir, "a", "u1", "pod", netRequest{"x", "net1", d.Behave}),
		onDevice(onDevice(claimIn(d.Dir, "b", "u2", "pod", netRequest{"x", "net2", d.Behave}, netRequest{"y", "net3", d.Behave}), 0, vf0, ""), 1, vf2, "vfio-pci"),
		ownClaim("u3", vf3, ""), // without a network
	}
}

func journalIn(dir, bootID string) *journal.Journal {
	j := journal.Open(filepath.Join(dir, "journal"), bootID)
	j.NetnsGone = isNetnsMissing
	return j
}

// run returns the output of the process: the step after which it was killed, or the number of steps. It waits
// until the plugins have exited too; they inherit the pipe.
func (v victim) run(t *testing.T) string {
	t.Helper()
	ended, pipe, err := os.Pipe()
	must(t, err)
	defer ended.Close()
	v.Pipe = true
	cmd := v.command(t)
	cmd.ExtraFiles = []*os.File{pipe}
	out, err := cmd.Output()
	pipe.Close()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	_, err = io.ReadAll(ended)
	must(t, err)
	return strings.TrimSpace(string(out))
}

func (v victim) command(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), agentEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd
}

// restarts are the changes of the node before the next process starts.
var restarts = map[string]struct {
	happens func(r *rig, sb *api.PodSandbox)
	listed  bool // the runtime still lists the sandbox
}{
	"the pod runs": {func(*rig, *api.PodSandbox) {}, true},
	"the sandbox is gone": {func(r *rig, sb *api.PodSandbox) {
		r.removeNetns(sb)
		check(restoretest.Open(r.dir).EndNetns(netnsOf(sb)))
	}, false},
	"the node was restarted": {reboot, false},
}

func reboot(r *rig, sb *api.PodSandbox) {
	r.removeNetns(sb)
	must(r.t, os.RemoveAll(filepath.Join(r.dir, "kernel")))
	r.options.BootID = "boot2"
	for _, dir := range []string{"cdi", "info", "dp"} {
		must(r.t, os.RemoveAll(filepath.Join(r.dir, dir)))
	}
}

func TestNextStartCleansUpAfterKillAtAnyStep(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes half a minute")
	}
	steps, err := strconv.Atoi(victim{Dir: newRig(t).dir}.run(t))
	if err != nil || steps < 20 {
		t.Fatalf("%d steps, %v", steps, err)
	}
	turns := make(chan struct{}, 8) // the trials mostly wait for the disk and for processes
	var all sync.WaitGroup
	stride := 1
	if os.Geteuid() != 0 { // without root the driver behaves as with root, so a sample is enough
		stride = 5
	}
	for name, after := range restarts {
		for step := 1; step <= steps; step += stride {
			turns <- struct{}{}
			all.Go(func() {
				defer func() { <-turns }()
				t.Run(fmt.Sprintf("%s/%d", name, step), func(t *testing.T) { killAndRestart(t, step, after.happens, after.listed) })
			})
		}
	}
	all.Wait()
}

func killAndRestart(t *testing.T, step int, happens func(*rig, *api.PodSandbox), listed bool) {
	r := newRig(t)
	d := victim{Dir: r.dir, KillAt: step}
	killed := d.run(t)
	sb := r.sandbox("s1", "pod")
	happens(r, sb)
	addDevices(&r.options, r.dir)
	expectCleanRestart(t, r, d, sb, listed)
	if t.Failed() {
		t.Errorf("%s: calls: %q", killed, r.callNames())
	}
}

// expectCleanRestart starts the next process and checks that it completes all pending work.
func expectCleanRestart(t *testing.T, r *rig, d victim, sb *api.PodSandbox, listed bool) {
	t.Helper()
	var pods []*api.PodSandbox
	attached, gates, bare := 0, 0, 0
	for _, name := range r.files("state") {
		uid, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		for _, at := range r.record(uid).Attachments {
			switch {
			case at.Bare():
				gates++
				bare++
			case listed:
				attached++
				gates++
			}
		}
	}
	if listed {
		pods = []*api.PodSandbox{sb}
	}
	r.options.Devices.Journal = journalIn(r.dir, r.options.BootID)
	agent := r.start()
	stop := r.stop
	_, err := agent.Synchronize(t.Context(), pods, nil)
	must(t, err)
	shown := func(dir string) int { // a killed writer may leave a temporary file, which Unprepare removes
		return len(slices.DeleteFunc(r.files(dir), func(name string) bool { return strings.HasPrefix(name, ".") }))
	}
	want := fmt.Sprintf("%d attached, %d CDI files, %d of the device plugin, idle", attached, gates, bare)
	waitUntil(t, func() string {
		phases := agent.Census().Phases
		got := fmt.Sprintf("%d attached, %d CDI files, %d of the device plugin", len(r.files("there")), shown("cdi"), shown("dp"))
		if phases["Added"] == attached && phases["Adding"]+phases["Deleting"]+phases["Restoring"] == 0 {
			got += ", idle"
		}
		if got == want {
			return ""
		}
		return fmt.Sprintf("got %s; want %s; phases %v", got, want, phases)
	})
	for _, claim := range victimClaims(d) {
		must(t, agent.Unprepare(t.Context(), string(claim.UID)))
	}
	r.expectNothing()
	expectRestored(t, restoretest.Open(r.dir))
	if leases, err := r.options.Devices.Journal.Claims(); err != nil || len(leases) > 0 {
		t.Errorf("leases of %q, %v", leases, err)
	}
	last := map[string]string{}
	for _, c := range r.calls() {
		last[c.Sandbox+c.IfName] = c.Command
	}
	for what, command := range last {
		if command != "DEL" {
			t.Errorf("%s: the last call is %s", what, command)
		}
	}
	stop()
}

// A plugin can outlive the driver. A DEL before the plugin exits would find nothing to delete.
func TestDELWaitsForPluginsOfKilledDriver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := victim{Dir: r.dir, Behave: "slow"}
	cmd := d.command(t)
	must(t, cmd.Start())
	difftest.Eventually(t, "the plugins run", func() bool { return len(r.calls()) == 3 })
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	r.removeNetns(r.sandbox("s1", "pod"))
	addDevices(&r.options, r.dir)
	agent := r.start()
	_, err := agent.Synchronize(t.Context(), nil, nil)
	must(t, err)
	time.Sleep(200 * time.Millisecond)
	difftest.Equal(t, len(r.callNames()), 3)
	must(t, os.WriteFile(filepath.Join(r.dir, "go-on"), nil, 0o644))
	difftest.Eventually(t, "the DELs were run", func() bool { return len(r.calls()) == 6 && agent.Census().Phases["Prepared"] == 3 })
	r.expectInterfaces()
}
