// Package capturetest loads captured hosts for tests and benchmarks. It also creates hosts that are too big for a
// file, and file systems that fail.
package capturetest

import (
	_ "embed"
	"fmt"
	"strings"

	"devinfo-cni.io/pkg/host/capturefile"
)

const (
	pf      = "0000:3b:00.0"
	routing = 0x3b00 // routing ID of the PF: bus 3b, device 0, function 0
	offset  = 2
)

//go:embed manyvfs.txt
var templates string // parts of a capture, in the order of the constants

const (
	function = iota
	netdev
	rdma
	ofPF
	ofVF
)

// ManyVFs returns a host with the PF 0000:3b:00.0 (mlx5_core, ens1f0np0, mlx5_0) in legacy mode and n VFs at offset
// 2 and stride 1, on as many buses as necessary. VF i has the netdev ens1f0v<i>, the RDMA device mlx5_<i+2>, ifindex
// 10+i and the IOMMU group 100+i. The vDPA bus is empty. ManyVFs panics if n VFs do not fit below bus ff.
func ManyVFs(n int) *capturefile.Host {
	if n < 0 || routing+offset+n > 1<<16 {
		panic(fmt.Sprintf("capturetest: %d VFs do not fit behind %s", n, pf))
	}
	var t text
	fmt.Fprintf(&t, "many-vfs: made in memory: ConnectX-6 Dx with %d VFs in legacy mode\n", n)
	t.add(ofPF, "PF", pf, "VFS", n)
	t.function(pf, "0x101d", 30)
	t.netdev(pf, "ens1f0np0", 2, 0, "--\np0")
	t.add(rdma, "AT", pf, "NAME", "mlx5_0")
	for i := range n {
		vf := VF(i)
		t.add(ofVF, "PF", pf, "VF", vf, "NUMBER", i)
		t.function(vf, "0x101e", 100+i)
		t.netdev(vf, fmt.Sprint("ens1f0v", i), 10+i, 0, "!EOPNOTSUPP --")
		t.add(rdma, "AT", vf, "NAME", fmt.Sprint("mlx5_", i+2))
	}
	h, err := capturefile.Parse(t.capture())
	if err != nil {
		panic("capturetest: " + err.Error())
	}
	return h
}

// Ports returns the capture of a host with one PCI function, 0000:3b:00.0, of a driver. Its n ports have the interfaces
// p1, p2 and so on, and no RDMA device.
func Ports(driver string, n int) []byte {
	var t text
	fmt.Fprintf(&t, "ports: made in memory: %d ports on one function\n-- sys/bus/pci/drivers/mlx5_core/ --\n", n)
	t.function(pf, "0x1003", 30)
	for i := range n {
		t.netdev(pf, fmt.Sprint("p", i+1), 2+i, i, "!EOPNOTSUPP --")
	}
	return []byte(strings.ReplaceAll(string(t.capture()), "mlx5_core", driver))
}

// VF returns the PCI address of VF i in the host of ManyVFs.
func VF(i int) string {
	rid := routing + offset + i
	return fmt.Sprintf("0000:%02x:%02x.%x", rid>>8, rid>>3&0x1f, rid&7)
}

// text builds a capture.
type text struct {
	strings.Builder
	links []string // in iproute2's format
}

// add adds a template, with words replaced by values.
func (t *text) add(template int, words ...any) {
	part := strings.Split(templates, "=\n")[template]
	for n := 0; n < len(words); n += 2 {
		part = strings.ReplaceAll(part, words[n].(string), fmt.Sprint(words[n+1]))
	}
	t.WriteString(part)
}

func (t *text) function(at, device string, group int) {
	t.add(function, "AT", at, "DEVICE", device, "GROUP", group)
}

func (t *text) netdev(at, name string, index, port int, label string) {
	mac := fmt.Sprintf("02:3b:00:00:%02x:%02x", index>>8&0xff, index&0xff)
	t.add(netdev, "AT", at, "NAME", name, "MAC", mac, "INDEX", index, "PORT", port, "LABEL", label)
	t.links = append(t.links, fmt.Sprintf(`{"ifindex":%d,"ifname":%q,"flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,`+
		`"operstate":"UP","link_type":"ether","address":%q,"parentbus":"pci","parentdev":%q}`, index, name, mac, at))
}

func (t *text) capture() []byte {
	return fmt.Appendf(nil, "%s-- netlink/ip-link.json --\n[\n%s\n]\n", t.String(), strings.Join(t.links, ",\n"))
}
