package inject_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator"

	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
)

func TestCopiesFollowLaterAttachmentsAndDetachments(t *testing.T) {
	r := newRig(t)
	nri := r.running()
	r.attach("macvlan-net", sandbox, "net2", "")
	c := container() // with a file from CDI, which is mounted on one that must stay
	c.Mounts = []*api.Mount{{Source: r.node.DeviceInfoDir + "/x", Destination: "/var/run/k8s.cni.cncf.io/devinfo/net9.json", Type: "bind"}}
	nri.make(pod(), c)
	inside, err := os.Open(filepath.Join(r.options.StageDir, sandbox, "devinfo")) // refers to the inode, like a mount
	difftest.Must(t, err)
	defer inside.Close()
	r.attach("sriov-net", sandbox, "net1", vfInfo)
	difftest.Eventually(t, "there", func() bool { return strings.Contains(r.staged(sandbox)["network-info.json"], "net1") })
	names, err := inside.Readdirnames(-1)
	difftest.Must(t, err)
	difftest.Contains(t, strings.Join(names, " "), "net1.json")
	read, err := os.Open(filepath.Join(r.options.StageDir, sandbox, "devinfo/net1.json"))
	difftest.Must(t, err)
	defer read.Close()
	changed := strings.Replace(vfInfo, "kept", "changed", 1)
	difftest.Must(t, store.Open(r.node.DeviceInfoDir).Write("sriov-net-"+sandbox+"_net1", []byte(changed)))
	difftest.Eventually(t, "changed", func() bool { return compact(t, r.staged(sandbox)["net1.json"]) == changed })
	old, err := io.ReadAll(read)
	difftest.Must(t, err)
	difftest.Same(t, "what somebody reads meanwhile", compact(t, string(old)), vfInfo)
	r.detach("sriov-net", sandbox, "net1")
	difftest.Eventually(t, "gone", func() bool {
		return slices.Equal(r.names(sandbox), []string{"net9.json", "network-info.json"}) && !strings.Contains(r.staged(sandbox)["network-info.json"], "net1")
	})
}

// pausing is a log that holds up the first that writes about outdated copies.
type pausing struct{ begun, end chan struct{} }

func (p pausing) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "may be outdated") {
		close(p.begun)
		<-p.end
	}
	return len(line), nil
}

// A refresh has listed the files of all sandboxes when a decision finds and stages another one.
func TestRefreshKeepsWhatDecisionHasStagedMeanwhile(t *testing.T) {
	r := newRig(t)
	r.options.Interval = time.Hour
	log := pausing{make(chan struct{}), make(chan struct{})}
	r.options.Log = slog.New(slog.NewTextHandler(log, nil))
	first := pod() // the refresh is held up after it, because its file is missing
	first.Id = "10"
	r.attach("sriov-net", first.Id, "net1", vfInfo)
	r.attach("sriov-net", sandbox, "net1", vfInfo)
	for _, p := range []*api.PodSandbox{first, pod()} {
		r.make(r.opened(), p, container())
	}
	difftest.Must(t, os.Remove(r.node.DeviceInfoDir+"/sriov-net-10_net1"))
	a := r.agent()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	<-log.begun
	r.attach("macvlan-net", sandbox, "net2", "")
	r.make(a, pod(), container())
	close(log.end)
	difftest.Eventually(t, "refreshed", func() bool { return r.looks.Load() > 0 })
	difftest.Contains(t, r.staged(sandbox)["network-info.json"], `"net2"`)
	cancel()
	difftest.Must(t, <-ended)
}

func TestDirectoryIsRemovedWithTheSandbox(t *testing.T) {
	r := newRig(t)
	nri := r.running()
	r.attach("sriov-net", sandbox, "net1", vfInfo)
	nri.make(pod(), container())
	difftest.Must(t, nri.RemovePodSandbox(t.Context(), &adaptation.RemovePodSandboxRequest{Pod: pod()}))
	difftest.Eventually(t, "removed", func() bool { return len(r.left()) == 0 && r.kept.Load() == 0 })
}

