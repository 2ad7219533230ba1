package install_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
)

func TestFullDiskLeavesTheOldPlugin(t *testing.T) {
	old, now := built(t, "v1.2.0"), built(t, "v1.3.0")
	linktest.Run(t, func(t *testing.T) {
		p := keeper(t, old)
		must(t, syscall.Mount("tmpfs", p.Dir, "tmpfs", 0, "size=7m")) // enough for one plugin, but not for two
		defer func() { must(t, syscall.Unmount(p.Dir, 0)) }()
		keep(t, p, install.Installed)
		p.From = now
		_, err := p.Keep(context.Background())
		difftest.Is(t, err, syscall.ENOSPC)
		holds(t, p.Dir, old)
		must(t, syscall.Mount("", p.Dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
		keep(t, p, install.Replaced)
		must(t, syscall.Mount("", p.Dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_NOEXEC, "size=64m"))
		keep(t, p, install.AlreadyThere) // it does not run the unchanged plugin, which it knows
	})
}

// A node that was too busy to run the plugin, or could not read it, may be able to later.
func TestPluginThatCouldNotRunIsTriedAgain(t *testing.T) {
	built := built(t, "v1.2.0")
	linktest.Run(t, func(t *testing.T) {
		p := keeper(t, filepath.Join(t.TempDir(), install.Name))
		must(t, syscall.Mount("tmpfs", filepath.Dir(p.From), "tmpfs", syscall.MS_NOEXEC, "size=16m"))
		defer func() { must(t, syscall.Unmount(filepath.Dir(p.From), 0)) }()
		write(t, p.From, read(t, built), 0o755)
		refuse(t, p, "does not run here: VERSION: fork/exec "+p.From+": permission denied")
		must(t, syscall.Mount("", filepath.Dir(p.From), "tmpfs", syscall.MS_REMOUNT, "size=16m"))
		keep(t, p, install.Installed)
		must(t, syscall.Mount("", filepath.Dir(p.From), "tmpfs", syscall.MS_REMOUNT|syscall.MS_NOEXEC, "size=16m"))
		keep(t, p, install.AlreadyThere) // without another run
	})
}

func TestReadOnlyDirectoryIsLeftUnchanged(t *testing.T) {
	from := built(t, "v1.2.0")
	linktest.Run(t, func(t *testing.T) {
		disk := storetest.Mount(t, 10)
		s := arranger(t)
		s.To = filepath.Join(disk.Dir, "node.json")
		write(t, filepath.Join(s.Dir, "default.json"), quiet, 0o644)
		p := &install.PluginFile{From: from, Dir: disk.Dir, Newer: none}
		disk.ReadOnly(true)
		_, err := p.Keep(context.Background())
		_, again := s.Keep()
		difftest.Is(t, err, syscall.EROFS)
		difftest.Is(t, again, syscall.EROFS)
		difftest.Holds(t, disk.Dir)
		disk.ReadOnly(false)
		arrange(t, s, "default.json", install.Installed, quiet)
	})
}

// A mark that cannot be read says neither that an agent has installed the file nor that none has. Nothing blocks on a pipe.
func TestUnreadableMarkIsAnErrorAndChangesNothing(t *testing.T) {
	const byAgent, byDriver = ".devinfo.sha256", ".devinfo.cni-dra-driver.sha256"
	type files = *install.PluginFile
	to := func(p files) string { return filepath.Join(p.Dir, install.Name) }
	settings := func(p files, from string) *install.Settings {
		s := arranger(t)
		write(t, filepath.Join(s.Dir, from), quiet, 0o644)
		s.To = to(p)
		return s
	}
	failed := func(_ any, err error) error { return err }
	for name, test := range map[string]struct {
		overwrite bool
		mark      string
		do        func(files) error
	}{
		"Keep":                       {false, byAgent, func(p files) error { return failed(p.Keep(t.Context())) }},
		"Keep over a foreign file":   {true, byAgent, func(p files) error { return failed(p.Keep(t.Context())) }},
		"Place":                      {true, byDriver, func(p files) error { return failed(p.Place(t.Context())) }},
		"Remove":                     {false, byAgent, func(p files) error { return failed(p.Remove(t.Context())) }},
		"Remove of the driver":       {false, byDriver, func(p files) error { return failed(p.Remove(t.Context())) }},
		"RemovePlaced":               {false, byAgent, func(p files) error { return failed(p.RemovePlaced()) }},
		"RemovePlaced of the driver": {false, byDriver, func(p files) error { return failed(p.RemovePlaced()) }},
		"Settings.Keep":              {false, byAgent, func(p files) error { return failed(settings(p, "default.json").Keep()) }},
		"Settings.Keep over foreign": {true, byAgent, func(p files) error {
			s := settings(p, "default.json")
			s.OverwriteForeign = true
			return failed(s.Keep())
		}},
		"Settings.Keep of none": {false, byAgent, func(p files) error { return failed(settings(p, "n2.json").Keep()) }},
		"Settings.Remove":       {false, byAgent, func(p files) error { return failed(settings(p, "n2.json").Remove()) }},
		"Program":               {false, byAgent, func(p files) error { return failed(install.Program(p.From, to(p))) }},
		"RemoveProgram":         {false, byAgent, func(p files) error { return install.RemoveProgram(to(p)) }},
	} {
		for want, spoil := range map[error]func(mark string) error{
			syscall.ELOOP:       func(mark string) error { return os.Symlink(filepath.Base(mark), mark) },
			store.ErrNotRegular: func(mark string) error { return unix.Mkfifo(mark, 0o644) },
		} {
			p := keeper(t, built(t, "v1.2.0"))
			p.ForDriver, p.OverwriteForeign = true, test.overwrite
			text := read(t, script(t, p.Dir))
			difftest.Write(t, filepath.Join(p.Dir, byDriver), fmt.Sprintf("%x  devinfo\n", sha256.Sum256([]byte(text))), 0o644)
			must(t, os.RemoveAll(filepath.Join(p.Dir, test.mark)), spoil(filepath.Join(p.Dir, test.mark)))
			err := test.do(p)
			difftest.Same(t, fmt.Sprintf("%s: %v: the error is %v", name, err, want), errors.Is(err, want), true)
			difftest.Same(t, name+": the file", read(t, to(p)), text)
		}
	}
}

// A lock and a temporary file, for the mark and then for the settings.
func TestFullDiskLeavesNoSettings(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		disk := storetest.Mount(t, 10)
		s := arranger(t)
		s.To = filepath.Join(disk.Dir, "node.json")
		write(t, filepath.Join(s.Dir, "default.json"), quiet, 0o644)
		for left := range 3 {
			empty := disk.Fill(left)
			_, err := s.Keep()
			difftest.Is(t, err, syscall.ENOSPC)
			_, err = os.Lstat(s.To)
			difftest.Is(t, err, os.ErrNotExist)
			empty()
			must(t, os.RemoveAll(filepath.Join(disk.Dir, ".node.json.sha256")))
		}
		arrange(t, s, "default.json", install.Installed, quiet)
	})
}

