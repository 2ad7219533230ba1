package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"devinfo-cni.io/test/controlplane"
)

// A cost is what a command took.
type cost struct {
	seconds  float64 // the median
	peak     float64 // resident, in MB, the most of all rounds
	requests map[string]int
	read     float64 // by the wire, in MB
	lines    int     // that it printed
}

// A runner runs commands against the API server: directly, to time them, and once through a
// proxy, which counts.
type runner struct {
	devinfo, dir string
	proxy        *httptest.Server

	mu       sync.Mutex
	requests map[string]int
	read     int
}

func newRunner(plane *controlplane.Plane, devinfo string) (*runner, error) {
	r := &runner{devinfo: devinfo, dir: plane.Dir}
	to, err := url.Parse(plane.Admin.Host)
	if err != nil {
		return nil, err
	}
	tls, err := rest.TLSConfigFor(plane.Admin)
	if err != nil {
		return nil, err
	}
	r.proxy = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Header.Set("Authorization", "Bearer "+plane.Admin.BearerToken)
		},
		Transport:      &http.Transport{TLSClientConfig: tls, DisableCompression: true}, // what the client asks for comes through
		ModifyResponse: r.count,
	})
	if err := r.kubeconfig("counted", &clientcmdapi.Cluster{Server: r.proxy.URL}, ""); err != nil {
		return nil, err
	}
	return r, r.kubeconfig("direct", &clientcmdapi.Cluster{Server: plane.Admin.Host, CertificateAuthority: plane.Admin.CAFile}, plane.Admin.BearerToken)
}

func (r *runner) close() { r.proxy.Close() }

func (r *runner) kubeconfig(name string, cluster *clientcmdapi.Cluster, token string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters[name], c.AuthInfos[name] = cluster, &clientcmdapi.AuthInfo{Token: token}
	c.Contexts[name], c.CurrentContext = &clientcmdapi.Context{Cluster: name, AuthInfo: name}, name
	return clientcmd.WriteToFile(*c, filepath.Join(r.dir, name))
}

// count notes a request, by verb and resource, and what is read of its answer.
func (r *runner) count(answer *http.Response) error {
	parts := strings.Split(strings.Trim(answer.Request.URL.Path, "/"), "/")
	if n := slices.Index(parts, "namespaces"); n >= 0 && len(parts) > n+2 {
		parts = slices.Delete(parts, n, n+2)
	}
	what := "discovery"
	if version := slices.Index(parts, "v1"); version >= 0 && len(parts) > version+1 {
		what = parts[version+1]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[what]++
	answer.Body = &counted{answer.Body, r}
	return nil
}

type counted struct {
	io.ReadCloser
	by *runner
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.by.mu.Lock()
	defer c.by.mu.Unlock()
	c.by.read += n
	return n, err
}

// cost runs a command once to count, and then to time it.
func (r *runner) cost(ctx context.Context, args []string) (c cost, err error) {
	r.requests, r.read = map[string]int{}, 0
	once, err := r.run(ctx, "counted", args)
	if err != nil {
		return c, err
	}
	r.mu.Lock()
	c.requests, c.read, c.lines = r.requests, float64(r.read)/1e6, once.Lines
	r.mu.Unlock()
	var seconds []float64
	for range *rounds {
		took, err := r.run(ctx, "direct", args)
		if err != nil {
			return c, err
		}
		seconds, c.peak = append(seconds, took.Seconds), max(c.peak, took.Peak)
	}
	slices.Sort(seconds)
	c.seconds = seconds[len(seconds)/2]
	return c, nil
}

// A took is what runAlone prints.
type took struct {
	Seconds, Peak float64
	Lines         int
}

// run runs a command by a process that does nothing else: the kernel counts what the parent
// had resident.
func (r *runner) run(ctx context.Context, config string, args []string) (t took, err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"run"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(r.dir, config), "HOME="+r.dir)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &t)
	}
	if err != nil {
		return t, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return t, nil
}

// runAlone runs a command, and prints what it took.
func runAlone(args []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	var t took
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = (*lines)(&t.Lines), &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	t.Seconds = time.Since(began).Seconds()
	t.Peak = float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1000
	return json.NewEncoder(os.Stdout).Encode(t)
}

// lines counts those that are written to it.
type lines int

func (l *lines) Write(p []byte) (int, error) {
	*l += lines(strings.Count(string(p), "\n"))
	return len(p), nil
}
