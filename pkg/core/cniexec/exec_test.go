package cniexec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

var _ invoke.Exec = &cniexec.Exec{}

var must = difftest.Must

// script writes a plugin that runs shell commands in its own directory.
func script(t testing.TB, text string) (path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "plugin")
	must(t, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\ncd %s\n%s\n", dir, text), 0o755))
	return path
}

// fifo creates a named pipe beside a plugin. A test and a plugin wait for each other on it.
func fifo(t testing.TB, plugin, name string) (path string) {
	t.Helper()
	path = filepath.Join(filepath.Dir(plugin), name)
	must(t, syscall.Mkfifo(path, 0o600))
	return path
}

// hear waits until a process writes to a pipe.
func hear(fifo string) error {
	_, err := os.ReadFile(fifo)
	return err
}

// tell writes to a pipe and waits until a process reads it.
func tell(fifo string) error { return os.WriteFile(fifo, []byte("go on\n"), 0) }

func call(t testing.TB, e *cniexec.Exec, path, verb string, env ...string) (string, error) {
	t.Helper()
	out, err := e.ExecPlugin(t.Context(), path, []byte(`{"name":"net"}`), append(env, "CNI_COMMAND="+verb))
	return string(out), err
}

// expect checks that err has the reason and contains each of the words.
func expect(t testing.TB, err error, reason cniexec.Reason, words ...string) {
	t.Helper()
	difftest.Equal(t, difftest.As[*cniexec.Error](t, err).Reason, reason)
	difftest.Says(t, err, words...)
}

func TestExecPassesStdinAndReturnsStdout(t *testing.T) {
	plugin := script(t, `cat; echo "$A $CNI_COMMAND" >&2`)
	var stderr bytes.Buffer
	out, err := call(t, &cniexec.Exec{Stderr: &stderr}, plugin, "ADD", "A=1")
	must(t, err)
	difftest.Equal(t, []string{out, stderr.String()}, []string{`{"name":"net"}`, "1 ADD\n"})
}

// An interpreter's plugin may print its error and forget the exit status, or write its own JSON, which libcni takes for
// success.
func TestOutputAndExitStatusDecideWhetherPluginFailed(t *testing.T) {
	const every, allButAdd = "ADD DEL CHECK GC STATUS", "DEL CHECK GC STATUS"
	says := func(text string) string { return "echo '" + text + "'" }
	for _, test := range []struct {
		verbs   string
		reason  cniexec.Reason // "" = success
		words   []string
		scripts []string
	}{
		{every, cniexec.ReasonPlugin, []string{"no; why"}, []string{
			says(`{"cniVersion":"1.1.0","code":7,"msg":"no","details":"why"}`) + "; exit 1", says(`{"cniVersion":"1.1.0","code":7,"msg":"no","details":"why"}`),
		}},
		{every, "", nil, []string{
			says(`{"cniVersion":"1.1.0","msg":"hello","code":0,"interfaces":[]}`), says(`{"cniVersion":"1.1.0"}`), says(`{"code":0,"msg":"done"}`),
			says(`{"msg":"hello","ips":[]}`), says(`{"msg":"hello","interfaces":[]}`), says(`{"error":"none","routes":[]}`), says(`{"msg":"hello","ip4":{}}`), says(`{"msg":"hello","ip6":{}}`),
		}},
		{every, cniexec.ReasonOutput, []string{"/plugin: printed an error that is no CNI error"}, []string{
			says(`{"code":"7","msg":"no"}`), says(`{"cniVersion":"1.1.0","msg":"no"}`), says(`{"error":"no"}`), says(`{"code":7.5}`), says(`{"code":true}`),
		}},
		{"ADD", cniexec.ReasonOutput, []string{"/plugin: printed no CNI result"}, noResults},
		{allButAdd, "", nil, noResults},
		{"ADD", cniexec.ReasonOutput, []string{"printed no CNI result"}, []string{says(strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101))}},
		{"ADD", "", nil, []string{says(strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100))}},
		{every, cniexec.ReasonPlugin, []string{"only a message"}, []string{says(`{"msg":"only a message"}`) + "; exit 1"}},
		{every, cniexec.ReasonDied, []string{"/plugin: exit status 9", `standard output "out"`, `standard error "err"`}, []string{"echo out; echo err >&2; exit 9"}},
		{every, cniexec.ReasonDied, []string{"/plugin: signal: killed"}, []string{"kill -KILL $$"}},
		{"DEL", cniexec.ReasonDied, []string{`xxx"`}, []string{"head -c 1024 /dev/zero | tr '\\0' x >&2; exit 1"}},
		{every, cniexec.ReasonDied, []string{`standard error "begins\nxxx`, `xxx..."`}, []string{"echo begins >&2; head -c 3000 /dev/zero | tr '\\0' x >&2; exit 1"}},
	} {
		for _, text := range test.scripts {
			plugin := script(t, text)
			for verb := range strings.FieldsSeq(test.verbs) {
				_, err := call(t, &cniexec.Exec{}, plugin, verb)
				if test.reason == "" {
					must(t, err)
					continue
				}
				expect(t, err, test.reason, test.words...)
				if own := new(types.Error); len(err.Error()) > 1300 || test.reason == cniexec.ReasonPlugin && (!errors.As(err, &own) || own.Code != 7 && own.Code != 0) {
					t.Errorf("%s: %#v", text, err)
				}
			}
		}
	}
}

