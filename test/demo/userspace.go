package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// isUserspace says whether the program was started as the stand-in for userspace-cni.
func isUserspace() bool { return filepath.Base(os.Args[0]) == "userspace" }

// installUserspace puts the stand-in into a directory of CNI_PATH.
func installUserspace() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	dir := own + "/standin"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(dir+"/userspace", data, 0o755)
}

// playUserspace is userspace-cni without a dataplane: its result has no interface.
func playUserspace() {
	var conf struct{ CNIVersion string }
	if err := json.NewDecoder(os.Stdin).Decode(&conf); err != nil {
		fmt.Printf(`{"code": 6, "msg": %q}`+"\n", err)
		os.Exit(1)
	}
	if os.Getenv("CNI_COMMAND") == "ADD" {
		fmt.Printf(`{"cniVersion": %q}`+"\n", conf.CNIVersion)
	}
}
