package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/test/sandbox"
)

// collect has a runtime collect garbage, now in this network and now in that, until the
// context ends.
func (c *caller) collect(ctx context.Context, l *ledger, runtime int) {
	for ctx.Err() == nil {
		c.collectOnce(l, runtime, kinds[c.chance.IntN(len(kinds))].network)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(c.chance.IntN(200)) * time.Millisecond):
		}
	}
}

func (c *caller) collectOnce(l *ledger, runtime int, network string) {
	valid, out := l.valid(network, c.chance)
	err := c.gc(context.Background(), runtime, network, valid)
	if err != nil {
		c.report(context.Background(), "GC", nil, err)
		for _, a := range out {
			l.to(a, abandoned) // it may well be collected
		}
		return
	}
	for _, a := range out {
		if err := a.gone(); err != nil {
			c.stats.fail("GC", a, err)
		}
		l.to(a, collected)
	}
}

// lastGC is that of runtimes that have nothing left.
func lastGC(ctx context.Context, l *ledger, s *stats) error {
	c, err := newCaller(s, 1<<32+1)
	if err != nil {
		return err
	}
	c.spare = true
	for runtime := range c.cni {
		for _, k := range kinds {
			if err := c.gc(ctx, runtime, k.network, []types.GCAttachment{}); err != nil {
				return fmt.Errorf("the last GC of %s: %w", k.network, err)
			}
		}
	}
	return nil
}

// watch lists the attachments over and over. What was there all the while must be in
// the list, as it should be, and what was not there must not.
func watch(ctx context.Context, l *ledger, s *stats) {
	for ctx.Err() == nil {
		there, not := l.still(present), l.still(absent)
		begin := time.Now()
		list, err := listed()
		s.took("list", time.Since(begin))
		if err != nil {
			s.fail("list", nil, err)
		}
		l.unchanged(there)
		l.unchanged(not)
		for a := range there {
			if got := list[filepath.Base(a.entry())]; got != "Ok" {
				s.fail("list", a, fmt.Errorf("its state is %q", got))
			}
		}
		for a := range not {
			if got := list[filepath.Base(a.entry())]; got != "" {
				s.fail("list", a, fmt.Errorf("its state is %q, and it is gone", got))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// listed gives the state of each attachment that devinfoctl lists.
func listed() (map[string]string, error) {
	cmd := exec.Command(filepath.Join(sandbox.Bin, "devinfoctl"), "list", "-o", "json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, &stderr)
	}
	var list struct {
		Attachments []struct{ Network, ContainerID, Interface, State, Why string }
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, err
	}
	states := map[string]string{}
	for _, a := range list.Attachments {
		name := a.Network + "@" + a.ContainerID + "@" + a.Interface
		if states[name] != "" {
			err = errors.Join(err, fmt.Errorf("%s is listed twice", name))
		}
		states[name] = a.State
	}
	return states, err
}