// A directory of device-info files that cannot be read does not say that a sandbox has none.
func TestSandboxIsKeptWhileItsFilesAreUnknown(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	difftest.Write(t, r.node.DeviceInfoDir+"/default-sriov-net-"+sandbox+"_net1", vfInfo, 0o444)
	r.make(a, pod(), container())
	difftest.Must(t, a.RemoveEnded(r.node, true))
	node := r.node
	node.DeviceInfoDir = r.dir + "/loop"
	difftest.Must(t, os.Symlink("loop", node.DeviceInfoDir))
	difftest.Is(t, a.RemoveEnded(node, true), syscall.ELOOP)
	difftest.Same(t, "left", r.left(), []string{sandbox})
	difftest.Must(t, os.RemoveAll(r.node.DeviceInfoDir), a.RemoveEnded(r.node, false))
	difftest.Same(t, "while the journal has attachments", r.left(), []string{sandbox})
	difftest.Must(t, a.RemoveEnded(r.node, true))
	difftest.Same(t, "ended", len(r.left()), 0)
}

// changed gives the directories of entries and files the time of their last change, which refreshes compare.
func (r *rig) changed(at time.Time) {
	r.t.Helper()
	difftest.Must(r.t, os.Chtimes(r.node.StateDir+"/attachments", at, at), os.Chtimes(r.node.DeviceInfoDir, at, at))
}

// A refresh reads again what the last one could not read, although nothing has changed since. The log says it once, and again
// when it comes again; the copies stay. Each sandbox has its own attachments. Without a change, nothing is written.
func TestRefreshReadsAgainWhatItCouldNotRead(t *testing.T) {
	for what, warnings := range map[string]int{"settings": 1, "/state/attachments": 2, "/infos": 2, "/infos/lan-10_net1": 1, "/stage": 1, "/stage/10/netns": 1} {
		r := newRig(t)
		a, other := r.opened(), pod()
		other.Id = "10"
		r.attach("lan", "10", "net1", vfInfo)
		r.attach("sriov-net", sandbox, "net1", "")
		r.make(a, other, container())
		r.make(a, pod(), container())
		r.changed(time.Now().Add(-4 * time.Hour))
		seen, copies := a.Refresh(inject.State{}), r.staged("10")
		difftest.Must(t, store.Open(r.node.DeviceInfoDir).Write("lan-10_net1", []byte(strings.Replace(vfInfo, "kept", "new", 1))))
		r.attach("macvlan-net", sandbox, "net2", "")
		path, away := r.dir+what, r.dir+"/away"
		for again := range 2 {
			at := time.Now().Add(time.Duration(again-2) * time.Hour)
			r.changed(at)
			switch what {
			case "settings":
				r.broken.Store(true)
			case "/stage/10/netns": // no link
				difftest.Must(t, os.Rename(path, away), os.Mkdir(path, 0o755))
			default:
				difftest.Must(t, os.Rename(path, away))
				r.loop(what)
			}
			seen = a.Refresh(a.Refresh(seen))
			difftest.Same(t, what+": "+r.logged(), strings.Count(r.logged(), "may be outdated"), (again+1)*warnings)
			if what == "settings" {
				r.broken.Store(false)
			} else {
				difftest.Must(t, os.Remove(path), os.Rename(away, path))
			}
			if again == 0 {
				difftest.Same(t, what, r.staged("10"), copies)
			}
			r.changed(at)
			seen = a.Refresh(seen)
			difftest.Contains(t, r.staged("10")["net1.json"], "new")
		}
		names := func(id string) []string {
			return regexp.MustCompile(`"network": "[^"]*"`).FindAllString(r.staged(id)["network-info.json"], -1)
		}
		difftest.Same(t, what, names(sandbox), []string{`"network": "sriov-net"`, `"network": "macvlan-net"`})
		difftest.Same(t, what, names("10"), []string{`"network": "lan"`})
		difftest.Must(t, os.Remove(r.options.StageDir+"/10/devinfo/network-info.json"))
		a.Refresh(seen)
		difftest.Same(t, what+": without a change", r.names("10"), []string{"net1.json"})
	}
}

