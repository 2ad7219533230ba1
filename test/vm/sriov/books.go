package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// books is the plugin's directory, by its default cniDir.
const books = "/var/lib/cni/sriov"

// note is what ADD leaves for DEL.
type note struct {
	DeviceID string
	VLAN     bool // ADD has set one
	Was      state
}

func pathOf(args *skel.CmdArgs) string {
	return filepath.Join(books, args.ContainerID+"-"+args.IfName)
}

func (n note) save(args *skel.CmdArgs) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return os.WriteFile(pathOf(args), data, 0o600)
}

func recall(args *skel.CmdArgs) (n note, ok bool, err error) {
	data, err := os.ReadFile(pathOf(args))
	if errors.Is(err, fs.ErrNotExist) {
		return n, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	return n, err == nil, err
}

func forget(args *skel.CmdArgs) { _ = os.Remove(pathOf(args)) }

func lockOf(address string) string { return filepath.Join(books, "pci", address) }

// lock keeps other processes from the function. It makes the lock's file.
func lock(address string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Join(books, "pci"), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(lockOf(address), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", address, err), file.Close())
	}
	return func() { file.Close() }, nil
}

// allocated gives the network namespace that has the function; "" = none that exists.
func allocated(address string) (netns string) {
	data, err := os.ReadFile(lockOf(address))
	if err != nil {
		return ""
	}
	holder, err := ns.GetNS(string(data))
	if err != nil {
		_ = os.Remove(lockOf(address))
		return ""
	}
	holder.Close()
	return string(data)
}

func allocate(address, netns string) error {
	return os.WriteFile(lockOf(address), []byte(netns), 0o600)
}

func release(address string) error { return os.Remove(lockOf(address)) }
