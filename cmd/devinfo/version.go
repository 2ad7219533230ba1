package main

import (
	"fmt"
	"os"

	"devinfo-cni.io/pkg/build"
)

// askedForVersion answers a person: runtimes set CNI_COMMAND, and pass no argument.
func askedForVersion() bool {
	if len(os.Args) != 2 || os.Args[1] != "--version" && os.Args[1] != "version" {
		return false
	}
	fmt.Println("devinfo", build.Read())
	return true
}
