package devices

import (
	"context"
	"fmt"
	"time"

	"devinfo-cni.io/pkg/dra/devices/inventory"
)

const (
	labelsPatience = 10 * time.Second // for the API server's answer
	labelsRetry    = 10 * time.Second // after a failure
)

// readLabels reads the labels of the Node object, at most once in half a poll, if the rules need them. If that
// fails the last known labels stay, and the node is published again soon.
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
		n.Log.Error("cannot read the labels of the Node object: the last known ones apply", "known", n.labels.known, "error", err)
		n.labels.next = time.Now().Add(labelsRetry) // so there is one timer at a time
		time.AfterFunc(labelsRetry, n.Publish)
		return
	}
	n.labels = nodeLabels{known: true, next: time.Now().Add(n.Inventory.Times.Poll / 2), rules: n.Inventory.Rules.On(labels)}
}

// nodeLabels are the rules as they apply to the labels of the Node object.
type nodeLabels struct {
	known bool
	next  time.Time // of the next read
	rules inventory.Rules
}

// rules returns the rules that apply to this node. It fails while rules need labels that are unknown.
func (n *Node) rules() (inventory.Rules, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.Inventory.Rules.SelectNodes():
		return n.Inventory.Rules, nil
	case !n.labels.known:
		return inventory.Rules{}, fmt.Errorf("%s: rules select nodes, and the labels of this Node object are not known yet", n.Inventory.File)
	}
	return n.labels.rules, nil
}
