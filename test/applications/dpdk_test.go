package applications_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/testpmd"
)

// start runs testpmd in a container of a pod. application precedes testpmd's own arguments.
func (p pod) start(t *testing.T, application []string) *testpmd.Prompt {
	t.Helper()
	args := append([]string{"stdbuf", "-oL"}, application...)
	return testpmd.Start(t, p.inside(t, append(args, testpmd.Arguments(t)...)...))
}

func TestPacketsReachOtherEnd(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		needs(t, map[string]string{"dpdk-testpmd": "dpdk-dev", "nsenter": "util-linux"})
		stage(t)
		const guest, backEnd = "If the switch (for example OVS-DPDK)", "If the container is the vhost-user back end"
		for n, c := range []struct {
			name, example        string
			listener, connecting []string
			// Commands for the connecting side after the listener's restart; nil = the connecting side is
			// restarted instead.
			reconnect []string
		}{
			{"memif", "memif", byShell(t, "For memif,"), byShell(t, "For memif,"), []string{"port stop 0", "port start 0"}},
			{"vhost-user, the guest listens", "vhost-user", byShell(t, guest), byShell(t, backEnd), nil},
			{"vhost-user, the switch listens", "vhost-user", byShell(t, backEnd), byShell(t, guest), nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				sandbox := fmt.Sprintf("c0ffee%06d", n)
				listens := strings.NewReplacer("{containerID:12}", sandbox, `"role": "slave"`, `"role": "master"`)
				connects := strings.NewReplacer("{containerID:12}", sandbox, `"mode": "server"`, `"mode": "client"`)
				here, there := attach(t, sandbox, c.example, listens), attach(t, "other"+sandbox, c.example, connects)
				listener := here.start(t, c.listener)
				difftest.Eventually(t, "a socket of "+sandbox, func() bool {
					found, _ := filepath.Glob("/var/lib/cni/usrspcni/" + sandbox + "/*")
					return len(found) > 0
				})
				connecting := there.start(t, c.connecting)
				testpmd.Burst(t, listener, connecting)
				if c.reconnect == nil {
					connecting.Kill()
					connecting = there.start(t, c.connecting)
				} else {
					listener.Kill()
					listener = here.start(t, c.listener)
					listener.Must(t, "show port info 0", "Link status: ")
					connecting.Tell(c.reconnect...)
				}
				testpmd.Burst(t, connecting, listener)
			})
		}
	})
}

// Applications without a device here are replaced by a program that prints its arguments. virsh also prints its
// input.
func TestDocumentedCommandsPassDevices(t *testing.T) {
	const (
		vf    = `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.3", "rdma-device": "mlx5_2,mlx5_3"}}`
		vdpa  = `{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0"}}`
		vhost = `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "server", "path": "/run/vhost/s"}}`
		memif = `{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "mode": "ethernet", "path": "/run/memif/s"}}`

		attach = "attach-device -l 2 /dev/stdin\n"
	)
	linktest.Run(t, func(t *testing.T) {
		needs(t, map[string]string{"nsenter": "util-linux"})
		for name, script := range map[string]string{"dpdk-testpmd": "", "ibv_rc_pingpong": "", "qemu-system-x86_64": "", "vppctl": "", "virsh": "cat\n"} {
			must(t, os.WriteFile("/run/"+name, []byte("#!/bin/sh\necho \"$@\"\n"+script), 0o755))
		}
		t.Setenv("PATH", "/run:"+os.Getenv("PATH"))
		for _, c := range []struct{ after, file, want string }{
			{"This command starts testpmd with a VF on vfio-pci:", vf, "-a 0000:3b:00.3 -l 2"},
			{"For a vDPA device with the driver vhost_vdpa, use this command:", vdpa, "--no-pci --vdev=net_virtio_user0,path=/dev/vhost-vdpa-0 -l 2"},
			{"For a VF on vfio-pci, use this command:", vf, "-device vfio-pci,host=0000:3b:00.3 -l 2"},
			{"For vhost-user, the memory of the VM", vhost, "-m 1G -object memory-backend-memfd,id=mem,size=1G,share=on -numa node,memdev=mem " +
				"-chardev socket,id=net1,path=/run/vhost/s,server=on -netdev vhost-user,id=net1,chardev=net1 -device virtio-net-pci,netdev=net1 -l 2"},
			{"To pass a vDPA device", vdpa, "-netdev vhost-vdpa,id=net1,vhostdev=/dev/vhost-vdpa-0 -device virtio-net-pci,netdev=net1 -l 2"},
			{"For libvirt,", vf, attach + "<interface type='hostdev' managed='no'>" +
				"<source><address type='pci' domain='0x0000' bus='0x3b' slot='0x00' function='0x3'/></source></interface>"},
			{"For libvirt,", vhost, attach + "<interface type='vhostuser'><source type='unix' path='/run/vhost/s' mode='server'/><model type='virtio'/></interface>"},
			{"For libvirt,", vdpa, attach + "<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>"},
			{"To connect VPP through memif,", memif, "create memif socket id 1 filename /run/memif/s\ncreate interface memif id 0 socket-id 1 slave"},
			{"To connect VPP through vhost-user,", vhost, "create vhost-user socket /run/vhost/s server"},
			{"`DEVINFO_NET1_RDMA_DEVICE`", vf, "-d mlx5_2 -l 2"},
		} {
			p := pod{linktest.NewNetns(t), t.TempDir()}
			must(t, os.WriteFile(p.dir+"/net1.json", []byte(c.file), 0o644))
			got, err := p.inside(t, append(byShell(t, c.after), "-l", "2")...).CombinedOutput()
			if err != nil || string(got) != c.want+"\n" {
				t.Errorf("%s: %q (%v), want %q", c.after, got, err, c.want)
			}
		}
	})
}
