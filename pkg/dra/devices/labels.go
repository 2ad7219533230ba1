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
	if !n.Inventory.Rules.SelectNodes() {
		return
	}
	n.mu.Lock()
	early := time.Now().Before(n.labels.next)
	n.mu.Unlock()
	if early {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, labelsPatience)
	defer cancel()
	labels, err := n.Inventory.Labels(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.Log.Error("cannot read the labels of the Node object: using the last known ones", "known", n.labels.known, "error", err)
		n.labels.next = time.Now().Add(labelsRetry) // limits the number of timers to one
		time.AfterFunc(labelsRetry, n.Publish)
		return
	}
	n.labels = nodeLabels{known: true, next: time.Now().Add(n.Inventory.Times.Poll / 2), rules: n.Inventory.Rules.On(labels)}
}

// nodeLabels contains the rules that apply to the labels of the Node object.
type nodeLabels struct {
	known bool      // the labels were read at least once
	next  time.Time // time of the next read
	rules inventory.Rules
}

// rules returns the rules that apply to this node, or an error while the labels that they need are unknown.
func (n *Node) rules() (inventory.Rules, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.Inventory.Rules.SelectNodes():
		return n.Inventory.Rules, nil
	case !n.labels.known:
		return inventory.Rules{}, fmt.Errorf("%s: rules select nodes, but the labels of this Node object are not known yet", n.Inventory.File)
	}
	return n.labels.rules, nil
}
