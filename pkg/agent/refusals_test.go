package agent_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/journal"
)

// A pod that waits for a device is seen by who watches the node: by a counter, which goes on
// where the agent starts anew, and once in the log.
func TestARefusedADDIsCountedAndLogged(t *testing.T) {
	const metric = "devinfo_refused_adds_total"
	r := newRig(t)
	var log bytes.Buffer
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	j := journal.Open(r.StateDir, boot)
	holder, asker := vf("alive", "0000:03:00.2", "", ""), vf("waiting", "0000:03:00.2", "", "")
	holder.Pod, holder.Leases = "a", []journal.DeviceLease{{ID: "pci-0000:03:00.2", Mode: journal.Exclusive}}
	r.put(holder)
	asker.Network, asker.IfName, asker.Pod, asker.Leases = "net-a", "net1", "b", holder.Leases
	held := new(journal.HeldError)
	if err := j.Record(&asker, nil); !errors.As(err, &held) {
		t.Fatalf("got %v", err)
	}
	count := func(want float64) {
		t.Helper()
		a, end := r.started()
		read := func() (float64, bool) { got, there := metrics(t, a)[metric]; return got, there }
		eventually(t, "read", func() bool { _, there := read(); return there })
		if got, _ := read(); got != want {
			t.Errorf("at the start: %v", got)
		}
		j.Refused(held, "pod shop/web-waiting", time.Now())
		eventually(t, "counted", func() bool { got, _ := read(); return got == want+1 })
		end()
	}
	count(0)
	count(1)
	const line = `device=0000:03:00.2 holder="pod shop/web-alive (net1, network net-a)" asker="pod shop/web-waiting" refusals=1`
	if n := strings.Count(log.String(), line); n != 2 {
		t.Errorf("%d times in\n%s", n, log.String())
	}
}
