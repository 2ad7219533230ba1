// Package httpstatustest asks a program for its health and metrics.
package httpstatustest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// Free returns an unused address.
func Free(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	difftest.Must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// Get returns the status and the body of an answer, such as "200 OK\n[+] lock\n".
func Get(address, path string) (string, error) {
	answer, err := http.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.Status + "\n" + string(text), err
}

// WaitHealth waits until /healthz contains all parts.
func WaitHealth(t testing.TB, address string, parts ...string) {
	t.Helper()
	difftest.Eventually(t, fmt.Sprintf("/healthz of %s contains %q", address, parts), func() bool {
		text, _ := Get(address, "/healthz")
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	})
}
