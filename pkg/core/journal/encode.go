package journal

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// encode writes the JSON of an entry, or of a part of one, with the keys in the order of the fields. It changes only the
// white space of embedded JSON. encoding/json writes the same, but first makes an encoder for each struct. An ADD, which
// encodes one entry, would take 6 % longer and 0.15 MB more memory.
func encode(b *bytes.Buffer, v reflect.Value) (err error) {
	switch {
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		b.WriteByte('{')
		err = encodeFields(b, v)
		b.WriteByte('}')
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		b.WriteByte('[')
		for i := 0; i < v.Len() && err == nil; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			err = encode(b, v.Index(i))
		}
		b.WriteByte(']')
	default:
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false)
		err = e.Encode(v.Interface())
		b.Truncate(len(bytes.TrimSuffix(b.Bytes(), []byte("\n"))))
	}
	return err
}

// encodeFields writes the fields of a struct, and those of structs that it embeds, except empty ones with omitempty or
// omitzero.
func encodeFields(b *bytes.Buffer, v reflect.Value) (err error) {
	for i := 0; i < v.NumField() && err == nil; i++ {
		field, value := v.Type().Field(i), v.Field(i)
		key, omit, _ := strings.Cut(field.Tag.Get("json"), ",")
		list := value.Kind() == reflect.Slice || value.Kind() == reflect.Map
		switch {
		case field.Anonymous:
			err = encodeFields(b, value)
		case key == "", omit != "" && (value.IsZero() || list && value.Len() == 0):
		default:
			if !bytes.HasSuffix(b.Bytes(), []byte("{")) {
				b.WriteByte(',')
			}
			b.WriteString(`"` + key + `":`)
			err = encode(b, value)
		}
	}
	return err
}
