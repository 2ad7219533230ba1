// Load has many workers attach and detach on one node, all at once, as two runtimes
// with caches of their own do, and kills one call in twenty. What is left at the end,
// what fails without a rule that says so, and an attachment that is not as it was
// recorded fail the program.
//
//	make load
//	make load ATTACHMENTS=100 WORKERS=20 SEED=7
//
// It runs the real programs in namespaces of its own (package sandbox); only /sys is
// made up, one with a VF for each attachment. An ordinary user's pods share a few
// network namespaces. The seed decides what is done and which calls are killed, not
// how the workers' calls fall together.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/sandbox"
)

var (
	bin      = flag.String("bin", "bin", "`directory` of devinfo, devinfoctl and the reference plugins")
	total    = flag.Int("attachments", 1000, "how many there are on the node at once; at most 4000, for a bridge has 1023 ports")
	crew     = flag.Int("workers", 50, "how many calls are made at once")
	seed     = flag.Uint64("seed", 0, "what is done by chance; 0 = another one each time")
	limit    = flag.Duration("limit", 15*time.Minute, "how long it may take")
	mortally = flag.Int("kill", 15, "one call of devinfo in so many is shot at, and mostly hit; 0 = none")
)

func main() {
	flag.Parse()
	sandbox.Need(*bin, "make build peers", "devinfo", "devinfoctl", "macvlan", "bridge", "host-local")
	sandbox.Run(*bin, load)
}

// ownNetEnv says that the process is in a network namespace of its own.
const ownNetEnv = "DEVINFO_LOAD_NETNS"

func load(signals <-chan os.Signal, ownNet bool) error {
	if *total < 1 || *total > 4000 || *crew < 1 {
		return errors.New("-attachments must be 1 to 4000, and -workers 1 or more")
	}
	if !ownNet && os.Getenv(ownNetEnv) == "" {
		// A namespace is a thread's: only a new program has all its threads in it.
		if err := sandbox.Leave(); err != nil {
			return err
		}
		return unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), ownNetEnv+"=1"))
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	pods := min(*crew, *total)
	if ownNet {
		pods = min(8, pods)
	}
	fmt.Printf("%d attachments, %d workers, %d network namespaces of pods, seed %d\n", *total, *crew, pods, *seed)
	if ownNet {
		fmt.Println("as an ordinary user: pods share network namespaces")
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return run(ctx, pods)
}

// run is the load from the first call to the last look at what is left.
func run(ctx context.Context, pods int) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // orphans are ours to count
		return err
	}
	n, err := newNode(*total, pods)
	if err != nil {
		return err
	}
	l := newLedger(n, *total)
	s := newStats()
	if err := warmUp(ctx, l, s); err != nil {
		return fmt.Errorf("one attachment of each kind, alone: %w", err)
	}
	files := openFiles()
	err = work(ctx, l, s)
	s.print(os.Stdout)
	fmt.Printf("open files: %d before, %d at most, %d after\n", files, s.mostFiles, openFiles())
	if err != nil {
		return fmt.Errorf("seed %d: %w", *seed, errors.Join(err, s.failed()))
	}
	var wrong []error
	if now := openFiles(); now > files {
		wrong = append(wrong, fmt.Errorf("%d open files before, and %d after", files, now))
	}
	wrong = append(wrong, s.failed(), n.left(), noProcess())
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("seed %d: %w", *seed, err)
	}
	fmt.Println("nothing is left: no file, address, interface, process or namespace")
	return nil
}

// openFiles is how many files this process has open.
func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(list) - 1 // that of the directory
}
