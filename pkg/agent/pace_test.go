package agent

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/test/difftest"
)

func TestLongWorkPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for worked, want := range map[time.Duration]time.Duration{19: 0, 20: 60, 33: 99, 34: 100, 500: 100} {
			p := pace{time.Now()}
			time.Sleep(worked * time.Millisecond)
			for _, want := range []time.Duration{want * time.Millisecond, 0} { // the pause is no work
				began := time.Now()
				p.rest(t.Context())
				difftest.Same(t, fmt.Sprint(int(worked), " ms of work"), time.Since(began), want)
			}
		}
	})
}
