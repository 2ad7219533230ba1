package install

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/build"
)

// Executable is a plugin's file.
type Executable struct {
	Size        int64    `json:"size"`   // bytes
	SHA256      string   `json:"sha256"` // hexadecimal
	CNIVersions []string `json:"cniVersions,omitempty"`
	Version     string   `json:"version,omitempty"` // "" = an older devinfo, or none
	Problem     string   `json:"problem,omitempty"` // why it does not say its CNI versions

	// JournalFormat is the highest that it reads; 0 = it does not say.
	JournalFormat int `json:"journalFormat,omitempty"`
	// IsDevinfo says that it is devinfo, of whatever age.
	IsDevinfo bool `json:"-"`
	// Build is what Go has noted of a program, or devinfo says itself.
	Build build.Info `json:"-"`

	usable bool // by its owner and mode
}

func (e *Executable) String() string {
	says := e.Problem
	if says == "" {
		says = fmt.Sprintf("CNI %s", e.CNIVersions)
	}
	return fmt.Sprintf("%d bytes\tsha256:%.16s\t%s", e.Size, e.SHA256, says)
}

// program is the package that devinfo is built from. The linker records it in every build,
// stripped or not, of whatever age.
const program = "devinfo-cni.io/cmd/devinfo"

var errIrregular = errors.New("is not a regular file")

// Examine measures an executable and asks it for its versions. That a file does not
// answer is its Problem; that there is none, or something else, an error.
func Examine(ctx context.Context, name string) (*Executable, error) {
	stat, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("%s %w (mode %s)", name, errIrregular, stat.Mode())
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	e := &Executable{Size: stat.Size(), SHA256: fmt.Sprintf("%x", sum.Sum(nil)), usable: sound(stat)}
	if e.CNIVersions, err = versions(ctx, name); err != nil {
		e.Problem = err.Error()
	}
	info, err := buildinfo.Read(f)
	if err != nil { // not Go's
		return e, nil
	}
	if e.Build, e.IsDevinfo = build.Of(info), info.Path == program; e.IsDevinfo {
		out, failed := run(ctx, name, []string{"--version"}) // an older build takes no arguments, and prints nothing
		if r, err := build.ParsePlugin(string(out)); err == nil && failed == nil {
			e.Version, e.JournalFormat, e.Build = r.Version, r.JournalFormat, r.Info
		}
	}
	return e, nil
}

// run runs a plugin with nothing but these in its environment.
func run(ctx context.Context, name string, args []string, env ...string) ([]byte, error) {
	const enough = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append([]string{}, env...)
	cmd.WaitDelay = time.Second
	return cmd.Output()
}

// versions runs a plugin's VERSION, which touches nothing (CNI specification 1.1.0,
// "VERSION").
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
