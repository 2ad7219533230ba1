package httpstatus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/core/httpstatus"
	"devinfo-cni.io/pkg/core/httpstatus/httpstatustest"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

func TestHealthReportsEveryCheck(t *testing.T) {
	var optional, needed error
	address := httpstatustest.Free(t)
	defer served(t, address, prometheus.NewRegistry(),
		httpstatus.Check{Name: "a", Optional: true, Ask: func() error { return optional }}, httpstatus.Check{Name: "b", Ask: func() error { return needed }})()
	for _, test := range []struct {
		optional, needed error
		want             string
	}{
		{nil, nil, "200 OK\n[+] a\n[+] b\n"},
		{nil, errors.New("disk full"), "503 Service Unavailable\n[+] a\n[-] b: disk full\n"},
		{errors.New("away"), nil, "200 OK\n[-] a: away\n[+] b\n"},
		{errors.New("away"), errors.New("disk full"), "503 Service Unavailable\n[-] a: away\n[-] b: disk full\n"},
	} {
		optional, needed = test.optional, test.needed
		got, err := httpstatustest.Get(address, "/healthz")
		difftest.Must(t, err)
		difftest.Equal(t, got, test.want)
	}
}

func TestServeServesUntilStopped(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "a_total"})
	registry.MustRegister(counter)
	address := httpstatustest.Free(t)
	stop := served(t, address, registry)
	for path, want := range map[string]string{"/healthz": "", "/metrics": "a_total 0"} {
		text, err := httpstatustest.Get(address, path)
		difftest.Must(t, err)
		difftest.Contains(t, text, "200 OK\n", want)
	}
	stop()
	listener, err := net.Listen("tcp", address)
	difftest.Must(t, err, listener.Close())
}

// The empty address would otherwise be a port of all interfaces that the kernel chooses.
func TestWithoutAnAddressNothingIsServed(t *testing.T) {
	var none context.Context // a server would derive one from it, which panics
	httpstatus.Serve(none, "", nil, nil)()
}

func TestAddressNeedsAPort(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:9810": true, "[::1]:0": true, ":65535": true, ":65536": false, ":9a": false, ":http": false, ":": false, "9810": false, "::1:9810": false,
	} {
		difftest.Same(t, address, httpstatus.Valid(address), want)
	}
}

// served starts Serve and waits until it replies.
func served(t *testing.T, address string, metrics prometheus.Gatherer, checks ...httpstatus.Check) (stop func()) {
	t.Helper()
	stop = httpstatus.Serve(t.Context(), address, metrics, slog.New(slog.NewTextHandler(t.Output(), nil)), checks...)
	httpstatustest.WaitHealth(t, address, "200 ")
	return stop
}

func TestServeLogsBusyAddressOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	difftest.Must(t, err)
	defer taken.Close()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		stop := httpstatus.Serve(t.Context(), taken.Addr().String(), prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
		time.Sleep(10 * time.Minute)
		stop()
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "address already in use") {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// gathering is a gatherer that blocks until the channel is closed.
type gathering chan struct{}

func (g gathering) Gather() ([]*dto.MetricFamily, error) {
	<-g
	return nil, nil
}

func TestRequestsAreLimited(t *testing.T) {
	slow := make(gathering)
	address := httpstatustest.Free(t)
	defer served(t, address, slow)()
	answer, err := httpstatustest.Get(address, "/healthz?"+strings.Repeat("x", 24<<10))
	difftest.Must(t, err)
	difftest.Contains(t, answer, "431 Request Header Fields Too Large")
	const many = 20
	codes := make(chan string, many)
	for range many {
		go func() {
			answer, _ := httpstatustest.Get(address, "/metrics")
			code, _, _ := strings.Cut(answer, " ")
			codes <- code
		}()
	}
	for range many - 4 {
		difftest.Equal(t, <-codes, "503")
	}
	close(slow)
	for range 4 {
		difftest.Equal(t, <-codes, "200")
	}
}

// A pod that opens connections must not use up the node's memory, nor keep out the kubelet's probe, whose host is 127.0.0.1.
func TestOthersHaveFewConnections(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		lo, err := netlink.LinkByName("lo")
		difftest.Must(t, err)
		pod := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(32, 32)}}
		difftest.Must(t, netlink.LinkSetUp(lo), netlink.AddrAdd(lo, pod))
		defer served(t, ":9810", prometheus.NewRegistry())()
		open := func(address string) (answered bool) {
			c, err := net.Dial("tcp", address)
			difftest.Must(t, err)
			t.Cleanup(func() { c.Close() })
			_, _ = c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n"))
			n, _ := c.Read(make([]byte, 1))
			return n > 0
		}
		const most = 100
		for n := range 2 * most {
			difftest.Same(t, fmt.Sprint("connection ", n+1, " is answered"), open("192.0.2.1:9810"), n < most)
		}
		difftest.Same(t, "the kubelet is answered", open("127.0.0.1:9810"), true)
	})
}
