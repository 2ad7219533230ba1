package applications_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"devinfo-cni.io/pkg/link/linktest"
)

// patience is for a machine that is busy with more than two programs which never sleep.
const patience = 2 * time.Minute

// A testpmd is one at its prompt.
type testpmd struct {
	cmd   *exec.Cmd
	stdin io.Writer
	ended chan struct{}

	mu  sync.Mutex
	out strings.Builder
}

func (p *testpmd) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}

func (p *testpmd) said(from int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()[from:]
}

// start runs it without hugepages in a container of a pod, with what is to come before
// testpmd's own arguments.
func (p pod) start(t *testing.T, application []string) *testpmd {
	t.Helper()
	args := append([]string{"stdbuf", "-oL"}, application...)
	cmd := p.inside(t, append(args, "--no-huge", "--no-shconf", "-m", "64", lcores(t), "--", "-i", "--no-mlockall", "--total-num-mbufs=2048")...)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	pmd := &testpmd{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = pmd, pmd
	must(t, cmd.Start())
	go func() { _ = cmd.Wait(); close(pmd.ended) }()
	t.Cleanup(func() {
		pmd.kill()
		if t.Failed() {
			t.Logf("%s\n%s", cmd, pmd.said(0))
		}
	})
	return pmd
}

func (p *testpmd) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// ask gives a command again and again until the answer has the text, and is false if it had
// not within the time.
func (p *testpmd) ask(t *testing.T, within time.Duration, command, want string) bool {
	t.Helper()
	from := len(p.said(0))
	for deadline := time.Now().Add(within); !strings.Contains(p.said(from), want); {
		select {
		case <-p.ended:
			t.Fatalf("%s: testpmd has ended", command)
		case <-time.After(200 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return false
		}
		fmt.Fprintln(p.stdin, command)
	}
	return true
}

// must is ask for an answer that has to come.
func (p *testpmd) must(t *testing.T, command, want string) {
	t.Helper()
	if !p.ask(t, patience, command, want) {
		t.Fatalf("%s: no answer has %q", command, want)
	}
}

// tell gives commands that have no answer.
func (p *testpmd) tell(commands ...string) { fmt.Fprintln(p.stdin, strings.Join(commands, "\n")) }

// burst sends 32 packets to the peer, which sends them back: both have then received and sent
// them. DPDK's vhost now and then misses what comes right after it has connected: then the
// burst is sent again.
func burst(t *testing.T, app, peer *testpmd) {
	t.Helper()
	const counted = "RX-packets: 32         RX-missed: 0          RX-bytes:  2048\n  RX-errors: 0\n  RX-nombuf:  0         \n  TX-packets: 32 "
	for try := 0; ; try++ {
		for _, p := range []*testpmd{app, peer} {
			p.must(t, "show port info 0", "Link status: up")
			p.tell("clear port stats 0")
		}
		peer.tell("set fwd io", "start")
		app.tell("set fwd rxonly", "start tx_first 1")
		arrived := app.ask(t, patience/10, "show port stats 0", counted) && peer.ask(t, patience/10, "show port stats 0", counted)
		for _, p := range []*testpmd{app, peer} { // who looks at a ring that is gone may crash
			p.must(t, "stop", "Packet forwarding not started")
		}
		if arrived {
			return
		}
		if try == 9 {
			t.Fatal("no burst came back")
		}
	}
}

func TestPacketsReachTheOtherEnd(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		needs(t, map[string]string{"dpdk-testpmd": "dpdk-dev", "nsenter": "util-linux"})
		stage(t)
		const guest, backEnd = "vhost-user, where the switch", "vhost-user, where the container"
		for n, c := range []struct {
			name, example        string
			listener, connecting []string
			reconnect            []string // what the latter is told after the listener's restart; nil = it is restarted instead
		}{
			{"memif", "memif", byShell(t, "memif;"), byGo("dpdk-testpmd"), []string{"port stop 0", "port start 0"}},
			{"vhost-user, the guest listens", "vhost-user", byGo("dpdk-testpmd"), byShell(t, backEnd), nil},
			{"vhost-user, the switch listens", "vhost-user", byShell(t, backEnd), byShell(t, guest), nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				sandbox := fmt.Sprintf("c0ffee%06d", n)
				listens := strings.NewReplacer("{containerID:12}", sandbox, `"role": "slave"`, `"role": "master"`)
				connects := strings.NewReplacer("{containerID:12}", sandbox, `"mode": "server"`, `"mode": "client"`)
				here, there := attach(t, sandbox, c.example, listens), attach(t, "other"+sandbox, c.example, connects)
				listener := here.start(t, c.listener)
				socketOf(t, sandbox)
				connecting := there.start(t, c.connecting)
				burst(t, listener, connecting)
				if c.reconnect == nil {
					connecting.kill()
					connecting = there.start(t, c.connecting)
				} else {
					listener.kill()
					listener = here.start(t, c.listener)
					listener.must(t, "show port info 0", "Link status: ")
					connecting.tell(c.reconnect...)
				}
				burst(t, connecting, listener)
			})
		}
	})
}

