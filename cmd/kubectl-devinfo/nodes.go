package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

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
	askedAtA   = 8  // at a time
	patience   = 15 * time.Second
)

// askNodes asks the nodes for the devices of attachments that the API lacks: devinfoctl list,
// in the agents' pods. It says what is not known for that.
func (t *tool) askNodes(ctx context.Context, list []cluster.Attachment) error {
	nodes := cluster.Deviceless(list)
	if t.fromNodes == fromNever || len(nodes) == 0 {
		return nil
	}
	if left := len(nodes) - askedNodes; t.fromNodes == fromAuto && left > 0 {
		t.note("%d nodes with networks of which the API names no device were not asked for it: %s; --from-nodes=always asks all, --node one", left, few(nodes[askedNodes:]))
		nodes = nodes[:askedNodes]
	}
	answers := make([]answer, len(nodes))
	slots := make(chan struct{}, askedAtA)
	var all sync.WaitGroup
	for n, node := range nodes {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answers[n] = t.askNode(ctx, node)
		})
	}
	all.Wait()
	var silent []string
	var why error
	for n, a := range answers {
		if a.err != nil {
			silent, why = append(silent, nodes[n]), a.err
			continue
		}
		cluster.Fill(list, nodes[n], a.records)
	}
	if len(silent) > 0 {
		t.note("devices of networks that the API does not name are not known of %s: %v", few(silent), why)
	}
	return ctx.Err()
}

type answer struct {
	records []cluster.Recorded
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
	var list struct{ Attachments []cluster.Recorded }
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

func validFromNodes(value string) error {
	if slices.Contains([]string{fromAuto, fromNever, fromAlways}, value) {
		return nil
	}
	return usage("give auto, never or always", "--from-nodes: unknown value %q", value)
}
