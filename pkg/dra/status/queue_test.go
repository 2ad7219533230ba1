package status_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra/status"
)

// server takes what a queue sends, and notes when.
type server struct {
	mu      sync.Mutex
	began   time.Time
	down    map[types.UID]bool // claims that it refuses
	arrived map[types.UID][]time.Duration
}

func newServer(down ...types.UID) *server {
	s := &server{began: time.Now(), down: map[types.UID]bool{}, arrived: map[types.UID][]time.Duration{}}
	for _, claim := range down {
		s.down[claim] = true
	}
	return s
}

func (s *server) send(_ context.Context, claim types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived[claim] = append(s.arrived[claim], time.Since(s.began))
	if s.down[claim] {
		return errors.New("down")
	}
	return nil
}

// times are those at which a claim was sent.
func (s *server) times(claim types.UID) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.arrived[claim])
}

func (s *server) mend(claim types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.down, claim)
}

// run runs a queue while f does, in a bubble: time passes only when all wait, and a
// goroutine that is left behind fails the test.
func run(t *testing.T, f func(t *testing.T, q *status.Queue, s *server), down ...types.UID) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(down...)
		q := &status.Queue{Send: s.send}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			q.Run(ctx)
			close(ended)
		}()
		synctest.Wait()
		f(t, q, s)
		cancel()
		<-ended
	})
}

func TestEachClaimHasItsOwnBackOff(t *testing.T) {
	run(t, func(t *testing.T, q *status.Queue, s *server) {
		q.Add("bad")
		q.Add("good")
		if q.Len() == 0 {
			t.Error("nothing is owed")
		}
		time.Sleep(1000 * time.Second)
		if q.Len() != 1 {
			t.Errorf("%d claims are owed", q.Len())
		}
		s.mend("bad")
		time.Sleep(200 * time.Second)
		q.Add("good")
		synctest.Wait()
		if q.Len() != 0 {
			t.Errorf("%d claims are owed", q.Len())
		}
		if got := inSeconds(s.times("bad")); !slices.Equal(got, []float64{0, .5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 127.5, 255.5, 511.5, 811.5, 1111.5}) {
			t.Errorf("bad was sent after %v s", got)
		}
		if got := inSeconds(s.times("good")); !slices.Equal(got, []float64{0, 1200}) {
			t.Errorf("good was sent after %v s", got)
		}
	}, "bad")
}

func inSeconds(list []time.Duration) (seconds []float64) {
	for _, d := range list {
		seconds = append(seconds, d.Seconds())
	}
	return seconds
}

func TestBackOffStartsAnewAfterSuccess(t *testing.T) {
	run(t, func(t *testing.T, q *status.Queue, s *server) {
		q.Add("a")
		time.Sleep(2 * time.Second)
		s.mend("a")
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		s.down["a"] = true
		s.mu.Unlock()
		q.Add("a")
		time.Sleep(2 * time.Second)
		if got := inSeconds(s.times("a")); !slices.Equal(got, []float64{0, .5, 1.5, 3.5, 4, 4.5, 5.5}) {
			t.Errorf("sent after %v s", got)
		}
	}, "a")
}

func TestAddSendsAtOnceWhatWaitsForItsBackOff(t *testing.T) {
	run(t, func(t *testing.T, q *status.Queue, s *server) {
		q.Add("a")
		synctest.Wait()
		s.mend("a")
		q.Add("a")
		synctest.Wait()
		if got := inSeconds(s.times("a")); !slices.Equal(got, []float64{0, 0}) || q.Len() != 0 {
			t.Errorf("sent after %v s, %d owed", got, q.Len())
		}
	}, "a")
}

func TestWhatIsForgottenIsNotSentAgain(t *testing.T) {
	run(t, func(t *testing.T, q *status.Queue, s *server) {
		q.Add("a")
		synctest.Wait()
		q.Forget("a")
		time.Sleep(time.Minute)
		if got := len(s.times("a")); got != 1 || q.Len() != 0 {
			t.Errorf("sent %d times, %d owed", got, q.Len())
		}
	}, "a")
}

func TestWhatIsAddedWhileItIsSentIsSentOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		q := &status.Queue{}
		q.Send = func(ctx context.Context, claim types.UID) error {
			if len(s.times(claim)) == 0 {
				q.Add(claim)
			}
			return s.send(ctx, claim)
		}
		ctx, cancel := context.WithCancel(t.Context())
		q.Add("a")
		go q.Run(ctx)
		synctest.Wait()
		if got := len(s.times("a")); got != 2 || q.Len() != 0 {
			t.Errorf("sent %d times, %d owed", got, q.Len())
		}
		cancel()
		synctest.Wait()
	})
}

func TestWhatIsOwedStaysOwedBeforeAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("a")
		q := &status.Queue{Send: s.send}
		q.Add("a")
		for n := range 2 {
			if q.Len() != 1 || len(s.times("a")) != n {
				t.Errorf("run %d: %d owed, sent %d times", n, q.Len(), len(s.times("a")))
			}
			ctx, cancel := context.WithCancel(t.Context())
			go q.Run(ctx)
			synctest.Wait()
			cancel()
			synctest.Wait()
		}
		q.Add("b")
		if q.Len() != 2 {
			t.Errorf("%d owed", q.Len())
		}
	})
}

func TestASlowServerDelaysNoOtherClaimAndIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		q, slow := &status.Queue{}, 0
		q.Send = func(ctx context.Context, claim types.UID) error {
			if claim == "slow" {
				slow++
				<-ctx.Done()
				return ctx.Err()
			}
			return s.send(ctx, claim)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go q.Run(ctx)
		q.Add("slow")
		q.Add("a")
		time.Sleep(time.Second)
		if len(s.times("a")) != 1 || q.Len() != 1 {
			t.Errorf("sent %d times, %d owed", len(s.times("a")), q.Len())
		}
		time.Sleep(30 * time.Second)
		if q.Len() != 1 || slow != 2 {
			t.Errorf("%d owed, sent %d times", q.Len(), slow)
		}
		cancel()
		synctest.Wait()
	})
}
