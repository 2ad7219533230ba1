// Package capturetest loads captured hosts for tests and benchmarks. It also creates hosts that are too big for a
// file, and file systems that fail.
package capturetest

import (
	"bytes"
	"fmt"
	"strings"

	"devinfo-cni.io/pkg/host/capturefile"
)

const (
	bridge  = "sys/devices/pci0000:3a/0000:3a:00.0"
	pf      = "0000:3b:00.0"
	routing = 0x3b00 // routing ID of the PF: bus 3b, device 0, function 0
	offset  = 2
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
	t.netlink(n)
	t.file("sys/bus/pci/drivers/mlx5_core/", "")
	t.file("sys/bus/vdpa/devices/", "")
	t.function(pf, "0x101d", 30)
	t.file(bridge+"/"+pf+"/sriov_totalvfs", fmt.Sprint(n))
	t.file(bridge+"/"+pf+"/sriov_numvfs", fmt.Sprint(n))
	t.file(bridge+"/"+pf+"/sriov_offset", fmt.Sprint(offset))
	t.file(bridge+"/"+pf+"/sriov_stride", "1")
	t.netdev(pf, "ens1f0np0", 2, 0, "p0")
	t.rdma(pf, "mlx5_0")
	for i := range n {
		vf := VF(i)
		t.function(vf, "0x101e", 100+i)
		t.link(bridge+"/"+vf+"/physfn", "../"+pf)
		t.link(fmt.Sprintf("%s/%s/virtfn%d", bridge, pf, i), "../"+vf)
		t.netdev(vf, fmt.Sprint("ens1f0v", i), 10+i, 0, "")
		t.rdma(vf, fmt.Sprint("mlx5_", i+2))
	}
	h, err := capturefile.Parse(t.Bytes())
	if err != nil {
		panic("capturetest: " + err.Error())
	}
	return h
}

// Ports returns the capture of a host with one PCI function, 0000:3b:00.0, of a driver. Its n ports have the interfaces
// p1, p2 and so on, and no RDMA device.
func Ports(driver string, n int) []byte {
	var t text
	fmt.Fprintf(&t, "ports: made in memory: %d ports on one function\n", n)
	t.function(pf, "0x1003", 30)
	t.file("sys/bus/pci/drivers/mlx5_core/", "")
	var links []string
	for i := range n {
		name := fmt.Sprint("p", i+1)
		t.netdev(pf, name, 2+i, i, "")
		links = append(links, link(2+i, name, pf))
	}
	t.file("netlink/ip-link.json", "[\n"+strings.Join(links, ",\n")+"\n]")
	return bytes.ReplaceAll(t.Bytes(), []byte("mlx5_core"), []byte(driver))
}

// VF returns the PCI address of VF i in the host of ManyVFs.
func VF(i int) string {
	rid := routing + offset + i
	return fmt.Sprintf("0000:%02x:%02x.%x", rid>>8, rid>>3&0x1f, rid&7)
}

// text builds a capture.
type text struct{ bytes.Buffer }

func (t *text) file(name, content string) {
	fmt.Fprintf(t, "-- %s --\n", name)
	if content != "" {
		fmt.Fprintln(t, content)
	}
}

func (t *text) link(name, target string) { t.file(name+" -> "+target, "") }

// toRoot returns the relative path from the directory of a file to sys/.
func toRoot(name string) string { return strings.Repeat("../", strings.Count(name, "/")-1) }

func (t *text) function(bdf, device string, group int) {
	dir := bridge + "/" + bdf
	up := toRoot(dir + "/x")
	t.file(dir+"/vendor", "0x15b3")
	t.file(dir+"/device", device)
	t.file(dir+"/class", "0x020000")
	t.file(dir+"/numa_node", "0")
	t.link(dir+"/subsystem", up+"bus/pci")
	t.link(dir+"/driver", up+"bus/pci/drivers/mlx5_core")
	t.link(dir+"/iommu_group", fmt.Sprintf("%skernel/iommu_groups/%d", up, group))
	t.listed("sys/bus/pci/devices", dir)
	t.listed(fmt.Sprintf("sys/kernel/iommu_groups/%d/devices", group), dir)
}

// listed adds a link to a device in the directory of a bus, class or group.
func (t *text) listed(list, dir string) {
	name := list + dir[strings.LastIndex(dir, "/"):]
	t.link(name, toRoot(name)+strings.TrimPrefix(dir, "sys/"))
}

func (t *text) netdev(bdf, name string, ifindex, devPort int, port string) {
	dir := bridge + "/" + bdf + "/net/" + name
	t.file(dir+"/address", mac(ifindex))
	t.file(dir+"/ifindex", fmt.Sprint(ifindex))
	t.file(dir+"/dev_port", fmt.Sprint(devPort))
	t.file(dir+"/type", "1")
	t.file(dir+"/speed", "25000")
	if port == "" {
		t.file(dir+"/phys_port_name !EOPNOTSUPP", "")
	} else {
		t.file(dir+"/phys_port_name", port)
	}
	t.file(dir+"/phys_switch_id !EOPNOTSUPP", "")
	t.link(dir+"/device", "../../../"+bdf)
	t.link(dir+"/subsystem", toRoot(dir+"/x")+"class/net")
	t.listed("sys/class/net", dir)
}

func (t *text) rdma(bdf, name string) {
	dir := bridge + "/" + bdf + "/infiniband/" + name
	t.file(dir+"/node_type", "1: CA")
	t.link(dir+"/device", "../../../"+bdf)
	t.link(dir+"/subsystem", toRoot(dir+"/x")+"class/infiniband")
	t.listed("sys/class/infiniband", dir)
}

func (t *text) netlink(n int) {
	links := []string{link(2, "ens1f0np0", pf)}
	for i := range n {
		links = append(links, link(10+i, fmt.Sprint("ens1f0v", i), VF(i)))
	}
	t.file("netlink/ip-link.json", "[\n"+strings.Join(links, ",\n")+"\n]")
	t.file("netlink/devlink-eswitch.json", `{"dev":{"pci/`+pf+`":{"mode":"legacy"}}}`)
	t.file("netlink/devlink-port.json", `{"port":{"pci/`+pf+
		`/65535":{"type":"eth","netdev":"ens1f0np0","flavour":"physical","port":0,"splittable":false}}}`)
}

func link(ifindex int, name, bdf string) string {
	return fmt.Sprintf(`{"ifindex":%d,"ifname":%q,"flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,`+
		`"operstate":"UP","link_type":"ether","address":%q,"parentbus":"pci","parentdev":%q}`, ifindex, name, mac(ifindex), bdf)
}

func mac(ifindex int) string {
	return fmt.Sprintf("02:3b:00:00:%02x:%02x", ifindex>>8&0xff, ifindex&0xff)
}
