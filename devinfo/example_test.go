package devinfo_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"devinfo-cni.io/devinfo"
)

// A program in a container reads the file of its network. The agent of devinfo sets DEVINFO_NET1 to the path.
func ExampleReadFile() {
	info, err := devinfo.ReadFile("testdata/npwg/4.3-pci.json") // os.Getenv("DEVINFO_NET1")
	if err != nil {
		log.Fatal(err)
	}
	switch device := info.Device().(type) {
	case *devinfo.PCI:
		fmt.Println("PCI device", device.Address)
	case *devinfo.VhostUser:
		fmt.Println("socket", device.Path)
	}
	// Output:
	// PCI device 0000:01:02.2
}

// ADD of a CNI plugin writes the file that runtimeConfig.CNIDeviceInfoFile names, and DEL removes it.
func ExampleWriteFile() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "net1") // runtimeConfig.CNIDeviceInfoFile

	add := func() error {
		if path == "" { // the runtime wants no file
			return nil
		}
		own := &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:3b:00.2", PFAddress: "0000:3b:00.0"}}
		existing, err := devinfo.ReadFile(path) // Multus's copy of the device plugin's file, or nil with an error
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintln(os.Stderr, "replacing the device-info file:", err)
		}
		return devinfo.WriteFile(path, devinfo.Merge(existing, nil, own))
	}
	del := func() error { return devinfo.RemoveFile(path) }

	if err := add(); err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(path)
	fmt.Print(string(text), err, "\n")
	if err := del(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// {
	//   "type": "pci",
	//   "version": "1.1.0",
	//   "pci": {
	//     "pci-address": "0000:3b:00.2",
	//     "pf-pci-address": "0000:3b:00.0"
	//   }
	// }
	// <nil>
}
