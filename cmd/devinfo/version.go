package main

import (
	"fmt"
	"os"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/journal"
)

// askedForVersion answers a person, and an installer before it replaces this build by
// another: runtimes set CNI_COMMAND, and pass no argument.
func askedForVersion() bool {
	if len(os.Args) != 2 || os.Args[1] != "--version" && os.Args[1] != "version" {
		return false
	}
	fmt.Print(build.Plugin{Info: build.Read(), JournalFormat: journal.Format})
	return true
}
