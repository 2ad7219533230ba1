package main

import (
	"cmp"
	"fmt"
	"os"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/release"
)

// version is set by the linker.
var version string

// askedForVersion answers a person, and an installer before it replaces this build by
// another: runtimes set CNI_COMMAND, and pass no argument.
func askedForVersion() bool {
	if len(os.Args) != 2 || os.Args[1] != "--version" && os.Args[1] != "version" {
		return false
	}
	from := build.Read()
	fmt.Print(release.Release{Version: cmp.Or(version, from.Version, "unknown"), JournalFormat: journal.Format})
	fmt.Println("built from", from)
	return true
}
