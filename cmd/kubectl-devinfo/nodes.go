package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// ask fills in the devices of attachments that the API lacks, as agents know them by devinfoctl
// list, run in their pods, each once.
func (r *reading) ask(ctx context.Context, list []cluster.Network) {
	var nodes []string
	for _, node := range cluster.Deviceless(list) {
		_, asked := r.answers[node]
		switch {
		case r.fromNodes == fromNever || asked || slices.Contains(r.left, node):
		case r.fromNodes == fromAuto && len(r.answers)+len(nodes) == askedNodes:
			r.left = append(r.left, node)
		default:
			nodes = append(nodes, node)
		}
	}
	answers := make([]answer, len(nodes))
	workqueue.ParallelizeUntil(context.Background(), asked, len(nodes), func(n int) { answers[n] = r.askNode(ctx, nodes[n]) })
	for n, node := range nodes {
		r.answers[node] = answers[n]
	}
	for node, a := range r.answers {
		cluster.Fill(list, node, a.records)
	}
}

// report says what is not known because an agent was not asked, or did not answer, or because it
// cannot be read.
func (r *reading) report(ctx context.Context) error {
	if len(r.left) > 0 {
		r.note("%d nodes with networks of which the API names no device were not asked for it: %s; --from-nodes=always asks all, --node one", len(r.left), few(r.left))
	}
	var silent []string
	var why error
	for _, node := range slices.Sorted(maps.Keys(r.answers)) {
		if err := r.answers[node].err; err != nil {
			silent, why = append(silent, node), err
		}
	}
	if len(silent) > 0 {
		r.note("devices of networks that the API does not name are not known of %s: %v", few(silent), why)
	}
	if len(r.unclear) > 0 {
		r.note("the devices of %s are not known: -o wide says why", few(r.unclear))
	}
	return ctx.Err()
}

type answer struct {
	records []cluster.Network
	err     error
}

func (t *tool) askNode(ctx context.Context, node string) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out, errOut bytes.Buffer
	if a.err = t.onNode(ctx, node, []string{"list", "-o", "json"}, &out, &errOut); a.err != nil {
		if said := strings.TrimSpace(errOut.String()); said != "" {
			a.err = fmt.Errorf("%w: %s", a.err, said)
		}
		return a
	}
	var list struct{ Attachments []cluster.Network }
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		a.err = errors.New("its devinfoctl prints no list of attachments: install the devinfo of this kubectl devinfo there")
	}
	a.records = list.Attachments
	return a
}

// few names a few of many.
func few(names []string) string {
	const shown = 5
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if len(names) > shown {
		text += fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return text
}
