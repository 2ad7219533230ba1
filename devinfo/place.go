package devinfo

import "strings"

// The directories of device-info files written by device plugins (section 4.1) and by CNI plugins (4.2).
const (
	DevicePluginDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	CNIDir          = "/var/run/k8s.cni.cncf.io/devinfo/cni"
)

// DevicePluginFile returns the file name, in [DevicePluginDir], for a device of a device plugin's resource,
// such as vendor.example/name (section 4.1). It replaces "/" with "-", as Multus does.
func DevicePluginFile(resourceName, deviceID string) string {
	return strings.ReplaceAll(resourceName+"-"+deviceID+"-device.json", "/", "-")
}
