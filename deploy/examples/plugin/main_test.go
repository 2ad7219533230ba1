package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "net1")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil { // an invalid file
		log.Fatal(err)
	}
	args := &skel.CmdArgs{IfName: "net1", Netns: "/proc/1/ns/net", StdinData: fmt.Appendf(nil,
		`{"cniVersion": "1.1.0", "name": "fast", "type": "plugin", "socket": "/run/fast.sock", "runtimeConfig": {"CNIDeviceInfoFile": %q}}`, path)}

	fmt.Println(add(args), check(args))
	text, err := os.ReadFile(path)
	fmt.Print(string(text), err, "\n")
	args.StdinData = bytes.ReplaceAll(args.StdinData, []byte(`"/run/fast.sock"`), []byte("5"))
	fmt.Println(del(args), del(args), add(args) != nil, check(args) != nil)
	// Output:
	// {
	//     "cniVersion": "1.1.0",
	//     "interfaces": [
	//         {
	//             "name": "net1",
	//             "sandbox": "/proc/1/ns/net",
	//             "socketPath": "/run/fast.sock"
	//         }
	//     ]
	// }<nil> <nil>
	// {
	//   "type": "vhost-user",
	//   "version": "1.1.0",
	//   "vhost-user": {
	//     "mode": "client",
	//     "path": "/run/fast.sock"
	//   }
	// }
	// <nil>
	// <nil> <nil> true true
}
