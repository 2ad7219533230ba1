package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/ctl/remedy"
)

// endless is a text without end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return copy(p, bytes.Repeat([]byte("["), len(p))), nil
}

func TestValidateReadsStandardInputAsFarAsItMust(t *testing.T) {
	input := &endless{}
	for name, test := range map[string]struct {
		stdin io.Reader
		exit  int
		want  string
	}{
		"good":    {strings.NewReader(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.3"}}`), 0, "-: device-info (it has the key \"pci\"): valid\n"},
		"endless": {input, remedy.Found, "-: unreadable: 1 error, 0 warnings\n  error: the text has more than 4 MiB\n"},
		"nothing": {strings.NewReader(""), remedy.Found, "-: unreadable: 1 error, 0 warnings\n  error: the text is empty\n"},
		"deep":    {strings.NewReader(strings.Repeat("[", 1<<20)), remedy.Found, "-: unreadable: 1 error, 0 warnings\n  line 1: error: the text is not JSON: line 1, byte 10001: invalid character '[' exceeded max depth\n"},
	} {
		var stdout, stderr bytes.Buffer
		exit := run([]string{"validate", "-"}, test.stdin, &stdout, &stderr)
		if exit != test.exit || stdout.String() != test.want || stderr.Len() > 0 {
			t.Errorf("%s: exit %d\n%s%s", name, exit, &stdout, &stderr)
		}
	}
	if input.read > 8<<20 {
		t.Errorf("it has read %d bytes", input.read)
	}
}
