// Bench compares the cost of the plugin with Multus and with simple reference plugins. A run measures the plugins in
// turn, and divides the medians of their times, because absolute times vary from hour to hour. Bench fails if the
// median of a ratio over all runs exceeds its gate, because ratios vary from run to run.
//
//	make bench
//
// It runs in its own namespaces (package sandbox), with all state on tmpfs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/test/sandbox"
)

var (
	bin    = flag.String("bin", "bin", "`directory` of the programs; its folder bench has multus and peak")
	hosts  = flag.String("hosts", "testdata/hosts", "`directory` of captured hosts")
	runs   = flag.Int("runs", 5, "how often everything is measured")
	rounds = flag.Int("rounds", 200, "how often each program starts in a run; at least 100")
	former = flag.String("former", "", "an older build of the plugin, below -bin, to compare with; \"\" = none")
	only   = flag.String("only", "", "the parts to run, such as version,addDel; all if empty")
)

func main() {
	flag.Parse()
	runtime.GOMAXPROCS(2)
	sandbox.Run(*bin, bench)
}

// parts are the parts of the benchmark in order. Each adds rows to the table.
var parts = []struct {
	name string
	run  func(*table) error
}{
	{"version", version}, {"addDel", addDel}, {"many", many}, {"memory", memory},
	{"delegating", delegating}, {"journal", journals},
}

func bench(bool) error {
	host, err := capturefile.Load(filepath.Join(*hosts, "mlx5-legacy.txtar"))
	if err != nil {
		return err
	}
	if err := setUp(host); err != nil {
		return err
	}
	warnIfBusy()
	t := &table{}
	for range *runs {
		if err := t.run(); err != nil {
			return err
		}
	}
	missed := t.settle()
	t.print(os.Stdout)
	if missed > 0 {
		return errors.New("gates missed")
	}
	return nil
}

// run measures all parts once.
func (t *table) run() error {
	for _, part := range parts {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), part.name) {
			continue
		}
		if err := part.run(t); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// warnIfBusy prints a warning if other processes use the processors. They interrupt the longer of two programs more
// often, so its ratio is too high.
func warnIfBusy() {
	text, err := os.ReadFile("/proc/loadavg")
	var load float64
	if err != nil {
		return
	}
	if _, err := fmt.Sscan(string(text), &load); err == nil && load > 1 {
		fmt.Fprintf(os.Stderr, "bench: the machine is busy (load %.1f): ratios of times will be too high\n", load)
	}
}
