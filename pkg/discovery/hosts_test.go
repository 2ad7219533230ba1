package discovery_test

import (
	"io/fs"
	"path"
	"strings"
	"testing"
)

// described has, for every PCI function, SF and vDPA device of every captured host,
// what its description holds when the runtime names it.
var described = map[string]string{
	"i40e": `
		0000:18:00.0: pci
		0000:18:00.1: pci
		0000:18:02.0: pci pf=0000:18:00.0
		0000:18:02.1: pci pf=0000:18:00.0
		0000:18:02.2: pci pf=0000:18:00.0
		0000:18:02.3: pci pf=0000:18:00.0`,
	"igb-sriov": `
		0000:01:00.0: pci
		0000:01:10.0: pci pf=0000:01:00.0
		0000:01:10.2: pci pf=0000:01:00.0
		0000:01:10.4: pci pf=0000:01:00.0
		0000:01:10.6: pci pf=0000:01:00.0
		0000:02:00.0: pci
		0000:41:00.0: pci
		0000:41:10.0: pci pf=0000:41:00.0
		0000:41:10.2: pci pf=0000:41:00.0`,
	"mlx5-legacy": `
		0000:3b:00.0: pci rdma=mlx5_0
		0000:3b:00.1: pci rdma=mlx5_1
		0000:3b:00.2: pci pf=0000:3b:00.0 rdma=mlx5_2
		0000:3b:00.3: pci pf=0000:3b:00.0 rdma=mlx5_9,mlx5_10
		0000:3b:00.4: pci pf=0000:3b:00.0
		0000:3b:00.5: pci pf=0000:3b:00.0`,
	"mlx5-switchdev": `
		0000:03:00.0: pci rdma=mlx5_0
		0000:03:00.2: pci pf=0000:03:00.0 rdma=mlx5_2 rep=eth4
		0000:03:00.3: pci pf=0000:03:00.0 rdma=mlx5_3 rep=eth5
		0000:03:00.4: pci pf=0000:03:00.0 rdma=mlx5_4 rep=eth6
		0000:03:00.5: pci pf=0000:03:00.0 rep=eth7
		mlx5_core.eth.0: not describable
		mlx5_core.rdma.0: not describable
		mlx5_core.sf.4: not describable
		mlx5_core.sf.7: not describable`,
	"mlx5-vdpa": `
		0000:65:00.0: pci rdma=mlx5_0
		0000:65:00.2: pci pf=0000:65:00.0 rdma=mlx5_2 rep=eth4
		0000:65:00.3: vdpa parent=vdpa:0000:65:00.3 driver=vhost path=/dev/vhost-vdpa-1 addr=0000:65:00.3 pf=0000:65:00.0 rep=eth5
		0000:65:00.4: vdpa parent=vdpa4 driver=virtio path=/sys/bus/virtio/devices/virtio7 addr=0000:65:00.4 pf=0000:65:00.0 rep=eth6
		0000:65:00.5: pci pf=0000:65:00.0 rdma=mlx5_5 rep=eth7
		mlx5_core.sf.2: vdpa parent=vdpa6 driver=virtio path=/sys/bus/virtio/devices/virtio9 addr=0000:65:00.0 rep=eth8
		mlx5_core.sf.3: vdpa parent=vdpa7 driver=virtio path=/sys/bus/virtio/devices/virtio8 addr=0000:65:00.0 rep=eth9
		vdpa4: vdpa parent=vdpa4 driver=virtio path=/sys/bus/virtio/devices/virtio7 addr=0000:65:00.4 pf=0000:65:00.0 rep=eth6
		vdpa5: vdpa parent=vdpa5 addr=0000:65:00.5 pf=0000:65:00.0 rep=eth7 not describable
		vdpa6: vdpa parent=vdpa6 driver=virtio path=/sys/bus/virtio/devices/virtio9 addr=0000:65:00.0 rep=eth8
		vdpa7: vdpa parent=vdpa7 driver=virtio path=/sys/bus/virtio/devices/virtio8 addr=0000:65:00.0 rep=eth9
		vdpa:0000:65:00.3: vdpa parent=vdpa:0000:65:00.3 driver=vhost path=/dev/vhost-vdpa-1 addr=0000:65:00.3 pf=0000:65:00.0 rep=eth5`,
	"netdevsim-switchdev": ``,
	"pds-vdpa": `
		0000:b5:00.0: pci
		0000:b5:00.1: vdpa parent=vdpa0 driver=vhost path=/dev/vhost-vdpa-0 addr=0000:b5:00.1 pf=0000:b5:00.0
		0000:b5:00.2: vdpa parent=vdpa1 driver=virtio path=/sys/bus/virtio/devices/virtio3 addr=0000:b5:00.2 pf=0000:b5:00.0
		0000:b5:00.3: pci pf=0000:b5:00.0
		pds_core.fwctl.0: not describable
		pds_core.vDPA.1: vdpa parent=vdpa0 driver=vhost path=/dev/vhost-vdpa-0 addr=0000:b5:00.1 pf=0000:b5:00.0
		pds_core.vDPA.2: vdpa parent=vdpa1 driver=virtio path=/sys/bus/virtio/devices/virtio3 addr=0000:b5:00.2 pf=0000:b5:00.0
		pds_core.vDPA.3: not describable
		vdpa0: vdpa parent=vdpa0 driver=vhost path=/dev/vhost-vdpa-0 addr=0000:b5:00.1 pf=0000:b5:00.0
		vdpa1: vdpa parent=vdpa1 driver=virtio path=/sys/bus/virtio/devices/virtio3 addr=0000:b5:00.2 pf=0000:b5:00.0`,
	"rxe-rdma": `
		0000:01:00.0: pci
		0000:01:10.0: pci pf=0000:01:00.0
		0000:01:10.2: pci pf=0000:01:00.0
		0000:01:10.4: pci pf=0000:01:00.0
		0000:01:10.6: pci pf=0000:01:00.0
		0000:41:00.0: pci
		0000:41:10.0: pci pf=0000:41:00.0
		0000:41:10.2: pci pf=0000:41:00.0`,
	"vdpa-sim": `
		0000:02:00.0: pci
		vdpa0: vdpa parent=vdpa0 driver=vhost path=/dev/vhost-vdpa-0
		vdpa1: vdpa parent=vdpa1 driver=virtio path=/sys/bus/virtio/devices/virtio4`,
	"vdpa-vf": `
		0000:01:00.0: pci
		0000:02:00.0: pci
		0000:02:00.1: vdpa parent=vpvdpa0 driver=vhost path=/dev/vhost-vdpa-0 addr=0000:02:00.1 pf=0000:02:00.0
		0000:02:00.2: pci pf=0000:02:00.0
		0000:41:00.0: pci
		vpvdpa0: vdpa parent=vpvdpa0 driver=vhost path=/dev/vhost-vdpa-0 addr=0000:02:00.1 pf=0000:02:00.0`,
	"vdpa-vf-virtio": `
		0000:01:00.0: pci
		0000:02:00.0: pci
		0000:02:00.1: vdpa parent=vpvdpa0 driver=virtio path=/sys/bus/virtio/devices/virtio4 addr=0000:02:00.1 pf=0000:02:00.0
		0000:02:00.2: pci pf=0000:02:00.0
		0000:41:00.0: pci
		vpvdpa0: vdpa parent=vpvdpa0 driver=virtio path=/sys/bus/virtio/devices/virtio4 addr=0000:02:00.1 pf=0000:02:00.0`,
	"virtio-vm": `
		0000:00:03.0: pci
		0000:00:04.0: pci
		0000:00:05.0: pci
		0000:00:06.0: pci rdma=mlx5_0`,
	"vmd": `
		0000:00:0e.0: pci
		10000:e1:00.0: pci
		10000:e1:00.1: pci pf=10000:e1:00.0`,
}

