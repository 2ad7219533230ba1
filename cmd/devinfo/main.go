// Devinfo is a CNI plugin that finds the device of a network attachment and writes its device-info file. A
// container runtime, Multus or cnitool runs it. Package plugins/devinfo implements it.
package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
	plugin "devinfo-cni.io/plugins/devinfo"
)

func main() {
	if len(os.Args) == 2 && (os.Args[1] == "--version" || os.Args[1] == "version") { // runtimes pass no arguments
		fmt.Print(build.Plugin{Info: build.Read(), JournalFormat: journal.Format})
		return
	}
	os.Exit(plugin.Run(machine(), os.Getenv, os.Stdin, os.Stderr))
}

func machine() *plugin.Host {
	if os.Getenv("CNI_COMMAND") == "VERSION" {
		return &plugin.Host{Stdout: os.Stdout}
	}
	node, nodeErr := config.LoadNode(cmp.Or(os.Getenv("DEVINFO_NODE_CONFIG"), config.NodeFile))
	log := logger(node)
	var finder discovery.Finder
	sys, sysfsErr := sysfs.Open(node.Sysfs)
	if sysfsErr == nil {
		kernel := link.NewKernel(sys.Files())
		finder = discovery.Finder{Sys: sys, Interfaces: kernel, Eswitches: kernel}
	}
	bootID, err := journal.BootID()
	if err != nil {
		log.Warn("cannot read the boot ID: treating all journal entries as from this boot", "error", err)
	}
	h := plugin.NewHost(node, finder, bootID, os.Stdout, log)
	h.NodeError, h.SysfsError = nodeErr, sysfsErr
	h.Journal.SRIOVLocks = journal.SRIOVLocks
	h.Within = os.Getenv(cleanup.WithinEnv)
	return h
}

func logger(node config.Node) *slog.Logger {
	level, _ := node.Level() // LoadNode has validated it
	options := &slog.HandlerOptions{Level: level}
	log := slog.New(slog.NewTextHandler(os.Stderr, options))
	if node.LogFile == "" {
		return log
	}
	file, err := logFile(node.LogFile)
	if err != nil {
		log.Warn("cannot open the log file", "error", err)
		return log
	}
	return slog.New(slog.NewMultiHandler(log.Handler(), slog.NewTextHandler(file, options)))
}

// logFile opens a log file. It refuses links, because a user's link in a shared directory could lead to any file.
func logFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600) // O_NONBLOCK for a named pipe
	if err != nil {
		return nil, err
	}
	var stat syscall.Stat_t
	if err = syscall.Fstat(int(file.Fd()), &stat); err == nil && (stat.Mode&syscall.S_IFMT != syscall.S_IFREG || stat.Nlink != 1) {
		err = fmt.Errorf("%s: must be a regular file without other hard links", path)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
