package cniconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
)

// A named value is one of the key "type".
type named struct {
	path   string // "config.plugins[0].ipam.type"
	value  string
	isText bool // else value is ""
}

// A scanner goes once through a JSON text.
type scanner struct {
	dec   *json.Decoder
	types []named // all, in the order of the text
	wrong []*Refusal
}

// scan refuses a text that two readers of JSON could understand in two ways: keys that
// are there twice, keys that differ by letter case only, other spellings of "type" and of
// where plugins stand, bytes that are no text. It also refuses the keys that only the runtime
// may set. Keys that it refuses are in wrong; the error is for what is no JSON object.
func scan(raw []byte) (*scanner, *Refusal) {
	const limit = resourceapi.OpaqueParametersMaxLength
	switch {
	case len(raw) == 0:
		return nil, refuse("", "they are empty", "give apiVersion, kind and ifName or config")
	case len(raw) > limit:
		return nil, refuse("", fmt.Sprintf("they have %d bytes, at most %d are allowed", len(raw), limit), "make the config smaller")
	case !utf8.Valid(raw):
		return nil, refuse("", "they are not valid UTF-8", "write them as UTF-8")
	}
	s := &scanner{dec: json.NewDecoder(bytes.NewReader(raw))}
	s.dec.UseNumber()
	if err := s.value(""); err != nil {
		return nil, err
	}
	if _, err := s.dec.Token(); err != io.EOF {
		return nil, refuse("", "there is text after the JSON object", "give one object")
	}
	return s, nil
}

func (s *scanner) token() (json.Token, *Refusal) {
	token, err := s.dec.Token()
	if err != nil {
		return nil, refuse("", fmt.Sprintf("invalid JSON: %v", err), "give one JSON object")
	}
	return token, nil
}

// value goes over one value, which is at path.
func (s *scanner) value(path string) *Refusal {
	token, err := s.token()
	if err != nil {
		return err
	}
	delim, compound := token.(json.Delim)
	if text, isText := token.(string); path == "type" || strings.HasSuffix(path, ".type") {
		s.types = append(s.types, named{path, text, isText})
	}
	if !compound {
		return nil
	}
	if delim == '{' {
		err = s.object(path)
	} else {
		err = s.array(path)
	}
	if err == nil {
		_, err = s.token() // the closing one
	}
	return err
}

func (s *scanner) array(path string) *Refusal {
	for n := 0; s.dec.More(); n++ {
		if err := s.value(fmt.Sprintf("%s[%d]", path, n)); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) object(path string) *Refusal {
	var keys []string
	for s.dec.More() {
		token, err := s.token()
		if err != nil {
			return err
		}
		key := token.(string) // the decoder takes no other
		at := key
		if path != "" {
			at = path + "." + key
		}
		if err := checkKey(key, at, keys); err != nil {
			s.wrong = append(s.wrong, err)
		}
		keys = append(keys, key)
		if err := s.value(at); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(key, at string, before []string) *Refusal {
	for _, other := range before {
		switch {
		case other == key:
			return refuse(at, fmt.Sprintf("the key %s is given twice", quote(at)), "leave one of them out")
		case strings.EqualFold(other, key):
			return refuse(at, fmt.Sprintf("the key %s differs from %s by letter case only", quote(at), quote(other)), "leave one of them out")
		}
	}
	for _, word := range []string{"type", "ipam", "plugins", "delegates"} {
		if key != word && strings.EqualFold(key, word) {
			return refuse(at, fmt.Sprintf("the key %s is another spelling of %q", quote(at), word), fmt.Sprintf("write %q", word))
		}
	}
	switch {
	case strings.EqualFold(key, "prevResult"), strings.EqualFold(key, "runtimeConfig"), strings.HasPrefix(strings.ToLower(key), "cni.dev/"):
		return refuse(at, fmt.Sprintf("the key %s is the runtime's to set (CNI SPEC.md section 1, reserved keys)", quote(at)), "leave it out")
	}
	return nil
}
