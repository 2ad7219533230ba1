package install

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/core/build"
)

// Executable describes a plugin's file.
type Executable struct {
	SHA256      string   `json:"sha256"` // hexadecimal
	CNIVersions []string `json:"cniVersions,omitempty"`
	Version     string   `json:"version,omitempty"` // "" if the file is not a devinfo that supports --version
	Problem     string   `json:"problem,omitempty"` // why CNIVersions is unknown

	// JournalFormat is the newest format of journal entries that the plugin reads; 0 if unknown.
	JournalFormat int `json:"journalFormat,omitempty"`
	// IsDevinfo is true for every build of devinfo.
	IsDevinfo bool `json:"-"`
	// Build is the output of devinfo --version, or the build information in the file.
	Build build.Info `json:"-"`

	usable bool // the owner and mode are correct
}

func (e *Executable) String() string {
	return fmt.Sprintf("sha256:%.16s\t%s", e.SHA256, cmp.Or(e.Problem, fmt.Sprintf("CNI %s", e.CNIVersions)))
}

// program is the main package of devinfo. The linker records it in every build, stripped or not.
const program = "devinfo-cni.io/cmd/devinfo"

var errIrregular = errors.New("is not a regular file")

// Examine reads an executable and runs it to get its versions. If it cannot be run, Examine sets Problem.
// It returns an error if the file does not exist or is not a regular file.
func Examine(ctx context.Context, name string) (*Executable, error) {
	stat, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("%s %w (mode %s)", name, errIrregular, stat.Mode())
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a named pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	e := &Executable{SHA256: fmt.Sprintf("%x", sum.Sum(nil)), usable: safeMode(stat)}
	if e.CNIVersions, err = versions(ctx, name); err != nil {
		e.Problem = err.Error()
	}
	info, err := buildinfo.Read(f)
	if err != nil { // not a Go program
		return e, nil
	}
	if e.Build, e.IsDevinfo = build.Of(info), info.Path == program; e.IsDevinfo {
		out, _ := run(ctx, name, []string{"--version"}) // a build that does not support --version prints something else
		if r, err := build.ParsePlugin(string(out)); err == nil {
			e.Version, e.JournalFormat, e.Build = r.Version, r.JournalFormat, r.Info
		}
	}
	return e, nil
}

func run(ctx context.Context, name string, args []string, env ...string) ([]byte, error) {
	const enough = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append([]string{}, env...)
	cmd.WaitDelay = time.Second
	return cmd.Output()
}

// versions runs the plugin's VERSION command and returns its CNI versions. VERSION changes nothing (CNI
// specification 1.1.0, "VERSION").
func versions(ctx context.Context, name string) ([]string, error) {
	out, err := run(ctx, name, nil, "CNI_COMMAND=VERSION")
	if err != nil {
		return nil, fmt.Errorf("VERSION: %w", err)
	}
	info, err := new(version.PluginDecoder).Decode(out)
	if err != nil {
		return nil, fmt.Errorf("VERSION: not a CNI plugin: %w", err)
	}
	return info.SupportedVersions(), nil
}