// The lock of package agent normally prevents two installers at the same time.
func TestConcurrentInstallersLeaveACompletePlugin(t *testing.T) {
	versions := []string{built(t, "v1.2.0"), built(t, "v1.3.0")}
	contents := []string{read(t, versions[0]), read(t, versions[1])}
	dir := t.TempDir()
	var installers sync.WaitGroup
	for n := range 6 {
		installers.Go(func() {
			p := &install.PluginFile{From: versions[n%2], Dir: dir, Newer: none}
			for range 5 {
				if _, err := p.Keep(context.Background()); err != nil {
					t.Error(err)
				}
				data, err := os.ReadFile(filepath.Join(dir, install.Name))
				if err != nil || !slices.Contains(contents, string(data)) {
					t.Errorf("%d bytes, %v", len(data), err)
				}
			}
		})
	}
	installers.Wait()
	_, err := (&install.PluginFile{From: versions[1], Dir: dir, Newer: none}).Keep(context.Background())
	must(t, err)
	holds(t, dir, versions[1])
}

// Every user who can read a directory can take an flock on it.
func TestOrdinaryUserCannotBlockInstallers(t *testing.T) {
	p := keeper(t, built(t, "v1.2.0"))
	storetest.Lock(t, p.Dir)
	keep(t, p, install.Installed)
	_, err := p.Remove(t.Context())
	must(t, err)
	difftest.Holds(t, p.Dir)
}

