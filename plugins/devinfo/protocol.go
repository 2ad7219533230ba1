package plugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/journal"
)

// versions are the CNI versions that the plugin speaks.
var versions = version.PluginSupports("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

// How many bytes a configuration may have. What the journal keeps of an ADD then always has
// room (package private), and so has the configuration of its DEL, to which the runtime adds
// the result (cniexec.MaxOutput), or that of a GC with 100,000 attachments.
const (
	maxAdd    = 8 << 20
	maxConfig = 20 << 20
)

// Args are the parameters of one call (CNI SPEC.md section 2, "Parameters").
type Args struct {
	ContainerID   string // CNI_CONTAINERID
	Netns         string // CNI_NETNS
	IfName        string // CNI_IFNAME
	Args          string // CNI_ARGS
	Path          string // CNI_PATH
	NetnsOverride string // CNI_NETNS_OVERRIDE
	StdinData     []byte // the network configuration
	Command       string // CNI_COMMAND, the verb
}

// Run is one call by CNI's protocol: parameters from the environment, the configuration
// from stdin, the result or the error as JSON to p.Stdout. It returns the exit code.
// Without a verb it says on stderr what this program is.
//
// CNI's pkg/skel does the same, with regular expressions that are compiled and a
// configuration that is decoded twice before the plugin has its first word, which is a
// tenth of what a call takes; and it may print a second document, an error, after ADD's
// result.
func (p *Plugin) Run(getenv func(string) string, stdin io.Reader, stderr io.Writer) (exit int) {
	command := getenv("CNI_COMMAND")
	if command == "" {
		fmt.Fprintf(stderr, "CNI plugin devinfo: device information for network attachments\n"+
			"CNI protocol versions supported: %s\n", strings.Join(versions.SupportedVersions(), ", "))
		return 0
	}
	err, failed := errors.AsType[*types.Error](translate(p.dispatch(command, getenv, stdin)))
	if !failed {
		return 0
	}
	text, _ := json.MarshalIndent(struct { // of strings and a number
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{cmp.Or(p.cniVersion, "1.1.0"), err}, "", "    ")
	if _, err := p.Stdout.Write(text); err != nil {
		fmt.Fprintln(stderr, "devinfo: print the error:", err)
	}
	return 1
}

func (p *Plugin) dispatch(command string, getenv func(string) string, stdin io.Reader) error {
	args := &Args{
		ContainerID: getenv("CNI_CONTAINERID"), Netns: getenv("CNI_NETNS"), IfName: getenv("CNI_IFNAME"),
		Args: getenv("CNI_ARGS"), Path: getenv("CNI_PATH"), NetnsOverride: getenv("CNI_NETNS_OVERRIDE"), Command: command,
	}
	run, required, limit := p.Add, "CNI_CONTAINERID CNI_NETNS CNI_IFNAME CNI_PATH", maxConfig
	switch command {
	case "ADD":
		limit = maxAdd
	case "CHECK":
		run = p.Check
	case "DEL":
		run, required = p.Del, "CNI_CONTAINERID CNI_IFNAME CNI_PATH"
	case "GC":
		run, required = p.GC, "CNI_PATH"
	case "STATUS":
		run, required = p.Status, "CNI_PATH"
	case "VERSION":
		return versions.Encode(p.Stdout)
	default:
		return fail(codeEnvironment, fmt.Errorf("unknown CNI_COMMAND: %q", command), "it must be ADD, DEL, CHECK, GC, STATUS or VERSION")
	}
	if err := complete(getenv, strings.Fields(required)); err != nil {
		return fail(codeEnvironment, err, "the runtime must set it")
	}
	var err error
	if args.StdinData, err = io.ReadAll(io.LimitReader(stdin, int64(limit)+1)); err != nil {
		return fail(codeIO, fmt.Errorf("read the configuration from standard input: %w", err), "")
	}
	if len(args.StdinData) > limit {
		return fail(codeConfig, fmt.Errorf("network configuration: has more than %d MiB", limit>>20), "make it smaller")
	}
	return run(args)
}

// complete refuses an environment that lacks what a verb needs, or has it misspelt. What
// a verb does not need may hold anything.
func complete(getenv func(string) string, required []string) error {
	var missing []string
	for _, name := range required {
		value := getenv(name)
		switch {
		case value == "":
			missing = append(missing, name)
		case name == "CNI_CONTAINERID" && !journal.IsIdentifier(value):
			return fmt.Errorf("CNI_CONTAINERID %q: must consist of letters, digits, '_', '.' and '-', and begin with a letter or digit", value)
		case name == "CNI_IFNAME" && utils.ValidateInterfaceName(value) != nil:
			return fmt.Errorf("CNI_IFNAME %q: not a valid interface name: must have at most 15 bytes, no slash, colon or blank, and not be \".\" or \"..\"", value)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("required env variables [%s] missing", strings.Join(missing, ","))
	}
	return nil
}

// speaks refuses a configuration of a CNI version that is unknown, or older than the verb.
func speaks(cniVersion, verb string) error {
	if err := new(version.Reconciler).Check(cniVersion, versions); err != nil {
		return types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", err.Details())
	}
	since, later := map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}[verb]
	if !later {
		return nil
	}
	if has, err := version.GreaterThanOrEqualTo(cniVersion, since); err != nil || !has {
		return fail(types.ErrIncompatibleCNIVersion, fmt.Errorf("cniVersion %s has no %s", cniVersion, verb), "set cniVersion to "+since+" or later")
	}
	return nil
}
