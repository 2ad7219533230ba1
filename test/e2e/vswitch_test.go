//go:build e2e

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const vswitchPath = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"

// A vswitch is OVS-DPDK on the node, with its files in a directory of its own.
type vswitch struct {
	dir     string
	log     *os.File
	running *exec.Cmd
}

func (v *vswitch) database() string { return "unix:" + v.dir + "/db.sock" }

// newVSwitch runs the database that a switch has until the end of the test.
func newVSwitch(t *testing.T) *vswitch {
	t.Helper()
	dir := newDir(t, "")
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	v := &vswitch{dir: dir, log: log}
	onNode(t, "ovsdb-tool", "create", dir+"/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
	database := v.run(t, "ovsdb-server", dir+"/conf.db", "--remote=p"+v.database())
	t.Cleanup(func() {
		v.end(t, database, "ovsdb-server")
		log.Close()
		if said, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("OVS says:\n%s", said)
		}
	})
	v.vsctl(t, "--no-wait", "--retry", "init")
	v.vsctl(t, "--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true", "other_config:per-port-memory=true",
		"other_config:dpdk-extra=--no-pci --no-shconf --no-huge --legacy-mem -m 256") // without the last but one OVS says --in-memory, which --no-huge excludes
	return v
}

// run starts a program of OVS on the node.
func (v *vswitch) run(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := nodeCommand(append([]string{"env", "OVS_RUNDIR=" + v.dir}, args...)...)
	cmd.Stdout, cmd.Stderr = v.log, v.log
	must(t, cmd.Start())
	return cmd
}

// end kills a program of OVS that runs.
func (v *vswitch) end(t *testing.T, cmd *exec.Cmd, program string) {
	t.Helper()
	onNode(t, "kill", "-KILL", onNode(t, "pidof", program))
	_ = cmd.Wait()
}

func (v *vswitch) start(t *testing.T) {
	t.Helper()
	v.running = v.run(t, vswitchPath, v.database())
	t.Cleanup(func() { v.end(t, v.running, vswitchPath) })
}

// restart kills the switch, and returns when another one runs.
func (v *vswitch) restart(t *testing.T) {
	t.Helper()
	v.end(t, v.running, vswitchPath)
	v.running = v.run(t, vswitchPath, v.database())
}

func (v *vswitch) vsctl(t *testing.T, args ...string) {
	t.Helper()
	onNode(t, append([]string{"ovs-vsctl", "--timeout=60", "--db=" + v.database()}, args...)...)
}

// ofctl asks the switch, once it is there.
func (v *vswitch) ofctl(t *testing.T, args ...string) (out string) {
	t.Helper()
	eventually(t, limit, func() (err error) {
		if out, err = tryOnNode("", append([]string{"env", "OVS_RUNDIR=" + v.dir, "ovs-ofctl"}, args...)...); err != nil {
			err = errors.Join(err, errors.New(out))
		}
		return err
	})
	return out
}
