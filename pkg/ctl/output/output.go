// Package output prints what commands have found. devinfo-agent does not import it, because of YAML.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// Encode prints a value as "json" or "yaml".
func Encode(to io.Writer, format string, value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(value)
	text := b.Bytes()
	if err == nil && format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", format, err)
	}
	_, err = to.Write(text)
	return err
}
