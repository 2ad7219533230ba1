package commandline

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/test/difftest"
)

func TestProgressIsShownAfterTwoSecondsAndRemoved(t *testing.T) {
	for took, want := range map[time.Duration]string{
		1900 * time.Millisecond: "",
		3100 * time.Millisecond: "\rreading pods: 2 s\rreading pods: 3 s\r\x1b[K",
	} {
		synctest.Test(t, func(t *testing.T) {
			var screen bytes.Buffer
			done := progress(&screen, "reading pods")
			time.Sleep(took)
			done()
			done()
			difftest.Same(t, took.String(), screen.String(), want)
		})
	}
	var pipe bytes.Buffer
	Progress(&pipe, "reading pods")()
	difftest.Same(t, "a pipe", pipe.String(), "")
}
