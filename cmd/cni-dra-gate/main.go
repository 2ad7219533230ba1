// Cni-dra-gate is the hook (OCI runtime specification, createRuntime) that cni-dra-driver has
// run for each container of a claim: it fails the container unless that is in the network
// namespace which was attached. A pod's next sandbox is not, for as long as its claim is
// attached to the one before. The driver puts it on the node, and names it in CDI specs:
//
//	cni-dra-gate NAMESPACE WHAT
//
// NAMESPACE is the path of the network namespace, and WHAT begins the message to the pod's
// author. On standard input is the container's state. It is started for each container, and
// imports little.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
)

func main() {
	if err := check(os.Args[1:], os.Stdin, "/proc"); err != nil {
		_, _ = os.Stderr.WriteString("cni-dra-driver: " + err.Error() + "\n")
		os.Exit(1)
	}
}

// largest is more than a container's state has.
const largest = 1 << 20

// check returns an error unless the container is in the network namespace.
func check(args []string, state io.Reader, proc string) error {
	if len(args) != 2 {
		return errors.New("cni-dra-gate: it takes the path of a network namespace, and what is attached there: the driver and this program are of different versions")
	}
	var container struct {
		Pid int `json:"pid"`
	}
	if err := json.NewDecoder(io.LimitReader(state, largest)).Decode(&container); err != nil {
		return errors.New(args[1] + ": the runtime's state of the container cannot be read: " + err.Error())
	}
	has, err := os.Stat(proc + "/" + strconv.Itoa(container.Pid) + "/ns/net")
	if err != nil {
		return errors.New(args[1] + ": the container's network namespace cannot be told: " + err.Error())
	}
	attached, err := os.Stat(args[0])
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New(args[1] + ", in a sandbox that has ended, not in this container's: " + remedy)
	case err != nil:
		return errors.New(args[1] + ": the network namespace that was attached cannot be told: " + err.Error())
	case !os.SameFile(has, attached):
		return errors.New(args[1] + ", in another sandbox than this container's: " + remedy)
	}
	return nil
}

const remedy = "it is made again once the driver has attached its own; a claim belongs to one pod " +
	"(a Deployment whose pods name one claim needs strategy Recreate, or maxSurge: 0); if it takes more than a minute, see whether cni-dra-driver runs on the node"
