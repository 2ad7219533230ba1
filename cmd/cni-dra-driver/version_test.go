package main

import (
	"bytes"
	"testing"

	"devinfo-cni.io/pkg/build"
)

func TestItSaysItsVersionAsAllProgramsDo(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		var out bytes.Buffer
		cmd := command()
		cmd.SetArgs([]string{arg})
		cmd.SetOut(&out)
		if err := cmd.Execute(); err != nil || out.String() != "cni-dra-driver "+build.Read().String()+"\n" {
			t.Errorf("%s: %q, %v", arg, out.String(), err)
		}
	}
}
