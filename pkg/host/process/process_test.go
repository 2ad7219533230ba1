package process_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/test/difftest"
)

func TestProcessThatHasDeviceOpenIsFound(t *testing.T) {
	number, err := process.Parse("1:7") // /dev/full
	difftest.Must(t, err)
	file, err := os.Open("/dev/full")
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	holder := exec.Command("sleep", "60")
	holder.Stdin = file
	difftest.Must(t, holder.Start())
	defer func() { _, _ = holder.Process.Kill(), holder.Wait() }()
	found, err := process.Opened("/proc", []process.Number{number})
	difftest.Must(t, err)
	pids := map[int]string{}
	for _, h := range found {
		pids[h.PID] = h.Command
	}
	if pids[holder.Process.Pid] != "sleep" || pids[os.Getpid()] == "" {
		t.Errorf("found %v", found)
	}
	if _, err := process.Parse("1"); err == nil || !strings.Contains(err.Error(), `"1"`) {
		t.Errorf("got %v", err)
	}
}
