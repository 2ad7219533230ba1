// Cni-dra-gate is the createRuntime hook (OCI runtime specification) of each container of a claim. cni-dra-driver
// installs it on the node and names it in its CDI specs. The hook fails the container unless the container is in the
// network namespace that was attached, or, if the claim has no network, in the pod that holds the claim. For example,
// it fails the containers of the pod's next sandbox until the driver has attached that sandbox.
//
//	cni-dra-gate NAMESPACE CLAIM
//	cni-dra-gate pod/UID CLAIM
//
// NAMESPACE is the path of the attached network namespace. CLAIM is the first part of the error message, for the pod's
// author. Standard input has the state of the container. The program imports little, because it starts for each
// container.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"devinfo-cni.io/pkg/core/build"
)

const help = `cni-dra-gate is an OCI hook of cni-dra-driver, which installs it on nodes and names it in its CDI specs:
the container runtime runs it for each container of a claim. It fails a container that is not in the
network namespace, or not of the pod, that the claim was prepared for. Nobody else has to run it.

  cni-dra-gate NAMESPACE|pod/UID CLAIM    with the runtime's state of the container on standard input
  cni-dra-gate --version
`

// forPeople returns what --help or --version prints; "" = the command line is a runtime's.
func forPeople(args []string) string {
	switch {
	case len(args) != 1:
	case args[0] == "--help", args[0] == "-h":
		return help
	case args[0] == "--version":
		return "cni-dra-gate version " + build.Read().String() + "\n"
	}
	return ""
}

func main() {
	if text := forPeople(os.Args[1:]); text != "" {
		_, _ = os.Stdout.WriteString(text)
		return
	}
	if err := check(os.Args[1:], os.Stdin, "/proc"); err != nil {
		_, _ = os.Stderr.WriteString("cni-dra-driver: " + err.Error() + "\n")
		os.Exit(1)
	}
}

// check returns an error unless the container may start.
func check(args []string, state io.Reader, proc string) error {
	if len(args) != 2 {
		return errors.New("cni-dra-gate: want two arguments, what to admit and the name of the claim: restart cni-dra-driver, which installs the program of its own version")
	}
	var container container
	if err := json.NewDecoder(io.LimitReader(state, 1<<20)).Decode(&container); err != nil {
		return errors.New(args[1] + ": cannot read the runtime's state of the container: " + err.Error())
	}
	err := error(nil)
	if pod, is := strings.CutPrefix(args[0], "pod/"); is {
		err = container.isOf(pod)
	} else {
		err = container.isIn(args[0], proc)
	}
	if err != nil {
		return errors.New(args[1] + err.Error())
	}
	return nil
}

// container is the runtime's state of a container.
type container struct {
	Pid         int               `json:"pid"`
	Annotations map[string]string `json:"annotations"`
}

// isIn returns an error unless the container is in a network namespace.
func (c container) isIn(netns, proc string) error {
	has, err := os.Stat(proc + "/" + strconv.Itoa(c.Pid) + "/ns/net")
	if err != nil {
		return errors.New(": cannot read the container's network namespace: " + err.Error())
	}
	attached, err := os.Stat(netns)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New(", in a sandbox that has ended, not in the sandbox of this container: " + remedy)
	case err != nil:
		return errors.New(": cannot read the attached network namespace: " + err.Error())
	case !os.SameFile(has, attached):
		return errors.New(", in a different sandbox, not in the sandbox of this container: " + remedy)
	}
	return nil
}

// isOf returns an error unless the container is of a pod. The runtimes' own annotations name its pod; those of the pod
// cannot replace them.
func (c container) isOf(pod string) error {
	known := false
	for _, key := range []string{"io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"} { // of containerd, and of CRI-O
		uid, has := c.Annotations[key]
		if known = known || has; has && uid != pod {
			return errors.New(", not by the pod of this container: " + remedy)
		}
	}
	if !known {
		return errors.New(": the runtime does not tell the pod of this container by an annotation: use containerd or CRI-O")
	}
	return nil
}

const remedy = "the runtime creates the container again once the driver has given the claim to this sandbox; a claim belongs to one pod " +
	"(a Deployment whose pods share a claim needs strategy Recreate, or maxSurge: 0); if it takes more than a minute, check that cni-dra-driver runs on the node"