func TestEveryDeviceOfEveryHostIsDescribed(t *testing.T) {
	for host, table := range described {
		t.Run(host, func(t *testing.T) {
			h := load(t, host)
			var got, want []string
			for line := range strings.Lines(table) {
				if line = strings.TrimSpace(line); line != "" {
					want = append(want, line)
				}
			}
			for _, bus := range []string{"pci", "auxiliary", "vdpa"} {
				devices, err := fs.Glob(h.Sys(), "bus/"+bus+"/devices/*")
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range devices {
					device, err := on(t, h).Find(byID(path.Base(d)))
					if err != nil || len(device.Warnings) > 0 || device.InNetns || device.Shared {
						t.Errorf("%s: %v, %v", d, show(t, device, err), err)
						continue
					}
					line := []string{path.Base(d) + ":"}
					if device.Info != nil {
						line = append(line, string(device.Info.Type))
						values := flat(t, device.Info)
						for _, f := range [][2]string{
							{"vdpa.parent-device", "parent"}, {"vdpa.driver", "driver"}, {"vdpa.path", "path"}, {"vdpa.pci-address", "addr"},
							{"vdpa.pf-pci-address", "pf"}, {"vdpa.representor-device", "rep"},
							{"pci.pf-pci-address", "pf"}, {"pci.rdma-device", "rdma"}, {"pci.representor-device", "rep"},
						} {
							if v := values[f[0]]; v != "" {
								line = append(line, f[1]+"="+v)
							}
						}
						if a := values["pci.pci-address"]; a != "" && a != path.Base(d) {
							t.Errorf("%s is described as %s", d, a)
						}
					}
					if device.Problem != nil {
						line = append(line, "not describable")
					}
					got = append(got, strings.Join(line, " "))
				}
			}
			if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
				t.Errorf("got\n%s\nwant\n%s", g, w)
			}
		})
	}
}