var noResults = []string{"", "echo hello", "echo 5", "echo null", `echo '{"a":'`, `echo '{"ips": [null]}'`, `echo '{"ip6": {"routes": [null]}}'`, `echo '{"interfaces": [{}, null], "dns": 5}'`}

// The plugin does not end by itself, so Exec cannot read its whole output.
func TestPluginThatPrintsTooMuchIsStopped(t *testing.T) {
	plugin := script(t, "while :; do cat /dev/zero || exit 0; done")
	for _, verb := range []string{"ADD", "DEL"} {
		_, err := call(t, &cniexec.Exec{}, plugin, verb)
		expect(t, err, cniexec.ReasonOutput, plugin+": printed more than 10000000 bytes")
	}
	plugin = script(t, `printf '{"a":"'; head -c 9999990 /dev/zero | tr '\0' x; printf '"}'`)
	out, err := call(t, &cniexec.Exec{}, plugin, "ADD")
	must(t, err)
	difftest.Equal(t, len(out), 9999998)
}

// A failing log must not break the plugin's standard error.
func TestErrorsOfTheLogDoNotReachPlugin(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	must(t, r.Close())
	out, err := call(t, &cniexec.Exec{Stderr: w}, script(t, "head -c 1000000 /dev/zero >&2 && echo {}"), "ADD")
	must(t, err)
	difftest.Equal(t, out, "{}\n")
}

func TestHangingPluginIsKilledWithItsChildren(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes the plugin's limit of 5 s, and 10 s between SIGTERM and SIGKILL")
	}
	t.Parallel()
	for name, deaf := range map[string]string{"by SIGTERM": "", "by SIGKILL": "trap '' TERM; "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin := script(t, deaf+"exec 4>alive; sleep 3600 & wait; sleep 3600")
			alive := fifo(t, plugin, "alive")
			gone := make(chan error, 1)
			go func() { gone <- hear(alive) }() // returns once no process has the pipe open
			began := time.Now()
			_, err := call(t, &cniexec.Exec{Limit: 5 * time.Second}, plugin, "ADD") // long enough for a slow shell to open the pipe
			expect(t, err, cniexec.ReasonTimeout, plugin+": killed after its limit of 5s")
			must(t, <-gone)
			if took := time.Since(began); deaf != "" && took < 10*time.Second {
				t.Errorf("it had %v between SIGTERM and SIGKILL", took)
			}
		})
	}
}

func TestContextDoesNotEndPlugin(t *testing.T) {
	plugin := script(t, "echo >begun; read x <goon; echo {}")
	begun, goOn := fifo(t, plugin, "begun"), fifo(t, plugin, "goon")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan error, 1)
	go func() {
		err := hear(begun)
		cancel()
		told <- errors.Join(err, tell(goOn))
	}()
	out, err := new(cniexec.Exec).ExecPlugin(ctx, plugin, nil, nil)
	must(t, err)
	must(t, <-told)
	difftest.Equal(t, string(out), "{}\n")
}

