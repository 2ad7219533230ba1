// Pack creates the files of a release from built programs: OCI archives of the agents' images for all architectures, an
// archive of the programs for each architecture, an SPDX document, and checksums. "make image" and "make release" run
// it.
//
// Equal programs, versions and times give equal bytes. Pack needs no daemon, registry or privilege.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// release describes the release and the files to create.
type release struct {
	version  string
	revision string    // commit
	source   string    // URL of the repository; "" = unknown
	builder  string    // URI of the builder
	time     time.Time // time of the commit, and of all files
	prefix   string    // registry and path of the images' names
	tag      string    // tag of the images
	push     bool      // push the images to the registry
	out      string    // output directory

	bin, charts, krew string // directories of the programs and the chart, and krew's template
	downloads         string // URL of the directory with the release's files

	programs []program         // sorted by architecture and name
	sums     map[string]string // SHA-256 of the files in out, by name
}

// noRegistry is the registry in the names of images that are not pushed.
const noRegistry = "cluster.local"

const usage = `pack images -bin DIR -version V -time SECONDS -out DIR
pack release -bin DIR -version V -time SECONDS -out DIR -chart DIR [-krew FILE -downloads URL] FILE...

DIR contains linux_amd64, linux_arm64 ... with the static programs, and darwin_arm64 ... with
kubectl-devinfo. The FILEs, such as the license, go into the archives of a release. The krew
manifest needs the URL of the directory with the archives.
`

func run(args []string) error {
	flags := flag.NewFlagSet("pack", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	r := release{sums: map[string]string{}}
	flags.StringVar(&r.bin, "bin", "bin", "`directory` of the programs")
	flags.StringVar(&r.charts, "chart", "", "`directory` of the Helm chart")
	flags.StringVar(&r.krew, "krew", "", "`template` of the krew manifest")
	flags.StringVar(&r.downloads, "downloads", "", "`URL` of the directory with the release's files (empty: write no krew manifest)")
	seconds := flags.Int64("time", 0, "time of the commit in seconds since 1970")
	flags.StringVar(&r.version, "version", "", "version of the release")
	flags.StringVar(&r.revision, "revision", "", "commit")
	flags.StringVar(&r.source, "source", "", "`URL` of the repository")
	flags.StringVar(&r.builder, "builder", ourselves, "`URI` of the builder, such as a CI job")
	flags.StringVar(&r.prefix, "prefix", noRegistry, "registry and path of the images; if it is not set the chart leaves it empty, and no manifests are written")
	flags.StringVar(&r.tag, "tag", "", "tag of the images (default: the version)")
	flags.BoolVar(&r.push, "push", false, "push the images to the registry")
	flags.StringVar(&r.out, "out", "dist", "`directory` to write to")
	if len(args) == 0 {
		flags.Usage()
		return fmt.Errorf("no verb: images or release")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if r.version == "" {
		return fmt.Errorf("-version is missing")
	}
	if r.tag == "" {
		r.tag = r.version
	}
	r.time = time.Unix(*seconds, 0).UTC()
	var err error
	if r.programs, err = readPrograms(r.bin); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	switch args[0] {
	case "images":
		return r.images("")
	case "release":
		return r.all(flags.Args())
	}
	return fmt.Errorf("unknown verb %q: images or release", args[0])
}

// all creates the files of a release.
func (r *release) all(files []string) error {
	name := "devinfo-" + r.version
	text, err := r.sbom(name, r.programs)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return r.images("-" + r.version) }, func() error { return r.archives(files) }, r.chart, r.manifests,
		func() error { return r.kubectl(files) }, func() error { return r.write(name+".spdx.json", text) }, r.checksums,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
