package plugin_test

import (
	"bytes"
	"fmt"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"devinfo-cni.io/pkg/cdispec"
)

// specText is a CDI spec file of ours, one thing a line: version and device, then the
// edits. That is all there is to it, which it makes sure of, and that the CDI library
// accepts it. What is not ours is as it is.
func specText(path, text string) (string, error) {
	if name := path[strings.LastIndexByte(path, '/')+1:]; !cdispec.Ours([]byte(text), name) {
		return text, nil
	}
	spec, err := cdi.ReadSpec(path, 0)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(cdispec.Encode(spec.Spec), []byte(text)) {
		return "", fmt.Errorf("%s has more than a spec:\n%s", path, text)
	}
	device := spec.Devices[0]
	lines := []string{"CDI " + spec.Version + " " + cdispec.Qualified(spec.Kind, device.Name)}
	for _, e := range device.ContainerEdits.Env {
		lines = append(lines, "env "+e)
	}
	for _, n := range device.ContainerEdits.DeviceNodes {
		lines = append(lines, fmt.Sprintf("node %s %s %d:%d %s", n.Path, n.Type, n.Major, n.Minor, n.Permissions))
	}
	for _, m := range device.ContainerEdits.Mounts {
		lines = append(lines, fmt.Sprintf("mount %s on %s (%s)", m.HostPath, m.ContainerPath, strings.Join(m.Options, ",")))
	}
	return strings.Join(lines, "\n") + "\n", nil
}
