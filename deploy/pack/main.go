// Pack makes what a release consists of from programs that are built already: an image
// for each agent, as an OCI archive for all architectures; an archive of the programs for
// each architecture; an SPDX document; and the checksums of them all. "make image" and
// "make release" run it.
//
// The same programs, version and time give the same bytes. No daemon, registry or
// privilege is needed.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// release is what everything that is made says of itself.
type release struct {
	version  string
	revision string    // commit
	source   string    // URL of the repository; "" = unknown
	builder  string    // URI of what builds
	time     time.Time // of that commit; of all files
	prefix   string    // of the images' names: registry and path
	tag      string    // of the images
	push     bool      // the images, into the registry
	out      string    // directory

	bin, charts, krew string // directories of programs and of the chart, and krew's template
	downloads         string // URL below which the release's files will be
}

// noRegistry is what images are below that nobody has pushed: in manifests and archives.
const noRegistry = "cluster.local"

const usage = `pack images -bin DIR -version V -time SECONDS -out DIR
pack release -bin DIR -version V -time SECONDS -out DIR -chart DIR [-krew FILE -downloads URL] FILE...

DIR holds linux_amd64, linux_arm64 ... with the static programs, and darwin_arm64 ... with
kubectl-devinfo. The FILEs, such as the license, go into the archives of a release. Its krew
manifest needs the URL below which they will be.
`

func run(args []string) error {
	flags := flag.NewFlagSet("pack", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	var r release
	flags.StringVar(&r.bin, "bin", "bin", "`directory` of the programs")
	flags.StringVar(&r.charts, "chart", "", "`directory` of the Helm chart")
	flags.StringVar(&r.krew, "krew", "", "`template` of the krew manifest")
	flags.StringVar(&r.downloads, "downloads", "", "`URL` below which the release's files will be; without it there is no krew manifest")
	seconds := flags.Int64("time", 0, "of the commit, since 1970")
	flags.StringVar(&r.version, "version", "", "of the release")
	flags.StringVar(&r.revision, "revision", "", "commit")
	flags.StringVar(&r.source, "source", "", "`URL` of the repository")
	flags.StringVar(&r.builder, "builder", ourselves, "`URI` of who builds, such as that of a job")
	flags.StringVar(&r.prefix, "prefix", noRegistry, "registry and path of the images; without one the chart names none, and there are no manifests")
	flags.StringVar(&r.tag, "tag", "", "of the images (default: the version)")
	flags.BoolVar(&r.push, "push", false, "put the images into the registry")
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
	programs, err := readPrograms(r.bin)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	switch args[0] {
	case "images":
		_, err = r.images(programs, "")
		return err
	case "release":
		return r.all(programs, flags.Args())
	}
	return fmt.Errorf("unknown verb %q: images or release", args[0])
}

// all makes a release: images, archives, chart, krew manifest, the SPDX document, checksums.
func (r *release) all(programs []program, files []string) error {
	made, err := r.images(programs, "-"+r.version)
	if err != nil {
		return err
	}
	for _, arch := range arches(programs) {
		name, err := r.archive(arch, programs, files)
		if err != nil {
			return err
		}
		made = append(made, name)
	}
	chart, err := r.chart(r.charts)
	if err != nil {
		return err
	}
	manifests, err := r.manifests(filepath.Join(r.charts, "../.."))
	if err != nil {
		return err
	}
	made = append(made, manifests...)
	plugins, err := r.kubectl(files)
	if err != nil {
		return err
	}
	made = append(append(made, chart), plugins...)
	document := "devinfo-" + r.version + ".spdx.json"
	text, err := r.sbom("devinfo-"+r.version, programs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, document), text, 0o644); err != nil {
		return err
	}
	made = append(made, document)
	slices.Sort(made)
	return r.checksums(made)
}