// A refresh that removes a directory does not make it again from entries that are still there. After a process has ended, its
// ID may belong to another one, so a path with it proves nothing, and the runtime's list decides.
func TestRefreshRemovesDirectoriesOfEndedSandboxes(t *testing.T) {
	const byProcess = "/proc/4711/ns/net"
	link := func(r *rig) string { return r.options.StageDir + "/" + sandbox + "/netns" }
	listed := func(pods ...*api.PodSandbox) func(*rig, *inject.Plugin) {
		return func(r *rig, a *inject.Plugin) {
			_, err := a.Synchronize(r.t.Context(), pods, nil)
			difftest.Must(r.t, err)
		}
	}
	for what, test := range map[string]struct {
		netns string
		end   func(*rig, *inject.Plugin)
		left  int
	}{
		"it runs":                       {netns, func(*rig, *inject.Plugin) {}, 1},
		"its namespace is gone":         {netns, func(r *rig, _ *inject.Plugin) { r.gone[netns] = true }, 0},
		"its namespace cannot be found": {netns, func(r *rig, _ *inject.Plugin) { r.netnsErr = syscall.EIO }, 1},
		"the runtime removed it":        {netns, func(r *rig, a *inject.Plugin) { difftest.Must(r.t, a.RemovePodSandbox(r.t.Context(), pod())) }, 0},
		"its directory has no link":     {netns, func(r *rig, _ *inject.Plugin) { difftest.Must(r.t, os.Remove(link(r))) }, 0},
		"its link cannot be read":       {netns, func(r *rig, _ *inject.Plugin) { difftest.Must(r.t, os.Remove(link(r)), os.Mkdir(link(r), 0o755)) }, 1},
		"it is not listed":              {netns, listed(), 1},
		"a process, before the list":    {byProcess, func(*rig, *inject.Plugin) {}, 1},
		"a process that is listed":      {byProcess, listed(pod()), 1},
		"a process that is not listed":  {byProcess, listed(&api.PodSandbox{Id: "other"}), 0},
		"a process whose container came after the list": {byProcess, func(r *rig, a *inject.Plugin) {
			listed()(r, a)
			r.make(a, pod(), container())
		}, 1},
	} {
		r := newRig(t)
		a, p := r.opened(), pod()
		p.Linux.Namespaces[1].Path = test.netns
		r.attach("sriov-net", sandbox, "net1", vfInfo)
		r.make(a, p, container())
		test.end(r, a)
		a.Refresh(inject.State{})
		difftest.Same(t, what, strings.Contains(r.logged(), "cannot determine whether the sandbox has ended"), r.netnsErr != nil)
		difftest.Same(t, what, []int{int(r.kept.Load()), len(r.left())}, []int{test.left, test.left})
	}
}

func TestLeftoversOfKilledAgentAreRemovedOrCompleted(t *testing.T) {
	for what, make := range map[string]func(dir string) error{
		"a file that was being written": func(dir string) error { return os.WriteFile(dir+"/.net1.json.devinfo", []byte("half"), 0o600) },
		"a sandbox without anything":    func(dir string) error { return os.Mkdir(dir+"/"+sandbox, 0o700) },
		"a sandbox without a directory": func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/"+sandbox, 0o755), os.Symlink(netns, dir+"/"+sandbox+"/netns"))
		},
		"a directory without its mode": func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/"+sandbox, 0o755), os.Symlink(netns, dir+"/"+sandbox+"/netns"), os.Mkdir(dir+"/"+sandbox+"/devinfo", 0o700))
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			difftest.Must(t, os.MkdirAll(r.options.StageDir, 0o755))
			difftest.Must(t, make(r.options.StageDir))
			r.attach("sriov-net", sandbox, "net1", vfInfo)
			r.make(r.agent(), pod(), container())
			difftest.Equal(t, r.names(sandbox), []string{"net1.json", "network-info.json"})
			for _, path := range []string{"", "/devinfo"} {
				if stat, err := os.Stat(r.options.StageDir + "/" + sandbox + path); err != nil || stat.Mode().Perm() != 0o755 {
					t.Errorf("finished: %s: %v, %v", path, stat, err)
				}
			}
			difftest.Must(t, os.RemoveAll(r.options.StageDir))
			difftest.Must(t, os.MkdirAll(r.options.StageDir, 0o755))
			difftest.Must(t, make(r.options.StageDir))
			r.gone[netns] = true
			r.serve().run()
			difftest.Eventually(t, "removed", func() bool { return len(r.left()) == 0 })
		})
	}
}

