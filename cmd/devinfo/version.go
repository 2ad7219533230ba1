package main

import (
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
	fmt.Print(release.Release{Version: build.Version(version), JournalFormat: journal.Format})
	fmt.Println("built from", build.Read())
	return true
}
