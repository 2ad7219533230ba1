package main

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/link/linktest"
)

func TestAnAgentThatWouldTakeEachNamespaceForGoneDoesNotStart(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		const dir = "/run/netns"
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			hostRoot, dir string
			propagation   uintptr
			want          string
		}{
			{"/host", dir, unix.MS_PRIVATE, "mountPropagation: HostToContainer"},
			{"/host", dir, unix.MS_SHARED, ""},
			{"/host", dir + "/elsewhere", unix.MS_PRIVATE, ""},
			{"", dir, unix.MS_PRIVATE, ""}, // on the node itself
		} {
			if err := unix.Mount("", "/run", "", test.propagation, ""); err != nil {
				t.Fatal(err)
			}
			err := (&options{hostRoot: test.hostRoot}).checkMounts(test.dir)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v: got %v", test, err)
			}
		}
	})
}
