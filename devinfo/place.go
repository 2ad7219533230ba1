package devinfo

import "strings"

// The directories of device-info files: the device plugins' (section 4.1), and the CNI plugins' (4.2).
const (
	DevicePluginDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	CNIDir          = "/var/run/k8s.cni.cncf.io/devinfo/cni"
)

// DevicePluginFile is the name, in [DevicePluginDir], of the file that a device plugin writes for a
// device of a resource such as vendor.example/name (section 4.1). As Multus has it, "/" becomes "-".
func DevicePluginFile(resourceName, deviceID string) string {
	return strings.ReplaceAll(resourceName+"-"+deviceID+"-device.json", "/", "-")
}
