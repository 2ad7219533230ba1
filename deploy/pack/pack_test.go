package main

import (
	"archive/tar"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// compiled are empty programs by architecture.
var compiled = map[string]string{}

// build writes empty programs with these names for an architecture.
func build(t *testing.T, bin, arch string, names ...string) {
	t.Helper()
	if compiled[arch] == "" {
		source := t.TempDir()
		write(t, filepath.Join(source, "go.mod"), "module example.com/nothing\n\ngo 1.26\n")
		write(t, filepath.Join(source, "main.go"), "package main\n\nfunc main() {}\n")
		cmd := exec.Command("go", "build", "-trimpath", "-o", "program", ".")
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		compiled[arch] = contents(t, source)["program"]
	}
	for _, name := range names {
		write(t, filepath.Join(bin, "linux_"+arch, name), compiled[arch])
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, []byte(content), 0o700))
}

// programs builds the programs of all recipes for both architectures.
func programs(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		build(t, bin, arch, "cni-dra-driver", "cni-dra-gate", "devinfo", "devinfo-agent", "devinfoctl", "kubectl-devinfo")
	}
	write(t, filepath.Join(bin, "darwin_arm64", "kubectl-devinfo"), "Mach-O")
	return bin
}

const commit = 1750000000

// pack creates a release, and returns its directory.
func pack(t *testing.T, bin string, more ...string) string {
	t.Helper()
	out := t.TempDir()
	args := []string{"release", "-bin", bin, "-version", "v1.2.3", "-revision", "abc", "-source", "https://example.com/devinfo", "-time", fmt.Sprint(commit), "-out", out,
		"-chart", "../charts/devinfo", "-krew", "../krew/devinfo.yaml.tmpl", "-downloads", "https://example.com/v1.2.3/"}
	must(t, run(append(args, more...)))
	return out
}

// contents returns the files of a directory by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filesOf(dir)
	must(t, err)
	list := map[string]string{}
	for _, f := range files {
		list[f.name] = string(f.content)
	}
	return list
}

func TestEqualProgramsGiveEqualBytes(t *testing.T) {
	bin := programs(t)
	first := contents(t, pack(t, bin, "../../LICENSE"))
	for name := range contents(t, bin) { // as if they were built on another day by another user
		long := time.Now().Add(-1000 * time.Hour)
		must(t, os.Chtimes(filepath.Join(bin, name), long, long), os.Chmod(filepath.Join(bin, name), 0o555))
	}
	second := contents(t, pack(t, bin, "../../LICENSE"))
	sums := ""
	for _, name := range []string{
		"cni-dra-driver-v1.2.3.oci.tar", "devinfo-1.2.3.tgz", "devinfo-agent-v1.2.3.oci.tar", "devinfo-v1.2.3-linux-amd64.tar.gz",
		"devinfo-v1.2.3-linux-arm64.tar.gz", "devinfo-v1.2.3.spdx.json",
		"kubectl-devinfo-v1.2.3-darwin-arm64.tar.gz", "kubectl-devinfo-v1.2.3-linux-amd64.tar.gz", "kubectl-devinfo-v1.2.3-linux-arm64.tar.gz",
		"kubectl-devinfo-v1.2.3.yaml",
	} {
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(first[name])), name)
	}
	if len(first) != 11 || first["SHA256SUMS"] != sums || !maps.Equal(first, second) {
		t.Errorf("%q, sums\n%s\nwant\n%s\nand again\n%s", slices.Sorted(maps.Keys(first)), first["SHA256SUMS"], sums, second["SHA256SUMS"])
	}
}

func TestArchiveHasOwnerRootAndTimeOfCommit(t *testing.T) {
	packed := contents(t, pack(t, programs(t), "../../LICENSE"))["devinfo-v1.2.3-linux-arm64.tar.gz"]
	list, _ := unzip(t, packed)
	var got []string
	for _, h := range list {
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != commit {
			t.Errorf("%s: owner %d:%d, time %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		got = append(got, fmt.Sprintf("%o %s", h.Mode, h.Name))
	}
	dir := "devinfo-v1.2.3-linux-arm64/"
	want := []string{"755 " + dir, "644 " + dir + "LICENSE", "755 " + dir + "cni-dra-driver", "755 " + dir + "cni-dra-gate", "755 " + dir + "devinfo", "755 " + dir + "devinfo-agent", "755 " + dir + "devinfoctl", "755 " + dir + "kubectl-devinfo"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// untar returns the headers in a tar archive, and the content of its files by name.
func untar(t *testing.T, archive io.Reader) (list []*tar.Header, files map[string]string) {
	t.Helper()
	files = map[string]string{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			return list, files
		}
		must(t, err)
		list = append(list, h)
		if content, err := io.ReadAll(r); h.Typeflag == tar.TypeReg {
			must(t, err)
			files[h.Name] = string(content)
		}
	}
}

func TestDynamicOrForeignProgramIsRefused(t *testing.T) {
	build(t, t.TempDir(), "amd64")
	content := compiled["amd64"]
	shell, err := os.ReadFile("/bin/sh")
	must(t, err)
	for name, test := range map[string]struct{ path, content, want string }{
		"another architecture's": {"linux_arm64/devinfo", content, "is for EM_X86_64"},
		"an unknown one":         {"linux_vax/devinfo", content, `in a directory for "vax"`},
		"no Go program":          {"linux_amd64/devinfo", string(shell), "linux_amd64/devinfo"},
		"not all of an image":    {"linux_amd64/devinfo", content, "not all are built for amd64"},
		"a dynamic one":          {"linux_amd64/devinfo", dynamic(content), "is not static"},
		"none":                   {"devinfo", content, "has no linux_"},
	} {
		bin := t.TempDir()
		write(t, filepath.Join(bin, test.path), test.content)
		err := run([]string{"images", "-bin", bin, "-version", "v1", "-out", t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// dynamic makes a static program look like a dynamic one by changing the type of one segment. So the test needs
// neither a linker nor a dynamic program.
func dynamic(program string) string {
	content := []byte(program)
	const header, size = 64, 56 // size of an ELF64 header, and of a program header after it
	for n := range int(binary.LittleEndian.Uint16(content[56:])) {
		if kind := content[header+n*size:]; elf.ProgType(binary.LittleEndian.Uint32(kind)) == elf.PT_GNU_STACK {
			binary.LittleEndian.PutUint32(kind, uint32(elf.PT_INTERP))
		}
	}
	return string(content)
}