func TestInjectionRecoversFromFullDisk(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := storetest.Mount(t, 100)
		r := newRig(t)
		r.options.StageDir = disk.Dir + "/stage"
		r.attach("sriov-net", sandbox, "net1", vfInfo)
		a := r.opened()
		for left := range 6 { // two directories, the link and two files need 5 inodes
			empty := disk.Fill(left)
			got := r.make(a, pod(), container())
			full := r.decisions()[len(r.decisions())-1]
			for name, text := range r.staged(sandbox) {
				if text == "" || name != "net1.json" && name != "network-info.json" {
					t.Errorf("%d left: %s holds %q", left, name, text)
				}
			}
			if slices.ContainsFunc(r.left(), func(name string) bool { return strings.HasPrefix(name, ".") }) {
				t.Errorf("%d left: %q", left, r.left())
			}
			if isMounted := strings.Contains(r.text(got), " on /var/run/k8s.cni.cncf.io/devinfo "); isMounted != (left == 5) || isMounted != (full == "injected") {
				t.Errorf("%d left: decided %s, given %s", left, full, r.text(got))
			}
			difftest.Same(t, r.logged(), strings.Count(r.logged(), "no space left on device"), min(left+1, 5))
			empty()
			r.make(a, pod(), container())
			difftest.Same(t, "with disk space again", []any{r.decisions()[len(r.decisions())-1], len(r.names(sandbox))}, []any{"injected", 2})
			difftest.Must(t, os.RemoveAll(r.options.StageDir+"/"+sandbox))
		}
		disk.ReadOnly(true)
		difftest.Is(t, r.agent().Run(t.Context()), syscall.EROFS)
	})
}

// The runtime's NRI server calls plugins under one mutex, so all pods of the node wait with a decision.
func TestDecisionOfSlowNodeHasABudget(t *testing.T) {
	r := newRig(t)
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan bool)
		r.options.Node = func() (config.Node, error) { <-hang; return r.node, syscall.EIO }
		try := func(a *inject.Plugin, limit time.Duration, annotations ...string) (took time.Duration, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			_, _, err = a.CreateContainer(ctx, pod(annotations...), container())
			return time.Since(began), err
		}
		for limit, before := range map[time.Duration]time.Duration{2 * time.Second: 600 * time.Millisecond, 100 * time.Millisecond: 50 * time.Millisecond, 10 * time.Millisecond: 5 * time.Millisecond} {
			took, err := try(r.agent(), limit, "k8s.v1.cni.cncf.io/networks=sriov-net")
			difftest.Same(t, fmt.Sprintf("limit %v: %v", limit, err), took.Round(5*time.Millisecond), before)
		}
		a, began := r.agent(), time.Now()
		r.waited.Store(0)
		var held time.Duration
		for n := 0; time.Since(began) < 10*time.Second; n++ {
			took, err := try(a, 2*time.Second, [][]string{{"k8s.v1.cni.cncf.io/networks=sriov-net"}, {"v1.multus-cni.io/default-network=x"}, {"devinfo-cni.io/require=net1"}}[n%3]...)
			difftest.Says(t, err, "no decision in time")
			held += took
			time.Sleep(100 * time.Millisecond)
		}
		if total := time.Duration(r.waited.Load()); total < 700*time.Millisecond || total > time.Second {
			t.Errorf("in 10 s the runtime waited for %v", total)
		}
		if held > 3*time.Second { // with 80 containers
			t.Errorf("in 10 s the runtime was held for %v", held)
		}
		_, err := try(a, 2*time.Second) // it names no network
		difftest.Must(t, err)
		_, err = try(a, 2*time.Second, "devinfo-cni.io/require=net1", "devinfo-cni.io/inject=false")
		difftest.Must(t, err)
		difftest.Equal(t, r.decisions()[len(r.decisions())-2:], []string{"allowed late", "off"})
		r.options.MissingInfo = inject.Reject
		for _, annotation := range []string{"k8s.v1.cni.cncf.io/networks=sriov-net", ""} {
			_, err = try(r.agent(), 2*time.Second, annotation)
			difftest.Says(t, err, "no decision in time")
		}

		slow := r.agent() // a decision that takes longer than work does, but not the budget
		slow.Node = func() (config.Node, error) { time.Sleep(300 * time.Millisecond); return r.node, syscall.EIO }
		r.waited.Store(0)
		took, err := try(slow, 2*time.Second, "k8s.v1.cni.cncf.io/networks=sriov-net")
		difftest.Says(t, err, "input/output error")
		difftest.Equal(t, []time.Duration{took, time.Duration(r.waited.Load())}, []time.Duration{300 * time.Millisecond, 200 * time.Millisecond})

		asked := time.Now()
		_, err = a.Synchronize(t.Context(), []*api.PodSandbox{pod()}, nil)
		difftest.Must(t, err, a.RemovePodSandbox(t.Context(), pod()))
		difftest.Same(t, "time of Synchronize and RemovePodSandbox", time.Since(asked), time.Duration(0))
		close(hang)
	})
}

