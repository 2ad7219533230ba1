package dra_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
)

func TestRulesFollowLabelsOfNode(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ *plugins) {
		labels, broken := map[string]string{"rack": "a"}, errors.New("no API server")
		r.offer("mlx5-switchdev", "devices: [{nodes: {matchLabels: {rack: a}}, pfNames: [p0], sharing: exclusive}, {ifNames: [p0], sharing: shared}]")
		r.options.Devices.Inventory.Times.Poll = time.Minute
		r.options.Devices.Inventory.Labels = func(context.Context) (map[string]string, error) { return labels, broken }
		agent := r.start()
		if list, ok := agent.Node.Slices(t.Context()); ok {
			t.Fatalf("published without labels: %v", list)
		}
		expect := func(when string, want bool) {
			t.Helper()
			time.Sleep(time.Minute)
			all := inventory.PublishedIn(dra.Survey(agent))
			if _, got := all[vf0]; got != want || len(all) == 0 {
				t.Errorf("%s: offered %v, want %v", when, got, want)
			}
		}
		for len(agent.Node.Changed()) > 0 {
			<-agent.Node.Changed()
		}
		<-agent.Node.Changed() // the driver tries again by itself
		broken = nil
		expect("labels are known", true)
		broken = errors.New("no API server")
		expect("labels cannot be read any more", true)
		broken, labels = nil, map[string]string{"rack": "b"}
		expect("labels have changed", false)
	})
}
