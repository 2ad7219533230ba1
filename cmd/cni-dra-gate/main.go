// Cni-dra-gate is the createRuntime hook (OCI runtime specification) of each container of a claim. cni-dra-driver
// installs it on the node and names it in its CDI specs. The hook fails the container unless the container is in the
// network namespace that was attached. For example, it fails the containers of the pod's next sandbox until the driver
// has attached that sandbox.
//
//	cni-dra-gate NAMESPACE ATTACHMENT
//
// NAMESPACE is the path of the attached network namespace. ATTACHMENT is the first part of the error message, for
// the pod's author. Standard input has the state of the container. The program imports little, because it starts for
// each container.
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

// check returns an error unless the container is in the attached network namespace.
func check(args []string, state io.Reader, proc string) error {
	if len(args) != 2 {
		return errors.New("cni-dra-gate: want two arguments, the path of a network namespace and the name of its attachment: cni-dra-driver and this program are of different versions")
	}
	var container struct {
		Pid int `json:"pid"`
	}
	if err := json.NewDecoder(io.LimitReader(state, 1<<20)).Decode(&container); err != nil {
		return errors.New(args[1] + ": cannot read the runtime's state of the container: " + err.Error())
	}
	has, err := os.Stat(proc + "/" + strconv.Itoa(container.Pid) + "/ns/net")
	if err != nil {
		return errors.New(args[1] + ": cannot read the container's network namespace: " + err.Error())
	}
	attached, err := os.Stat(args[0])
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New(args[1] + ", in a sandbox that has ended, not in the sandbox of this container: " + remedy)
	case err != nil:
		return errors.New(args[1] + ": cannot read the attached network namespace: " + err.Error())
	case !os.SameFile(has, attached):
		return errors.New(args[1] + ", in a different sandbox, not in the sandbox of this container: " + remedy)
	}
	return nil
}

const remedy = "the runtime creates the container again once the driver has attached this sandbox; a claim belongs to one pod " +
	"(a Deployment whose pods share a claim needs strategy Recreate, or maxSurge: 0); if it takes more than a minute, check that cni-dra-driver runs on the node"
