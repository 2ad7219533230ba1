package cniconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A named value is one of the key "type".
type named struct {
	path   string // "config.plugins[0].ipam.type"
	value  string
	isText bool // else value is ""
}

// A scanner goes once through a valid JSON text.
type scanner struct {
	dec   *json.Decoder
	types []named // all, in the order of the text
	wrong refusals
}

// scan finds all values of the key "type". It refuses what two readers of JSON could understand in
// two ways: keys that are given twice, keys that differ by letter case only, other spellings of
// "type" and of the keys that plugins stand below. It also refuses keys that only the runtime may set.
func scan(raw []byte) *scanner {
	s := &scanner{dec: json.NewDecoder(bytes.NewReader(raw))}
	s.dec.UseNumber()
	s.value("")
	return s
}

// token is the next one: in a valid text there is no error.
func (s *scanner) token() json.Token {
	token, _ := s.dec.Token()
	return token
}

// value scans one value, which is at path.
func (s *scanner) value(path string) {
	token := s.token()
	if path == "type" || strings.HasSuffix(path, ".type") {
		text, isText := token.(string)
		s.types = append(s.types, named{path, text, isText})
	}
	var keys []string
	switch token {
	case json.Delim('{'):
		for s.dec.More() {
			key, _ := s.token().(string)
			at := strings.TrimPrefix(path+"."+key, ".")
			s.checkKey(key, at, keys)
			keys = append(keys, key)
			s.value(at)
		}
	case json.Delim('['):
		for n := 0; s.dec.More(); n++ {
			s.value(fmt.Sprintf("%s[%d]", path, n))
		}
	default:
		return
	}
	s.token() // the closing delimiter
}

func (s *scanner) checkKey(key, at string, before []string) {
	wrong := func(what, remedy string) { s.wrong.add(at, fmt.Sprintf("the key %s %s", quote(at), what), remedy) }
	for _, other := range before {
		if other == key {
			wrong("is given twice", "leave one of them out")
			return
		} else if strings.EqualFold(other, key) {
			wrong(fmt.Sprintf("differs from %s by letter case only", quote(other)), "leave one of them out")
			return
		}
	}
	for _, word := range []string{"type", "ipam", "plugins", "delegates"} {
		if key != word && strings.EqualFold(key, word) {
			wrong(fmt.Sprintf("is another spelling of %q", word), fmt.Sprintf("write %q", word))
		}
	}
	if strings.EqualFold(key, "prevResult") || strings.EqualFold(key, "runtimeConfig") || strings.HasPrefix(strings.ToLower(key), "cni.dev/") {
		wrong("is the runtime's to set (CNI SPEC.md section 1, reserved keys)", "leave it out")
	}
}