func TestExecDoesNotWaitForDaemonWithOpenOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes the 10 s that an output may")
	}
	t.Parallel()
	plugin := script(t, "(read x <end; echo late) & exit 0") // DEL has no output to wait for
	end := fifo(t, plugin, "end")
	_, err := call(t, &cniexec.Exec{}, plugin, "DEL")
	must(t, err)
	must(t, tell(end)) // the daemon is still running
}

func TestExecWaitsForExecutableThatIsBeingWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	difftest.Write(t, path, difftest.Read(t, "/bin/true"), 0o755)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	if err := exec.Command(path).Run(); !errors.Is(err, syscall.ETXTBSY) {
		t.Skipf("this kernel runs files that are open for writing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cancel()
	_, err = new(cniexec.Exec).ExecPlugin(ctx, path, nil, nil)
	expect(t, err, cniexec.ReasonNode, "fork/exec "+path+": text file busy")
	written := make(chan error, 1)
	go func() { written <- f.Close() }()
	_, err = call(t, &cniexec.Exec{}, path, "DEL")
	must(t, errors.Join(err, <-written))
}

// A signal from a terminal goes to the group in the foreground. A plugin with a limit is ended with its children by its group.
func TestOnlyPluginWithLimitHasGroupOfItsOwn(t *testing.T) {
	plugin := script(t, `read -r pid name state parent group rest </proc/$$/stat; echo "{\"own\":$((pid == group))}"`)
	for limit, want := range map[time.Duration]string{0: "{\"own\":0}\n", time.Hour: "{\"own\":1}\n"} {
		out, err := call(t, &cniexec.Exec{Limit: limit}, plugin, "ADD")
		must(t, err)
		difftest.Same(t, limit.String(), out, want)
	}
	here, err := os.Getwd()
	must(t, err)
	out, err := call(t, &cniexec.Exec{}, "/bin/pwd", "DEL")
	must(t, err)
	difftest.Same(t, "working directory", out, here+"\n")
}

func TestPluginAlwaysHasPATH(t *testing.T) {
	plugin := script(t, `echo "{\"PATH\":\"$PATH\"}"`)
	const usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, test := range []struct {
		env  []string
		want string
	}{
		{nil, usual}, {[]string{"PATH="}, usual}, {[]string{"PATH=/bin", "PATH=/"}, usual},
		{[]string{"PATH=/bin"}, "/bin"}, {[]string{"PATH=/", "PATH=/sbin:/bin"}, "/sbin:/bin"},
	} {
		out, err := call(t, &cniexec.Exec{}, plugin, "ADD", test.env...)
		must(t, err)
		difftest.Same(t, strings.Join(test.env, " "), out, fmt.Sprintf("{\"PATH\":%q}\n", test.want))
	}
}

func TestErrorTellsWhyPluginCannotStart(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/plain", []byte("#!/bin/sh\n"), 0o644), os.WriteFile(dir+"/lost", []byte("#!"+dir+"/none\n"), 0o755))
	for name, reason := range map[string]cniexec.Reason{"plain": cniexec.ReasonNode, "lost": cniexec.ReasonMissing, "gone": cniexec.ReasonMissing} {
		_, err := call(t, &cniexec.Exec{}, dir+"/"+name, "ADD")
		expect(t, err, reason, "fork/exec "+dir+"/"+name)
	}
}

func TestPluginRunsBelowRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot takes root")
	}
	root := t.TempDir()
	must(t, os.Mkdir(root+"/bin", 0o755))
	undertest.Programs(t, root+"/bin/plugin", "", "./testdata/static")
	out, err := call(t, &cniexec.Exec{Root: root, Inherit: lockedFile(t)}, // a file outside the root
		"/bin/plugin", "ADD")
	must(t, err)
	difftest.Equal(t, out, `{"dir":"/","entries":"bin"}`)
	_, err = call(t, &cniexec.Exec{Root: root}, "/bin/none", "ADD")
	expect(t, err, cniexec.ReasonMissing, "fork/exec /bin/none")
}