const selinux = "security.selinux"

// labelled sets the SELinux label of a directory. If the kernel has no SELinux, the label is an ordinary
// extended attribute.
func labelled(t *testing.T, dir, label string) {
	t.Helper()
	err := unix.Setxattr(dir, selinux, []byte(label), 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EINVAL) {
		t.Skipf("the label %s of %s cannot be set here, as CAP_SYS_ADMIN and a file system that has labels would allow: %v", label, dir, err)
	}
	must(t, err)
}

func labelOf(t *testing.T, path string) string {
	t.Helper()
	text := make([]byte, 200)
	n, err := unix.Lgetxattr(path, selinux, text)
	must(t, err)
	return string(text[:n])
}

func TestFilesHaveTheLabelOfTheirDirectory(t *testing.T) {
	const bin, etc = "system_u:object_r:bin_t:s0\x00", "system_u:object_r:etc_t:s0\x00"
	p, s := keeper(t, built(t, "v1.2.0")), arranger(t)
	labelled(t, p.Dir, bin)
	must(t, os.Mkdir(filepath.Dir(s.To), 0o755))
	labelled(t, filepath.Dir(s.To), etc)
	write(t, filepath.Join(s.Dir, "default.json"), quiet, 0o644)
	keep(t, p, install.Installed)
	arrange(t, s, "default.json", install.Installed, quiet)
	plugin := filepath.Join(p.Dir, install.Name)
	difftest.Same(t, "label of the plugin", labelOf(t, plugin), bin)
	difftest.Same(t, "label of the settings", labelOf(t, s.To), etc)
	must(t, unix.Setxattr(plugin, selinux, []byte("system_u:object_r:container_file_t:s0:c1,c2\x00"), 0))
	keep(t, p, install.AlreadyThere)
	difftest.Same(t, "label of the plugin after another label", labelOf(t, plugin), bin)
}

// Kubespray's /opt/cni/bin belongs to the user kube. Root needs CAP_DAC_OVERRIDE to write to it.
func TestErrorForDirectoryOfAnotherUserNamesTheRemedy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root, to change the owner of a directory")
	}
	p, s := keeper(t, built(t, "v1.2.0")), arranger(t)
	write(t, filepath.Join(s.Dir, "default.json"), quiet, 0o644)
	must(t, os.Mkdir(filepath.Dir(s.To), 0o755))
	for _, dir := range []string{p.Dir, filepath.Dir(s.To)} {
		must(t, os.Chown(dir, 1000, 1000))
	}
	own := keeper(t, p.From)
	done := make(chan struct{})
	go func() { // on a thread without the capability, which ends with it
		defer close(done)
		runtime.LockOSThread()
		header, sets := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		err := unix.Capget(header, &sets[0])
		sets[0].Effective &^= 1 << unix.CAP_DAC_OVERRIDE
		if err = errors.Join(err, unix.Setfsuid(65534), unix.Capset(header, &sets[0])); err != nil {
			t.Error(err)
			return
		}
		_, err = p.Keep(context.Background())
		_, again := s.Keep()
		const remedy = ": permission denied: %s belongs to user 1000: make root its owner, or give this program CAP_DAC_OVERRIDE (agent.dacOverride=true in the chart)"
		expect(t, err, fmt.Sprintf(remedy, p.Dir))
		expect(t, again, fmt.Sprintf(remedy, filepath.Dir(s.To)))
		if errors.Is(err, os.ErrPermission) {
			t.Error("the error matches os.ErrPermission, so callers would add another hint")
		}
		_, err = own.Keep(context.Background())
		difftest.Is(t, err, os.ErrPermission) // whose remedy is another
	}()
	<-done
	must(t, os.Mkdir(filepath.Join(p.Dir, ".devinfo.lock"), 0o755))
	_, err := p.Keep(t.Context())
	difftest.Is(t, err, syscall.EISDIR)
	difftest.Lacks(t, err.Error(), "belongs to")
}
