package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/audit"
	"devinfo-cni.io/pkg/ctl/node"
)

// A change is one line of list --watch if the output is not a terminal.
type change struct {
	Event      string          `json:"event"` // "added", "changed" or "removed"
	Time       time.Time       `json:"time"`
	Attachment node.Attachment `json:"attachment"`
	Before     audit.State     `json:"before,omitempty"` // of "changed"
}

// watch shows the attachments until the context ends, which is success.
func (t *tool) watch(ctx context.Context, h *host, wanted filter, interval time.Duration) error {
	show := t.changes(h)
	resized := make(chan os.Signal, 1)
	if (t.output == "table" || t.output == "wide") && isTerminal(t.stdout) {
		show = t.screen(h)
		signal.Notify(resized, unix.SIGWINCH)
		defer signal.Stop(resized)
		fmt.Fprint(t.stdout, enterScreen)
		defer fmt.Fprint(t.stdout, leaveScreen)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		list, err := wanted.of(h)
		if err == nil {
			err = show(list)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-resized:
		}
	}
}

// What a terminal is told (ECMA-48, and the alternate screen of xterm).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K" // from the cursor to the end
	clearBelow  = "\x1b[J"
)

// screen draws the list in place, at one blow, and only when it has changed: nothing
// flickers.
func (t *tool) screen(h *host) func([]node.Attachment) error {
	drawn := ""
	return func(list []node.Attachment) error {
		lines := t.listLines(h, list)
		if height := t.height(); height > 0 && len(lines) > height {
			hidden := fmt.Sprintf("… and %d more", len(lines)-height+1)
			lines = append(lines[:height-1], hidden)
		}
		now := home + strings.Join(lines, clearLine+"\n") + clearLine + clearBelow
		if now == drawn {
			return nil
		}
		drawn = now
		_, err := fmt.Fprint(t.stdout, now)
		return err
	}
}

// height is the number of lines of the terminal; 0 = it does not say.
func (t *tool) height() int {
	size, err := unix.IoctlGetWinsize(int(t.stdout.(*os.File).Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Row)
}

// changes prints what has changed since the list before; at first, everything.
func (t *tool) changes(h *host) func([]node.Attachment) error {
	before := map[node.ID]node.Attachment{}
	return func(list []node.Attachment) error {
		var all []change
		for _, a := range list {
			old, there := before[a.ID()]
			switch {
			case !there:
				all = append(all, change{Event: "added", Attachment: a})
			case !old.Same(a):
				all = append(all, change{Event: "changed", Attachment: a, Before: old.State})
			}
			delete(before, a.ID())
		}
		for _, a := range before {
			all = append(all, change{Event: "removed", Attachment: a})
		}
		slices.SortStableFunc(all, func(a, b change) int { return strings.Compare(a.Attachment.String(), b.Attachment.String()) })
		clear(before)
		for _, a := range list {
			before[a.ID()] = a
		}
		for _, c := range all {
			c.Time = t.clock().UTC()
			if err := t.changed(c); err != nil {
				return err
			}
		}
		return nil
	}
}

func (t *tool) changed(c change) error {
	switch t.output {
	case "json":
		return json.NewEncoder(t.stdout).Encode(c) // on one line, where encode indents
	case "yaml":
		text, err := encode(c, t.output)
		if err == nil {
			_, err = fmt.Fprintf(t.stdout, "---\n%s", text)
		}
		return err
	}
	a := c.Attachment
	words := []string{c.Time.Format(time.RFC3339), c.Event, printable(a.Holder()), printable(cmp.Or(a.Network, "claim "+a.Claim)), printable(a.IfName)}
	if a.Device != "" {
		words = append(words, a.Type, printable(a.Device))
	}
	if c.Event == "changed" {
		words = append(words, "from", string(c.Before), "to")
	}
	if c.Event != "removed" {
		words = append(words, string(a.State))
	}
	_, err := fmt.Fprintln(t.stdout, strings.Join(words, " "))
	return err
}
