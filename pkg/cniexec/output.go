package cniexec

import (
	"errors"
	"io"
)

// output is a plugin's standard output.
type output struct {
	text []byte
	over bool
}

// Write fails once there is too much, by which the plugin's end of the pipe breaks: it
// need not be read to its end.
func (o *output) Write(p []byte) (int, error) {
	if len(o.text)+len(p) > MaxOutput {
		o.over = true
		return 0, errors.New("too much output")
	}
	o.text = append(o.text, p...)
	return len(p), nil
}

const enough = 1024 // bytes of an output in a message

// messages is a plugin's standard error: its beginning is kept, for there a panic says
// what it is.
type messages struct {
	beginning []byte
	to        io.Writer // nil = nobody
}

// Write never fails.
func (m *messages) Write(p []byte) (int, error) {
	m.beginning = append(m.beginning, p[:min(len(p), enough+1-len(m.beginning))]...)
	if m.to != nil {
		_, _ = m.to.Write(p)
	}
	return len(p), nil
}
