package main

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// What a node has to pull and to keep, in bytes.
const (
	largestTool  = 20_000_000 // devinfoctl
	largestImage = 40_000_000 // devinfo-agent's, unpacked
)

// The build is the Makefile's, but for the garbage collector.
func TestTheAgentsImageIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds programs")
	}
	recipe := recipes()[1]
	bin := filepath.Join(t.TempDir(), "linux_"+runtime.GOARCH)
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags", "-s -w", "-o", bin + "/"}
	for _, name := range recipe.programs {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	programs, err := readPrograms(filepath.Dir(bin))
	must(t, err)
	image, err := (&release{version: "v1.2.3"}).image(recipe, runtime.GOARCH, programs)
	must(t, err)
	layers, err := image.Layers()
	must(t, err)
	files, err := layers[0].Uncompressed()
	must(t, err)
	defer files.Close()
	var all int64
	for _, h := range headers(t, files) {
		t.Log(h.Name, h.Size)
		if all += h.Size; h.Name == "devinfoctl" && h.Size > largestTool {
			t.Errorf("devinfoctl has %d bytes, %d too many", h.Size, h.Size-largestTool)
		}
	}
	if all > largestImage {
		t.Errorf("the image of %s has %d bytes, %d too many", recipe.name, all, all-largestImage)
	}
}