// One decision that hangs for ever takes no time from those that are slow, as on a busy node.
func TestDecisionThatHangsLeavesOthersTheirTime(t *testing.T) {
	for quick, want := range map[bool]int{false: 2, true: 1} { // it, and the next one unless that is quick, for the budget is spent
		r := newRig(t)
		synctest.Test(t, func(t *testing.T) {
			hang := make(chan bool)
			var calls atomic.Int32
			r.options.Node = func() (config.Node, error) {
				call := calls.Add(1)
				if call == 1 {
					<-hang
				}
				if call != 2 || !quick {
					time.Sleep(60 * time.Millisecond)
				}
				return r.node, syscall.EIO
			}
			a, late := r.agent(), 0
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				_, _, err := a.CreateContainer(ctx, pod("k8s.v1.cni.cncf.io/networks=sriov-net"), container())
				cancel()
				if strings.Contains(fmt.Sprint(err), "no decision in time") {
					late++
				}
				time.Sleep(200 * time.Millisecond)
			}
			close(hang)
			time.Sleep(time.Second) // until it has ended
			difftest.Same(t, fmt.Sprint("refused, quick ", quick), late, want)
		})
	}
}

// A decision that hangs is about a pod with attachments, which is refused, whatever the policy and although it names no
// network. Pods without attachments do not wait for it.
func TestDecisionThatHangsConcernsOnlyPodsWithAttachments(t *testing.T) {
	for _, policy := range []inject.MissingInfo{inject.Allow, inject.Reject} {
		r := newRig(t)
		r.options.MissingInfo = policy
		r.attach("sriov-net", sandbox, "net1", vfInfo)
		synctest.Test(t, func(t *testing.T) {
			kernel := hung{r.options.Finder.Interfaces, make(chan struct{}), make(chan struct{})}
			r.options.Finder.Interfaces = kernel
			a := r.opened()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, _, err := a.CreateContainer(ctx, pod(), container())
			difftest.Says(t, err, "no decision in time")
			other := pod()
			other.Id = "another"
			_, _, err = a.CreateContainer(ctx, other, container())
			difftest.Must(t, err)
			close(kernel.answer)
			synctest.Wait()
		})
		r.expect("rejected late", "nothing")
	}
}

// The work of a decision must not grow with the attachments of other pods. Reading the names in two directories does.
func TestCostOfDecisionIsThatOfAnEmptyNode(t *testing.T) {
	var reads []int
	for _, others := range []int{0, 10, 1000} {
		r := newRig(t)
		r.options.Interval = time.Hour
		for n := range others {
			r.attach("sriov-net", fmt.Sprintf("%s%d", sandbox[:len(sandbox)-5], 10000+n), "net1", vfInfo, func(e *journal.Entry) { e.Leases = nil })
		}
		r.attach("sriov-net", sandbox, "net1", vfInfo)
		a := r.opened()
		r.make(a, pod(), container())
		before := difftest.ReadCalls(t)
		r.make(a, pod(), container())
		reads = append(reads, difftest.ReadCalls(t)-before)
	}
	for _, other := range reads[1:] {
		if reads[0] == 0 || other > 2*reads[0] {
			t.Errorf("with 0, 10 and 1000 other attachments a decision makes %v calls of read", reads)
		}
	}
}

