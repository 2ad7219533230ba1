// Demo shows the plugin's work from ADD to DEL with the real programs: cnitool as the runtime, reference plugins, and
// first the network card of this machine. It also checks the results that it shows.
//
//	make demo
//
// It runs in its own namespaces (package sandbox), so it leaves nothing behind. Namespaces of an ordinary user do not
// contain the machine's card. For such a user macvlan is on a veth, and the device comes from a captured host.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/sandbox"
)

var (
	bin   = flag.String("bin", "bin", "`directory` of devinfo, cnitool and macvlan")
	hosts = flag.String("hosts", "testdata/hosts", "`directory` of captured hosts")
)

func main() {
	flag.Parse()
	sandbox.Need(*bin, "make demo", "devinfo", "cnitool", "macvlan")
	sandbox.Run(*bin, demo)
}

func demo(signals <-chan os.Signal, ownNet bool) error {
	captured := map[string]*capturefile.Host{}
	for _, name := range []string{"igb-sriov", "vdpa-vf"} {
		h, err := capturefile.Load(filepath.Join(*hosts, name+".txtar"))
		if err != nil {
			return err
		}
		captured[name] = h
	}
	if err := errors.Join(os.MkdirAll(nets, 0o755), os.WriteFile(nets+"/userspace", []byte(userspace), 0o755), linktest.MakeNetns(pod)); err != nil {
		return err
	}
	first, err := cardScene(ownNet)
	if err != nil {
		return err
	}
	for n, s := range append([]scene{first}, scenes...) {
		if n == 1 && !ownNet {
			// The remaining scenes do not need the machine's network.
			if err := sandbox.Leave(); err != nil {
				return err
			}
		}
		if err := s.play(n+1, captured[s.host]); err != nil {
			return fmt.Errorf("scene %d: %w", n+1, err)
		}
		select {
		case sig := <-signals:
			return fmt.Errorf("%v", sig)
		default:
		}
	}
	if failed > 0 {
		return errors.New("not everything was as it should be: see \"WRONG\" above")
	}
	fmt.Printf("\nAll as it should be, and nothing of it is left.\n")
	return nil
}
