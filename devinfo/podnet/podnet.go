// Package podnet tells an application in a container which networks its pod has, and by
// which devices. It merges what the container finds of
//
//   - the directory of devinfo-agent, or of a CDI device: [Directory];
//   - the device metadata of its resource claims (KEP-5304): [Claims];
//   - the pod's annotation network-status, if the pod mounts it: [Annotations].
//
// It needs the standard library only. The kernel has more to say of an interface that is
// in the container: net.InterfaceByName. It is not for programs on the node.
package podnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"time"

	"devinfo-cni.io/devinfo"
)

// Where things are in a container, below its root.
const (
	Directory   = "var/run/k8s.cni.cncf.io/devinfo"
	Claims      = "var/run/kubernetes.io/dra-device-attributes"
	Annotations = "etc/podnetinfo/annotations" // where a pod should mount them: see [Container]
)

// A Network is one attachment of the pod. What no source knows is zero.
type Network struct {
	// Name is that of the CNI network, the claim's and its request's (CLAIM/REQUEST), or
	// Multus' (NAMESPACE/NAME), by the first source in this order that has the network.
	Name      string
	Interface string // also of a device that is no interface to the kernel; "" = not known
	Default   bool   // the pod's first network, which only network-status has

	Device    *devinfo.Info  // nil = it has none of its own
	MAC       string         // as its source spells it
	MTU       int            // bytes
	Addresses []netip.Prefix // network-status has no lengths: /32 and /128 then
}

// A Container is where to look. The zero Container is the one that the process is in.
type Container struct {
	Root fs.FS // of the container; nil = "/"

	// Status is a file of the downward API, with metadata.annotations or the value of
	// metadata.annotations['k8s.v1.cni.cncf.io/network-status']; "" = [Annotations].
	Status string
}

// Networks returns the networks of the process' own pod: see [Container.Networks].
func Networks() ([]Network, error) { return Container{}.Networks() }

// Networks returns the pod's networks as they are known now, each once: first the agent's,
// then those of claims, then those that only network-status has. A source that is not there
// is no error. With an error, which names each file that cannot be used, come the networks
// of the other files.
func (c Container) Networks() ([]Network, error) {
	if c.Root == nil {
		c.Root = os.DirFS("/")
	}
	if c.Status == "" {
		c.Status = Annotations
	}
	var all networks
	err := errors.Join(
		each(c.Root, Directory, "network-info.json", all.networkInfo),
		each(c.Root, Directory, ".json", all.infoFile),
		each(c.Root, Claims, "-metadata.json", all.metadata),
		each(c.Root, strings.TrimPrefix(c.Status, "/"), "", all.status),
	)
	return all, err
}

// Watch yields the networks, and again whenever they, or the error, have changed, until ctx
// is done. It looks each interval: the agent's directory is up to date within two seconds.
// A container that had no directory when it started is never given one.
func (c Container) Watch(ctx context.Context, interval time.Duration) iter.Seq2[[]Network, error] {
	return func(yield func([]Network, error) bool) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		var last string
		for ctx.Err() == nil {
			list, err := c.Networks()
			if now := text(list, err); now != last {
				if !yield(list, err) {
					return
				}
				last = now
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}
}

// text tells lists apart, and errors by what they say; it is never "".
func text(list []Network, err error) string {
	var b strings.Builder
	for _, n := range list {
		var device []byte
		if n.Device != nil {
			device = n.Device.Encode()
		}
		n.Device = nil
		fmt.Fprintf(&b, "%+v %s\n", n, device)
	}
	return fmt.Sprint(b.String(), err)
}

// each reads the files of the name's end below a path, or at it.
func each(root fs.FS, path, end string, read func(path string, data []byte) error) error {
	var bad []error
	err := fs.WalkDir(root, path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, end) {
			var data []byte
			if data, err = fs.ReadFile(root, path); err == nil {
				err = read(path, data)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			bad = append(bad, fmt.Errorf("%s: %w", path, err))
		}
		return nil
	})
	return errors.Join(append(bad, err)...)
}

// networks are those that were found so far.
type networks []Network

// add takes what another source says, in the place of what is not known yet.
func (all *networks) add(n Network) {
	for at := range *all {
		if known := &(*all)[at]; known.is(n) {
			into, from := reflect.ValueOf(known).Elem(), reflect.ValueOf(n)
			for f := range into.NumField() {
				if into.Field(f).IsZero() {
					into.Field(f).Set(from.Field(f))
				}
			}
			return
		}
	}
	*all = append(*all, n)
}

// is tells a network by its interface or, where a source has none, by its device.
func (n *Network) is(other Network) bool {
	if n.Interface != "" && other.Interface != "" {
		return n.Interface == other.Interface
	}
	device := identity(n.Device)
	return device != "" && device == identity(other.Device)
}

// identity is what a device has for itself; "" = nothing is known.
func identity(info *devinfo.Info) string {
	if info == nil {
		return ""
	}
	key := map[devinfo.Type]string{devinfo.TypePCI: "pci-address", devinfo.TypeVDPA: "parent-device", devinfo.TypeVhostUser: "path", devinfo.TypeMemif: "path"}
	return info.Texts()[key[info.Type]]
}
