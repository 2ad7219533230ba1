package dra_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
)

func TestANoticeIsAnEventOfThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		post := dra.PostNotices(client, driverName, "node1", slog.New(slog.DiscardHandler))
		post(dra.Notice{Pod: state.Pod{Namespace: "ns", Name: "pod", UID: "uid"}, Reason: dra.NoticeFailed, Text: strings.Repeat("é", 1000)})
		quiet()
		list, err := client.EventsV1().Events("ns").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		if len(list.Items) != 1 {
			t.Fatalf("%d events", len(list.Items))
		}
		e := list.Items[0]
		if e.Regarding.Name != "pod" || e.Regarding.UID != "uid" || e.Reason != dra.NoticeFailed || len(e.Note) > 1024 || !complete(e) {
			t.Errorf("got %+v", e)
		}
	})
}

// complete says whether an Event has what the API server asks for.
func complete(e eventsv1.Event) bool {
	return !e.EventTime.IsZero() && e.ReportingController != "" && e.ReportingInstance != "" && e.Action != "" && e.Type == "Warning"
}

func TestAPodIsToldTheSameOnceInFiveMinutes(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		told := 0
		r.options.Notify = func(dra.Notice) { told++ }
		r.start()
		p.missing["fake"] = true
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		for n := range 10 { // one a minute
			sb := r.sandbox("s"+string(rune('0'+n)), "pod")
			_ = r.runPod(sb)
			r.endPod(sb)
			time.Sleep(time.Minute)
		}
		if told != 2 {
			t.Errorf("told %d times in 10 minutes", told)
		}
	})
}
