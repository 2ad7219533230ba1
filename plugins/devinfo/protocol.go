package devinfo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/failure"
)

// Limits for the size of a configuration. maxAdd leaves room for the journal's record of an ADD (package store).
// maxConfig has room for a DEL with a result of cniexec.MaxOutput, and for a GC with 100,000 attachments.
const (
	maxAdd    = 8 << 20
	maxConfig = 20 << 20
)

// Run executes one CNI call by its verb: it takes the parameters from the environment and the configuration from stdin, and
// prints the result or the error as JSON to h.Stdout. It returns the exit code. Without CNI_COMMAND it prints the
// supported versions to stderr. A write to a runtime that no longer reads becomes an error; the default is to kill the
// process, perhaps during an ADD.
//
// Run replaces CNI's pkg/skel. That package compiles regular expressions and decodes the configuration twice,
// which takes a tenth of the time of a call. It may also print an error after the result of ADD.
func Run(h *Host, getenv func(string) string, stdin io.Reader, stderr io.Writer) (exit int) {
	signal.Ignore(syscall.SIGPIPE)
	command := getenv("CNI_COMMAND")
	if command == "" {
		fmt.Fprintf(stderr, "CNI plugin devinfo: device information for network attachments\n"+
			"CNI protocol versions supported: %s\n", strings.Join(versions.SupportedVersions(), ", "))
		return 0
	}
	cniVersion, failed := dispatch(h, command, getenv, stdin)
	if failed == nil {
		return 0
	}
	err, _ := errors.AsType[*types.Error](failure.Translate(failed))
	text, _ := json.MarshalIndent(struct { // strings and a number always encode
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{cmp.Or(cniVersion, "1.1.0"), err}, "", "    ")
	if _, err := h.Stdout.Write(text); err != nil {
		fmt.Fprintln(stderr, "devinfo: print the error:", err)
	}
	return 1
}

// A verb needs some variables of the environment, of which GC and STATUS do not read the others.
type verb struct {
	run      func(*Call) error
	required string
	limit    int // of the configuration's size
}

var verbs = map[string]verb{
	"ADD":    {(*Call).add, "CNI_CONTAINERID CNI_NETNS CNI_IFNAME CNI_PATH", maxAdd},
	"CHECK":  {(*Call).check, "CNI_CONTAINERID CNI_NETNS CNI_IFNAME CNI_PATH", maxConfig},
	"DEL":    {(*Call).del, "CNI_CONTAINERID CNI_IFNAME CNI_PATH", maxConfig},
	"GC":     {(*Call).gc, "CNI_PATH", maxConfig},
	"STATUS": {(*Call).status, "CNI_PATH", maxConfig},
}

// dispatch also returns the configuration's cniVersion, or "" if that is unknown or unsupported.
func dispatch(h *Host, command string, getenv func(string) string, stdin io.Reader) (cniVersion string, err error) {
	if command == "VERSION" {
		return "", versions.Encode(h.Stdout)
	}
	verb, ok := verbs[command]
	if !ok {
		return "", failure.New(failure.Environment, fmt.Errorf("unknown CNI_COMMAND: %q", command), "it must be ADD, DEL, CHECK, GC, STATUS or VERSION")
	}
	h.CNIPath = getenv("CNI_PATH")
	args, text, err := verb.arguments(getenv, stdin)
	if err != nil {
		return "", err
	}
	cfg, err := config.Parse(text)
	if err != nil {
		return "", failure.New(failure.Decoding, err, "")
	}
	c, err := newCall(h, command, args, cfg)
	if err != nil {
		return "", err
	}
	if command == "DEL" || command == "GC" {
		c.lenient()
	} else {
		err = c.strict()
	}
	if err == nil {
		err = verb.run(c)
	}
	if command == "STATUS" && err != nil && failure.Code(err) != failure.Limited {
		err = failure.New(failure.NotAvailable, err, "")
	}
	return cfg.CNIVersion, err
}

// arguments reads the parameters of a verb and the network configuration.
func (v verb) arguments(getenv func(string) string, stdin io.Reader) (args attachment.Args, text []byte, err error) {
	if v.required != "CNI_PATH" {
		override := getenv("CNI_NETNS_OVERRIDE")
		args = attachment.Args{
			ContainerID: getenv("CNI_CONTAINERID"), Netns: getenv("CNI_NETNS"), IfName: getenv("CNI_IFNAME"), CNIArgs: getenv("CNI_ARGS"),
			AnyNetns: override == "1" || strings.EqualFold(override, "TRUE"),
		}
	}
	if err := checkEnvironment(getenv, strings.Fields(v.required)); err != nil {
		return args, nil, failure.New(failure.Environment, err, "the runtime must set it")
	}
	if text, err = io.ReadAll(io.LimitReader(stdin, int64(v.limit)+1)); err != nil {
		return args, nil, failure.New(failure.IO, fmt.Errorf("read the configuration from standard input: %w", err), "")
	}
	if len(text) > v.limit {
		return args, nil, failure.New(failure.Config, fmt.Errorf("network configuration: has more than %d MiB", v.limit>>20), "make it smaller")
	}
	return args, text, nil
}

// checkEnvironment returns an error if a variable that the verb needs is missing or malformed.
func checkEnvironment(getenv func(string) string, required []string) error {
	var missing []string
	for _, name := range required {
		value := getenv(name)
		switch {
		case value == "":
			missing = append(missing, name)
		case name == "CNI_CONTAINERID" && utils.ValidateContainerID(value) != nil:
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
