package dra_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestManyPodsInARowLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes many seconds")
	}
	const pods = 60
	r := newRig(t)
	agent := r.start()
	stop := r.stop
	life := func(n int) {
		pod, uid := fmt.Sprint("pod", n), types.UID(fmt.Sprint("u", n))
		r.prepare(r.claimOf("claim", uid, pod, want{"x", "net1", "info"}))
		sb := r.sandbox(fmt.Sprint("s", n), pod)
		must(t, agent.RunPodSandbox(t.Context(), sb))
		must(t, agent.StopPodSandbox(t.Context(), sb))
		r.unmake(sb)
		must(t, agent.RemovePodSandbox(t.Context(), sb))
		must(t, agent.Unprepare(t.Context(), uid))
	}
	life(0)
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for n := range pods {
		life(n + 1)
	}
	r.eventually("all work has ended", func() bool { return runtime.NumGoroutine() <= goroutines })
	if now := openFiles(t); now > files {
		t.Errorf("open files: %d, before: %d", now, files)
	}
	stop()
	r.expectNothing()
	count := map[string]int{}
	for _, c := range r.calls() {
		count[c.Command]++
	}
	if count["ADD"] != pods+1 || count["DEL"] != pods+1 {
		t.Errorf("got %v", count)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}
