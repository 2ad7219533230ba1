package podnet_test

import (
	"fmt"
	"log"
	"os"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/podnet"
)

// In a container: podnet.Networks().
func Example() {
	networks, err := podnet.Container{Root: os.DirFS("testdata/container")}.Networks()
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range networks {
		if vf, ok := n.Device.Device().(*devinfo.PCI); ok {
			fmt.Println(n.Interface, n.MAC, "is", vf.Address)
		}
	}
	// Output: net1 02:3b:00:00:00:01 is 0000:3b:00.3
}
