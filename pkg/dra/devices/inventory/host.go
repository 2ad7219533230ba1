package inventory

import (
	"context"
	"time"

	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linkhost"
	"devinfo-cni.io/pkg/sysfs"
)

// Host is what has been read of a machine.
type Host struct {
	hostdev.Host
	// Uplinks are the interfaces that default routes lead to; nil = unknown.
	Uplinks []string
	// Uses says what the host uses interfaces for otherwise: see [link.Recorder.Uses]; nil = unknown.
	Uses map[string]string
}

// Live reads this machine: see [hostdev.Live].
func Live(sys *sysfs.FS) (Host, error) {
	host, err := hostdev.Live(sys)
	if err != nil {
		return Host{}, err
	}
	uplinks, uses, err := link.Recorder{}.Uses()
	return Host{host, append([]string{}, uplinks...), uses}, err
}

// Captured reads a host from its text file.
func Captured(file *hosttxt.Host) (Host, error) {
	links, err := linkhost.New(file)
	if err != nil {
		return Host{}, err
	}
	return Host{hostdev.Host{Sys: sysfs.New(file.Sys()), Links: links.Links, Switches: links}, links.Uplinks, links.Uses}, nil
}

// Times are those of [Watch].
type Times struct {
	Settle time.Duration // how long events are gathered: many VFs come one by one
	Poll   time.Duration // after which the host is read, whether or not there was an event
}

// DefaultTimes are those of the driver.
func DefaultTimes() Times { return Times{Settle: time.Second, Poll: time.Minute} }

// Watch calls rebuild at once, t.Settle after an event, and t.Poll after the last call, until ctx ends.
// Polling goes on after the channel of events is closed.
func Watch(ctx context.Context, events <-chan struct{}, t Times, rebuild func(context.Context)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	settling := false
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events:
			if !open {
				events = nil
			}
			if !settling { // further events do not put it off
				settling = true
				timer.Reset(t.Settle)
			}
		case <-timer.C:
			settling = false
			rebuild(ctx)
			timer.Reset(t.Poll)
		}
	}
}
