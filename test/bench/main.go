// Bench measures what the plugin costs against programs that do the least: a Go
// hello, and the reference plugins tuning and sbr. Times are ratios of medians of
// runs that take turns, because absolute ones differ from hour to hour. It fails
// when a gate is missed.
//
//	make bench
//
// It runs in namespaces of its own (package sandbox), with all state on tmpfs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/test/sandbox"
)

var (
	bin    = flag.String("bin", "bin", "`directory` of the programs; its folder bench has hello and peak")
	hosts  = flag.String("hosts", "testdata/hosts", "`directory` of captured hosts")
	rounds = flag.Int("rounds", 200, "how often each program runs; at least 100")
)

func main() {
	flag.Parse()
	runtime.GOMAXPROCS(2)
	sandbox.Run(*bin, bench)
}

// parts of the benchmark, in order; each adds rows to the table.
var parts = []func(*table) error{version, addDel, cdi, many, memory, size, discoveries}

func bench(signals <-chan os.Signal, _ bool) error {
	host, err := hosttxt.Load(filepath.Join(*hosts, "mlx5-legacy.txtar"))
	if err != nil {
		return err
	}
	if err := setUp(host); err != nil {
		return err
	}
	warnIfBusy()
	t := &table{}
	for _, part := range parts {
		if err := part(t); err != nil {
			return err
		}
		select {
		case sig := <-signals:
			return fmt.Errorf("%v", sig)
		default:
		}
	}
	t.print(os.Stdout)
	if t.missed > 0 {
		return errors.New("gates missed")
	}
	return nil
}

// warnIfBusy says when others use the processors: then the longer of two programs
// is interrupted more often, and its ratio is too high.
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
