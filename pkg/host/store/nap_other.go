//go:build !linux

package store

import "time"

func nap(d time.Duration) { time.Sleep(d) }
