package devices

import (
	"context"
	"fmt"
	"time"

	"devinfo-cni.io/pkg/dra/devices/inventory"
)

const (
	labelsPatience = 10 * time.Second // timeout of the request to the API server
	labelsRetry    = 10 * time.Second // wait after a failure
)

// readLabels reads the labels of the Node object if rules need them, at most once per half poll interval. After a
// failure it keeps the last known labels and schedules another publication of the slices.
func (n *Node) readLabels(ctx context.Context) {
	if !n.Inventory.Rules.SelectNodes() || time.Now().Before(n.nextLabels) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, labelsPatience)
	defer cancel()
	labels, err := n.Inventory.Labels(ctx)
	if err != nil {
		n.Log.Error("cannot read the labels of the Node object: using the last known ones", "known", n.selected.Load() != nil, "error", err)
		n.nextLabels = time.Now().Add(labelsRetry)
		time.AfterFunc(labelsRetry, n.Publish)
		return
	}
	n.nextLabels = time.Now().Add(n.Inventory.Times.Poll / 2)
	rules := n.Inventory.Rules.On(labels)
	n.selected.Store(&rules)
}

// rules returns the rules that apply to this node, or an error while the labels that they need are unknown.
func (n *Node) rules() (inventory.Rules, error) {
	if !n.Inventory.Rules.SelectNodes() {
		return n.Inventory.Rules, nil
	}
	if rules := n.selected.Load(); rules != nil {
		return *rules, nil
	}
	return inventory.Rules{}, fmt.Errorf("%s: rules select nodes, but the labels of this Node object are not known yet", n.Inventory.File)
}
