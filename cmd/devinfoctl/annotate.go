package main

import (
	"fmt"
	"io"
	"strings"

	"devinfo-cni.io/pkg/ctl/validate"
)

func level(f validate.Finding, strict bool) string {
	if f.Warning && !strict {
		return "warning"
	}
	return "error"
}

// annotate writes workflow commands of GitHub Actions, in which "%", line ends and, in a
// property, ":" and "," must be escaped.
func annotate(w io.Writer, all []validation, strict bool) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, v := range all {
		for _, f := range v.Findings {
			text := f.String()
			if v.Name != "" {
				text = v.Name + ": " + text
			}
			at := fmt.Sprintf("line=%d", v.line(f))
			if f.Column > 0 {
				at += fmt.Sprintf(",col=%d", f.Column)
			}
			if _, err := fmt.Fprintf(w, "::%s file=%s,%s::%s\n", level(f, strict), property.Replace(v.File), at, data.Replace(text)); err != nil {
				return err
			}
		}
	}
	return nil
}
