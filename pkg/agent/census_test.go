package agent_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/nri/nritest"
)

func TestWhatTheRuntimeHasForgottenIsCountedAndNamed(t *testing.T) {
	r := newRig(t)
	logged := filepath.Join(r.dir, "log")
	log, err := os.Create(logged)
	r.must(err)
	defer log.Close()
	r.Log = slog.New(slog.NewTextHandler(log, nil))
	adding := vf("adding", "0000:03:00.4", "", "")
	adding.Complete = false
	byHand := journal.Entry{Key: journal.Key{ContainerID: "by-hand", Network: "net-b"}, Netns: aliveNetns, Complete: true}
	for _, e := range []journal.Entry{vf("lost", "0000:03:00.2", "", ""), vf("known", "0000:03:00.3", "", ""), adding, byHand} {
		e.Time = time.Now().Add(-time.Hour)
		r.put(e)
	}
	nritest.Serve(t, r.Injection.Socket, []*adaptation.PodSandbox{{Id: "known"}})
	a, end := r.started()
	eventually(t, "counted", func() bool { return metrics(t, a)[`devinfo_attachments{state="forgotten"}`] == 2 })
	at := metrics(t, a)["devinfo_check_timestamp_seconds"]
	eventually(t, "counted again", func() bool { return metrics(t, a)["devinfo_check_timestamp_seconds"] > at })
	end()
	got := metrics(t, a)
	if got[`devinfo_attachments{state="ok"}`]+got[`devinfo_attachments{state="changed"}`] != 2 || got[`devinfo_attachments{state="adding"}`] != 0 {
		t.Errorf("%v", got)
	}
	if got[`devinfo_attachment_info{interface="net1",namespace="shop",network="net-a",pciAddr="0000:03:00.2",pf="p0",pod="web-lost",type="pci",vf="0"}`] != 1 {
		t.Error("the device of what is forgotten is not shown: it is taken")
	}
	text, err := os.ReadFile(logged)
	r.must(err)
	if n := strings.Count(string(text), `attachments="[net-a/adding/net1 net-a/lost/net1]"`); n != 1 {
		t.Errorf("what is forgotten is named %d times:\n%s", n, text)
	}
}

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
