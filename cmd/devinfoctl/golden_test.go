package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

const hosts = "../../testdata/hosts/"

// outcome is what a run of the program gave.
type outcome struct {
	stdout, stderr string
	exit           int
}

// ctl runs the program.
func ctl(args ...string) outcome {
	var stdout, stderr bytes.Buffer
	exit := run(args, strings.NewReader(""), &stdout, &stderr)
	return outcome{stdout.String(), stderr.String(), exit}
}

// golden runs the program and compares all that came of it with
// testdata/golden/<name>.txt.
func golden(t *testing.T, name string, args ...string) {
	t.Helper()
	o := ctl(args...)
	got := fmt.Sprintf("$ devinfoctl %s\n%s", strings.Join(args, " "), o.stdout)
	if o.stderr != "" {
		got += "-- stderr --\n" + o.stderr
	}
	got += fmt.Sprintf("-- exit %d --\n", o.exit)
	file := filepath.Join("testdata/golden", name+".txt")
	if *update {
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -update writes it anew, if the difference is right:\n%s", file, diff)
	}
}
