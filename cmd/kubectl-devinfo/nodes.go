package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/util/workqueue"

	"devinfo-cni.io/pkg/cluster"
)

// The values of --from-nodes.
const (
	fromAuto   = "auto"
	fromNever  = "never"
	fromAlways = "always"
)

// The bounds of asking nodes.
const (
	askedNodes = 16 // by auto
	patience   = 15 * time.Second
)

// ask fills in the devices of attachments that the API does not name: it runs devinfoctl list in the
// agents' pods, once on each node. It notes which nodes it did not ask, and which did not answer.
func (t *tool) ask(ctx context.Context, list []cluster.Network) {
	nodes := cluster.Deviceless(list)
	if t.fromNodes == fromNever {
		return
	}
	if t.fromNodes == fromAuto && len(nodes) > askedNodes {
		left := nodes[askedNodes:]
		t.note("%d nodes with networks of which the API names no device were not asked for it: %s; --from-nodes=always asks all, --node one", len(left), few(left))
		nodes = nodes[:askedNodes]
	}
	records, errs := make([][]cluster.Network, len(nodes)), make([]error, len(nodes))
	workqueue.ParallelizeUntil(context.Background(), parallel, len(nodes), func(n int) { records[n], errs[n] = t.recordsOf(ctx, nodes[n]) })
	var silent []string
	var why error
	for n, node := range nodes {
		cluster.Fill(list, node, records[n])
		if errs[n] != nil {
			silent, why = append(silent, node), errs[n]
		}
	}
	if len(silent) > 0 {
		t.note("devices of networks that the API does not name are not known of %s: %v", few(silent), why)
	}
}

// recordsOf returns the attachments that the agent of a node has on record.
func (t *tool) recordsOf(ctx context.Context, node string) ([]cluster.Network, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out, errOut bytes.Buffer
	if err := t.onNode(ctx, node, []string{"list", "-o", "json"}, &out, &errOut); err != nil {
		if said := strings.TrimSpace(errOut.String()); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, err
	}
	var list struct{ Attachments []cluster.Network }
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		return nil, errors.New("its devinfoctl prints no list of attachments: install the devinfo of this kubectl devinfo there")
	}
	return list.Attachments, nil
}

func few(names []string) string {
	const shown = 5
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if len(names) > shown {
		text += fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return text
}
