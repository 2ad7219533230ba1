package devinfo_test

import (
	"fmt"
	"log"

	"devinfo-cni.io/devinfo"
)

func Example() {
	info, err := devinfo.ReadFile("testdata/npwg/4.3-pci.json")
	if err != nil {
		log.Fatal(err)
	}
	if info.Type == devinfo.TypePCI {
		fmt.Println("VF", info.PCI.Address, "of", info.PCI.PFAddress)
	}
	// Output: VF 0000:01:02.2 of 0000:01:02.0
}

func ExampleDevicePluginFile() {
	fmt.Println(devinfo.DevicePluginDir + "/" + devinfo.DevicePluginFile("vendor.example/vf", "0000:03:00.2"))
	// Output: /var/run/k8s.cni.cncf.io/devinfo/dp/vendor.example-vf-0000:03:00.2-device.json
}
