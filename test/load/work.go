package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// work lets the workers attach everything, and when all of it is there, detach it again.
// Meanwhile both runtimes collect garbage, and somebody lists.
func work(ctx context.Context, l *ledger, s *stats) error {
	callers, err := newCallers(s, *crew+2)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	beside, rest := context.WithCancel(ctx)
	defer rest()
	var others, all, full sync.WaitGroup
	for runtime, c := range callers[*crew:] {
		others.Go(func() { c.collect(beside, l, runtime) })
	}
	others.Go(func() { watch(beside, l, s) })
	others.Go(func() { s.progress(beside, l) })
	full.Add(*crew)
	for n, c := range callers[:*crew] {
		w := &worker{caller: c, ledger: l}
		for i := n; i < len(l.all); i += *crew {
			w.mine = append(w.mine, l.all[i])
		}
		all.Go(func() {
			err := w.fill(ctx)
			full.Done()
			full.Wait() // now everything is on the node
			if err == nil {
				err = w.drain(ctx)
			}
			if err != nil {
				stop(err)
			}
		})
	}
	all.Wait()
	rest()
	others.Wait()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("not finished: %w", err)
	}
	return lastGC(ctx, l, s)
}

func newCallers(s *stats, count int) (list []*caller, err error) {
	for n := range count {
		c, err := newCaller(s, uint64(n))
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// warmUp adds, checks and deletes one attachment of each kind, and kills nothing.
func warmUp(ctx context.Context, l *ledger, s *stats) error {
	c, err := newCaller(s, 1<<32)
	if err != nil {
		return err
	}
	c.spare = true
	w := &worker{caller: c, ledger: l}
	seen := map[*kind]bool{}
	for _, a := range l.all {
		if seen[a.kind] {
			continue
		}
		seen[a.kind] = true
		if err := w.bringUp(ctx, a); err != nil {
			return err
		}
		w.check(ctx, a)
		if err := w.takeDown(ctx, a); err != nil {
			return err
		}
	}
	return s.failed()
}

// A worker has attachments of its own.
type worker struct {
	*caller
	*ledger
	mine []*attachment
}

// fill adds all attachments, and at times checks one, deletes one, or leaves one to GC.
func (w *worker) fill(ctx context.Context) error {
	for _, a := range w.mine {
		if err := w.bringUp(ctx, a); err != nil {
			return err
		}
		other := w.mine[w.chance.IntN(len(w.mine))]
		if !w.is(other, present) {
			continue
		}
		switch w.chance.IntN(6) {
		case 0, 1, 2:
			w.check(ctx, other)
		case 3:
			if err := w.takeDown(ctx, other); err != nil {
				return err
			}
			if err := w.bringUp(ctx, other); err != nil {
				return err
			}
		case 4:
			w.to(other, abandoned)
		}
	}
	for _, a := range w.mine {
		if err := w.regain(ctx, a); err != nil {
			return err
		}
		if !w.is(a, present) {
			if err := w.bringUp(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain deletes all attachments, but for those that it leaves to GC, and checks some.
func (w *worker) drain(ctx context.Context) error {
	w.chance.Shuffle(len(w.mine), func(i, j int) { w.mine[i], w.mine[j] = w.mine[j], w.mine[i] })
	for _, a := range w.mine {
		if w.chance.IntN(2) == 0 {
			w.check(ctx, a)
		}
		if w.chance.IntN(5) == 0 {
			w.to(a, abandoned)
			continue
		}
		if err := w.takeDown(ctx, a); err != nil {
			return err
		}
		w.to(a, done)
	}
	for _, a := range w.mine {
		if w.is(a, done) {
			continue
		}
		if err := w.regain(ctx, a); err != nil {
			return err
		}
		w.to(a, done)
	}
	return nil
}

// regain waits for GC to collect an attachment that was left to it, and then has its
// runtime delete it: that one may have learned of it late, and has it in its cache.
func (w *worker) regain(ctx context.Context, a *attachment) error {
	if !w.is(a, abandoned) && !w.is(a, leaving) && !w.is(a, collected) {
		return nil
	}
	for !w.is(a, collected) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return w.takeDown(ctx, a)
}

// tries is how often a call is repeated that fails, or is killed.
const tries = 20

// bringUp adds an attachment.
func (w *worker) bringUp(ctx context.Context, a *attachment) error {
	for try := range tries {
		if try > 0 && (!a.kind.first || w.chance.IntN(3) > 0) {
			if err := w.takeDown(ctx, a); err != nil {
				return err
			}
		}
		w.to(a, busy)
		if err := os.MkdirAll(filepath.Dir(a.socket()), 0o755); err != nil {
			return err
		}
		err := w.call(ctx, "ADD", a)
		if err == nil {
			if text, err := os.ReadFile(a.file()); err != nil {
				w.stats.fail("ADD", a, err)
			} else if !strings.Contains(string(text), a.kind.recorded(a)) {
				w.stats.fail("ADD", a, fmt.Errorf("the device-info file does not tell of %s: %s", a.kind.recorded(a), text))
			}
			w.to(a, present)
			return nil
		}
		w.report(ctx, "ADD", a, err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s: ADD failed %d times", a.entry(), tries)
}

// takeDown deletes an attachment.
func (w *worker) takeDown(ctx context.Context, a *attachment) error {
	w.to(a, busy)
	for range tries {
		err := w.call(ctx, "DEL", a)
		if err == nil {
			if err := a.gone(); err != nil {
				w.stats.fail("DEL", a, err)
			}
			w.to(a, absent)
			return os.RemoveAll(filepath.Dir(a.socket()))
		}
		w.report(ctx, "DEL", a, err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s: DEL failed %d times", a.entry(), tries)
}

func (w *worker) check(ctx context.Context, a *attachment) {
	if err := w.call(ctx, "CHECK", a); err != nil {
		w.report(ctx, "CHECK", a, err)
	}
}

// report books a call that failed: killed by us, refused by a rule, or a failure.
func (c *caller) report(ctx context.Context, verb string, a *attachment, err error) {
	var own *types.Error
	switch {
	case ctx.Err() != nil, c.killed:
	case errors.As(err, &own) && own.Code == types.ErrTryAgainLater:
		c.stats.count(c.stats.refusals, verb+": a delegate of a call that was killed still runs")
	case verb == "ADD" && errors.As(err, &own) && own.Code == types.ErrInvalidNetworkConfig && strings.Contains(own.Msg, " exists, since "):
		c.stats.count(c.stats.refusals, "ADD: the one before was complete when it was killed: DEL first")
	default:
		c.stats.fail(verb, a, err)
	}
}
