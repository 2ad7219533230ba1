// Command fromtar turns a captured machine, a tar.gz of parts of its /sys with
// netlink.txt, UNREADABLE.txt and NOTE.txt beside, into the text that package
// hosttxt reads:
//
//	go run ./pkg/hosttxt/internal/fromtar igb-sriov.tar.gz > testdata/hosts/igb-sriov.txtar
//
// It keeps only what finding a network device needs; see filter.go. A second
// argument replaces the scenario of NOTE.txt in the first line.
package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fromtar CAPTURE.tar.gz [SCENARIO] > HOST.txtar")
		os.Exit(2)
	}
	if err := run(os.Args[1], strings.Join(os.Args[2:], ""), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fromtar:", err)
		os.Exit(1)
	}
}

func run(name, scenario string, out io.Writer) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	ar, err := convert(f, scenario)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = out.Write(txtar.Format(ar))
	return err
}

func convert(r io.Reader, scenario string) (*txtar.Archive, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	c, err := readCapture(z)
	if err != nil {
		return nil, err
	}
	return c.archive(scenario)
}

// capture is what a tar holds, by path without slashes at the ends.
type capture struct {
	files map[string][]byte
	links map[string]string
	dirs  map[string]bool
	errs  map[string]string // name of the errno a read fails with
}

func readCapture(r io.Reader) (*capture, error) {
	c := &capture{
		files: make(map[string][]byte),
		links: make(map[string]string),
		dirs:  make(map[string]bool),
	}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch name := path.Clean(h.Name); h.Typeflag {
		case tar.TypeDir:
			c.dirs[name] = true
		case tar.TypeSymlink:
			c.links[name] = h.Linkname
		case tar.TypeReg:
			// A write-only attribute was not read.
			if h.FileInfo().Mode()&0o444 == 0 {
				continue
			}
			if c.files[name], err = io.ReadAll(tr); err != nil {
				return nil, err
			}
		}
	}
	var err error
	c.errs, err = unreadable(string(c.files["UNREADABLE.txt"]))
	return c, err
}

// unreadable reads lines of "path TAB error"; the error ends in the text of an
// errno.
func unreadable(text string) (map[string]string, error) {
	names := map[string]string{
		" operation not supported": "EOPNOTSUPP",
		" invalid argument":        "EINVAL",
		" no such device":          "ENODEV",
		" input/output error":      "EIO",
		" not a directory":         "", // the capture's own slip
	}
	errs := make(map[string]string)
	for line := range strings.Lines(text) {
		file, message, _ := strings.Cut(strings.TrimSpace(line), "\t")
		name, known := names[message[strings.LastIndex(message, ": ")+1:]]
		if !known {
			return nil, fmt.Errorf("UNREADABLE.txt: unknown error in %q", line)
		}
		if name != "" {
			errs[strings.TrimPrefix(file, "/")] = name
		}
	}
	return errs, nil
}

var emulator = regexp.MustCompile(`(?m)^QEMU: .*-machine (\w+)`) // of a machine that is one

var noteLine = regexp.MustCompile(`(?m)^(snapshot|guest kernel|scenario): *(.*)$`)

// title is the first line of the archive.
func (c *capture) title(scenario string) (string, error) {
	note := make(map[string]string)
	for _, m := range noteLine.FindAllStringSubmatch(string(c.files["NOTE.txt"]), -1) {
		note[m[1]] = m[2]
	}
	if len(note) != 3 {
		return "", errors.New("NOTE.txt: lacks snapshot, guest kernel or scenario")
	}
	if scenario == "" {
		scenario = note["scenario"]
	}
	release, _, _ := strings.Cut(note["guest kernel"], " ")
	machine := ""
	if m := emulator.FindSubmatch(c.files["NOTE.txt"]); m != nil {
		machine = fmt.Sprintf("QEMU %s, ", m[1])
	}
	return fmt.Sprintf("%s: %s%s, Linux %s\n", note["snapshot"], machine, scenario, release), nil
}

func (c *capture) archive(scenario string) (*txtar.Archive, error) {
	title, err := c.title(scenario)
	if err != nil {
		return nil, err
	}
	parts, err := netlinkParts(string(c.files["netlink.txt"]))
	if err != nil {
		return nil, fmt.Errorf("netlink.txt: %w", err)
	}
	ar := &txtar.Archive{Comment: []byte(title)}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		ar.Files = append(ar.Files, txtar.File{Name: "netlink/" + name, Data: parts[name]})
	}
	sys := c.filter()
	for _, name := range slices.Sorted(maps.Keys(sys)) {
		entry := txtar.File{Name: name}
		switch sys[name] {
		case fs.ModeDir:
			entry.Name += "/"
		case fs.ModeSymlink:
			entry.Name += " -> " + c.links[name]
		default:
			entry.Data = c.files[name]
			if errname, fails := c.errs[name]; fails {
				entry.Name += " !" + errname
			}
		}
		ar.Files = append(ar.Files, entry)
	}
	return ar, nil
}
