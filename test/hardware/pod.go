package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// podPrefix begins the names of the program's network namespaces, by which a later run finds them.
const podPrefix = "devinfo-try-"

const namespaces = "/run/netns/"

// newPod makes a network namespace, as a runtime does for a pod. The kernel sends no IPv6 frames of its own in it.
func newPod(name string) (path string, err error) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		here, err := netns.Get()
		if err == nil {
			err = enterNew(podPrefix + name)
			if netns.Set(here) == nil { // otherwise the thread ends, unless it is the main thread
				runtime.UnlockOSThread()
			}
			err = errors.Join(err, here.Close())
		}
		done <- err
	}()
	return namespaces + podPrefix + name, <-done
}

func enterNew(name string) error {
	handle, err := netns.NewNamed(name)
	if err != nil {
		return err
	}
	err = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
		err = nil
	}
	return errors.Join(err, handle.Close())
}

// removePods removes all network namespaces of this program. The kernel then moves NICs in them back.
func removePods() {
	paths, _ := filepath.Glob(namespaces + podPrefix + "*")
	for _, path := range paths {
		_ = unix.Unmount(path, unix.MNT_DETACH)
		_ = os.Remove(path)
	}
}

const ifName = "net1"

// An attachment is one pod's interface in a network, with the network's runtime.
type attachment struct {
	invoke.DefaultExec // except ExecPlugin

	node   *node
	list   *libcni.NetworkConfigList
	cni    *libcni.CNIConfig
	rt     *libcni.RuntimeConf
	said   bytes.Buffer // standard error of the plugins
	result struct {
		Interfaces []struct{ Name, Mac, Sandbox, PciID string }
	}
	took time.Duration // by ADD
}

// attachment makes a pod for a network with these plugins. Only plugins with the capability get the deviceID.
func (n *node) attachment(plugins, pod, deviceID string) (*attachment, error) {
	list, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "devinfo-try", "plugins": [%s]}`, plugins))
	if err != nil {
		return nil, err
	}
	path, err := newPod(pod)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	args := map[string]any{"CNIDeviceInfoFile": filepath.Join(n.dir, "devinfo", pod), "deviceID": deviceID}
	a := &attachment{node: n, list: list, rt: &libcni.RuntimeConf{ContainerID: podPrefix + pod, NetNS: path, IfName: ifName, CapabilityArgs: args}}
	a.cni = libcni.NewCNIConfigWithCacheDir([]string{n.plugins()}, n.dir+"/cni", a)
	return a, nil
}

// ExecPlugin runs a plugin. It dies with this program, so that nothing changes a function while --restore restores it.
func (a *attachment) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path)
	var out, said bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(environ, "DEVINFO_NODE_CONFIG="+a.node.settings()), bytes.NewReader(stdin), &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	runtime.LockOSThread() // Pdeathsig is about the thread
	err := cmd.Run()
	runtime.UnlockOSThread()
	a.said.Write(said.Bytes())
	if err == nil {
		return out.Bytes(), nil
	}
	told := types.Error{Msg: fmt.Sprintf("%s: %v: %s", filepath.Base(path), err, strings.TrimSpace(said.String()))}
	if json.Unmarshal(out.Bytes(), &told) != nil && out.Len() > 0 {
		told.Details = out.String()
	}
	return nil, &told
}

func (a *attachment) add(ctx context.Context) error {
	began := time.Now()
	result, err := a.cni.AddNetworkList(ctx, a.list, a.rt)
	a.took = time.Since(began)
	if err != nil {
		return fmt.Errorf("ADD: %w", err)
	}
	data, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, &a.result)
}

func (a *attachment) check(ctx context.Context) error {
	if err := a.cni.CheckNetworkList(ctx, a.list, a.rt); err != nil {
		return fmt.Errorf("CHECK: %w", err)
	}
	return nil
}

// del deletes the attachment, after which nothing of it may be left.
func (a *attachment) del(ctx context.Context) error {
	if err := a.cni.DelNetworkList(ctx, a.list, a.rt); err != nil {
		return fmt.Errorf("DEL: %w", err)
	}
	for _, dir := range []string{"devinfo", "state"} {
		err := filepath.WalkDir(filepath.Join(a.node.dir, dir), func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && filepath.Base(path) != ".lock" && !strings.HasPrefix(filepath.Base(path), "lock") {
				return fmt.Errorf("DEL has left %s", path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// info reads the device-info file.
func (a *attachment) info() (map[string]any, error) {
	data, err := os.ReadFile(a.rt.CapabilityArgs["CNIDeviceInfoFile"].(string))
	if err != nil {
		return nil, fmt.Errorf("device-info file: %w; the plugins said %q", err, a.said.String())
	}
	var info map[string]any
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, fmt.Errorf("device-info file: %w: %s", err, data)
	}
	return info, nil
}