// socketOf waits for the socket of a sandbox.
func socketOf(t *testing.T, sandbox string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if found, _ := filepath.Glob("/var/lib/cni/usrspcni/" + sandbox + "/*"); len(found) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody has made the socket")
		}
	}
}

// What there is no device for here starts a program that prints its arguments, and virsh also
// what it reads.
func TestArguments(t *testing.T) {
	const (
		vf    = `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.3", "rdma-device": "mlx5_2,mlx5_3"}}`
		vdpa  = `{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0"}}`
		vhost = `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "server", "path": "/run/vhost/s"}}`
		memif = `{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "mode": "ethernet", "path": "/run/memif/s"}}`

		qemuVhost   = "-chardev socket,id=net1,path=/run/vhost/s,server=on -netdev vhost-user,id=net1,chardev=net1 -device virtio-net-pci,netdev=net1 -l 2"
		qemuVDPA    = "-netdev vhost-vdpa,id=net1,vhostdev=/dev/vhost-vdpa-0 -device virtio-net-pci,netdev=net1 -l 2"
		domainVF    = "<interface type='hostdev' managed='no'><source><address type='pci' domain='0x0000' bus='0x3b' slot='0x00' function='0x3'/></source></interface>"
		domainVhost = "<interface type='vhostuser'><source type='unix' path='/run/vhost/s' mode='server'/><model type='virtio'/></interface>"
		domainVDPA  = "<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>"
		attach      = "attach-device -l 2 /dev/stdin\n"
	)
	linktest.Run(t, func(t *testing.T) {
		needs(t, map[string]string{"nsenter": "util-linux"})
		for name, script := range map[string]string{"dpdk-testpmd": "", "ibv_rc_pingpong": "", "qemu-system-x86_64": "", "vppctl": "", "virsh": "cat\n"} {
			must(t, os.WriteFile("/run/"+name, []byte("#!/bin/sh\necho \"$@\"\n"+script), 0o755))
		}
		t.Setenv("PATH", "/run:"+os.Getenv("PATH"))
		for _, c := range []struct{ after, file, sh, program, golang string }{
			{"A VF on vfio-pci, whose", vf, "-a 0000:3b:00.3 -l 2", "dpdk-testpmd", "-a 0000:3b:00.3 -l 2"},
			{"vDPA, `driver` vhost:", vdpa, "--no-pci --vdev=net_virtio_user0,path=/dev/vhost-vdpa-0 -l 2", "dpdk-testpmd", "--vdev=net_virtio_user_net1,path=/dev/vhost-vdpa-0 --no-pci -l 2"},
			{"A VF on vfio-pci:", vf, "-device vfio-pci,host=0000:3b:00.3 -l 2", "qemu-system-x86_64", "-device vfio-pci,host=0000:3b:00.3 -l 2"},
			{"vhost-user. The socket's", vhost, "-m 1G -object memory-backend-memfd,id=mem,size=1G,share=on -numa node,memdev=mem " + qemuVhost, "qemu-system-x86_64", qemuVhost},
			{"vDPA, `driver` vhost, in a VM", vdpa, qemuVDPA, "qemu-system-x86_64", qemuVDPA},
			{"With libvirt", vf, attach + domainVF, "echo", domainVF + " -l 2"},
			{"With libvirt", vhost, attach + domainVhost, "echo", domainVhost + " -l 2"},
			{"With libvirt", vdpa, attach + domainVDPA, "echo", domainVDPA + " -l 2"},
			{"memif with VPP", memif, "create memif socket id 1 filename /run/memif/s\ncreate interface memif id 0 socket-id 1 slave", "", ""},
			{"vhost-user with VPP", vhost, "create vhost-user socket /run/vhost/s server", "", ""},
			{"`rdma-device`", vf, "-d mlx5_2 -l 2", "ibv_rc_pingpong", "-d mlx5_2 -l 2"},
		} {
			p := pod{linktest.NewNetns(t), t.TempDir()}
			must(t, os.WriteFile(p.dir+"/net1.json", []byte(c.file), 0o644))
			try := func(want string, application []string) {
				got, err := p.inside(t, append(application, "-l", "2")...).CombinedOutput()
				if err != nil || string(got) != want+"\n" {
					t.Errorf("%s: %q (%v), want %q", c.after, got, err, want)
				}
			}
			try(c.sh, byShell(t, c.after))
			if c.program != "" {
				try(c.golang, byGo(c.program))
			}
		}
	})
}

func TestTheDocumentShowsTheProgram(t *testing.T) {
	program, err := os.ReadFile("start/main.go")
	must(t, err)
	text, err := os.ReadFile("../../docs/applications.md")
	must(t, err)
	shown := strings.Split(string(text), "```go\n")[1:]
	for n := range shown {
		if shown[n], _, _ = strings.Cut(shown[n], "```"); !strings.Contains(string(program), "\n"+shown[n]) {
			t.Errorf("start/main.go does not have what docs/applications.md shows:\n%s", shown[n])
		}
	}
	if len(shown) != 4 {
		t.Errorf("docs/applications.md shows %d functions", len(shown))
	}
}