// hung blocks each Interface call until the test closes answer.
type hung struct {
	discovery.Interfaces
	asked, answer chan struct{}
}

func (h hung) Interface(netns, name string) (link.Interface, error) {
	select {
	case h.asked <- struct{}{}:
	default: // a refresh calls Interface too
	}
	<-h.answer
	return h.Interfaces.Interface(netns, name)
}

// The runtime's NRI version supports failure policies.
func TestStoppingDuringRequestFailsIt(t *testing.T) {
	r := newRig(t)
	kernel := hung{r.options.Finder.Interfaces, make(chan struct{}, 1), make(chan struct{})}
	r.options.Finder.Interfaces = kernel
	nri := r.serve()
	stop := nri.run()
	r.attach("sriov-net", sandbox, "net1", "")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-kernel.asked
		stop()
	}()
	_, err := nri.create(pod("k8s.v1.cni.cncf.io/networks=sriov-net"), container())
	difftest.Says(t, err)
	close(kernel.answer)
	<-ended
	// The decision stages files, this one last, so it must end before the test removes its directory.
	difftest.Eventually(t, "staged", func() bool { return r.staged(sandbox)["network-info.json"] != "" })
}

// A runtime that was killed while it created a sandbox never names the sandbox again.
func TestSandboxUnknownToTheRuntimeIsOrphaned(t *testing.T) {
	r := newRig(t)
	a := r.opened()
	attached := time.Now()
	r.make(a, &api.PodSandbox{Id: "early"}, container())
	difftest.Same(t, "orphaned before the runtime has connected", a.Orphaned("lost", attached), false)
	_, err := a.Synchronize(t.Context(), []*api.PodSandbox{{Id: "listed"}}, nil)
	difftest.Must(t, err)
	for _, id := range []string{"made", "removed"} {
		r.make(a, &api.PodSandbox{Id: id}, container())
	}
	difftest.Must(t, a.RemovePodSandbox(t.Context(), &api.PodSandbox{Id: "removed"}))
	for id, want := range map[string]bool{"listed": false, "made": false, "lost": true, "removed": true} {
		difftest.Same(t, id, []bool{a.Orphaned(id, attached), a.Orphaned(id, time.Now())}, []bool{want, false})
	}
}

func TestDocumentationShowsTheInjectedItems(t *testing.T) {
	r := newRig(t)
	r.attach("sriov-net", sandbox, "net1", strings.Replace(vfInfo, `,"vendor":"kept"`, "", 1))
	r.attach("macvlan-net", sandbox, "net2", "")
	got := r.make(r.opened(), pod(), container())
	var seen []string
	for _, m := range got.Mounts {
		for _, name := range r.names(sandbox) {
			seen = append(seen, m.Destination+"/"+name)
		}
	}
	for _, e := range got.Env {
		seen = append(seen, e.Key+"="+e.Value)
	}
	for _, d := range got.GetLinux().GetDevices() {
		seen = append(seen, d.Path)
	}
	_, _, refusal := r.opened().CreateContainer(t.Context(), pod("devinfo-cni.io/require=net2"), container())
	const docs = "../../../docs"
	difftest.Same(t, "a container gets", difftest.Block(t, docs, "", "DEVINFO_NET1_TYPE=pci\n"), strings.Join(seen, "\n")+"\n")
	difftest.Same(t, "network-info.json", difftest.Block(t, docs, "json", `"network": "macvlan-net"`), r.staged(sandbox)["network-info.json"])
	difftest.Same(t, "a refusal", difftest.Block(t, docs, "", "required by the annotation devinfo-cni.io/require"), fmt.Sprintln(refusal))
}

func TestRuntimeValidatorRequiresTheAgentByName(t *testing.T) {
	r := newRig(t)
	nri := r.serve(adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true}))
	_, given, _ := strings.Cut(difftest.Block(t, "../../../docs", "yaml", "required-plugins.noderesource.dev: "), "    ")
	annotation := strings.NewReplacer(": ", "=", "'", "", "\n", "").Replace(given)
	_, err := nri.create(pod(annotation), container())
	difftest.Says(t, err, inject.PluginName)
	nri.make(pod(), container())
	nri.run()
	nri.make(pod(annotation), container())
}
