package attachment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
)

// Vet returns an error for a text in deviceInfo or cdi that is nearly a placeholder, and warnings for keys of deviceInfo
// that resemble a key of the specification; those are an error if the configuration is strict. Only ADD asks: other verbs
// must work for attachments that an older build added. The error is a *[config.Problem].
func Vet(cfg *config.Config) (devinfo.Violations, error) {
	if cfg.CDI != nil {
		for key, text := range map[string]string{"cdi.name": cfg.CDI.Name, "cdi.socketDir": cfg.CDI.SocketDir} {
			if err := vetText(key, text); err != nil {
				return nil, err
			}
		}
	}
	if cfg.DeviceInfo == nil {
		return nil, nil
	}
	for d := json.NewDecoder(bytes.NewReader(cfg.DeviceInfo)); ; {
		token, err := d.Token()
		if err != nil {
			break // the end, because config has read it
		}
		if text, ok := token.(string); ok {
			if err := vetText("deviceInfo", text); err != nil {
				return nil, err
			}
		}
	}
	list := misspelt(cfg.DeviceInfo)
	if len(list) > 0 && cfg.Strict {
		return nil, &config.Problem{Key: "deviceInfo" + strings.TrimPrefix(list[0].Path, "$"), Value: list[0].Value, Want: strings.TrimPrefix(list[0].Rule, "is not ")}
	}
	return list, nil
}

// vetText returns an error for the first brace or dollar sign outside the placeholders of text, or the first placeholder in
// other brackets.
func vetText(key, text string) error {
	for at := 0; ; {
		next := strings.IndexAny(text[at:], "{}$%<[(")
		if next < 0 {
			return nil
		}
		at += next
		if strings.IndexByte("{}$", text[at]) < 0 {
			if value := bracketed(text[at:]); value != "" {
				return noPlaceholder(key, value)
			}
			at++
			continue
		}
		name := placeholder(text[at:])
		if text[at] != '{' || name == "" {
			return nearly(key, text, at)
		}
		at += len("{}") + len(name)
	}
}

// bracketed returns the placeholder in other brackets at the beginning of text, such as %podUID% or <pod-uid>; "" = none.
func bracketed(text string) string {
	closing := map[byte]byte{'%': '%', '<': '>', '[': ']', '(': ')'}[text[0]]
	end := 1 + strings.IndexByte(text[1:], closing)
	if end == 0 || !slices.ContainsFunc(placeholders, func(name string) bool { return strings.EqualFold(name, word(text[:end])) }) {
		return ""
	}
	return text[:end+1]
}

// nearly returns the error for the wrong character at a position. Its value is what the author took for a placeholder:
// the text up to the closing bracket, or the element of the path.
func nearly(key, text string, at int) error {
	value, rest := text[at:], ""
	if text[at] == '}' {
		value = text[strings.LastIndexAny(text[:at], "/}")+1 : at+1]
	} else if end := strings.IndexAny(value, "})/"); end >= 0 {
		if value, rest = value[:end], value[end:]; rest[0] != '/' {
			value += rest[:len(rest)-len(strings.TrimLeft(rest, "})"))]
		}
	}
	return noPlaceholder(key, value)
}

func noPlaceholder(key, value string) error {
	want := "one of the placeholders {" + strings.Join(placeholders, "}, {") + "}"
	if word := word(value); word != "" {
		want += "; the nearest is {" + config.Nearest(word, placeholders) + "}"
	}
	return &config.Problem{Key: key, Value: value, Want: want}
}

// word returns the letters, digits and colons of text.
func word(text string) string {
	return strings.Map(func(r rune) rune {
		if r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= ':' {
			return r
		}
		return -1
	}, text)
}

// misspelt returns a warning for each of the first ten keys that resemble a key of the specification.
func misspelt(deviceInfo json.RawMessage) (list devinfo.Violations) {
	const most = 10
	walk := func(path string, of devinfo.Type, text json.RawMessage) (object map[string]json.RawMessage) {
		_ = json.Unmarshal(text, &object) // Declared returns the error of anything else
		known := devinfo.Keys(of)
		for _, key := range slices.Sorted(maps.Keys(object)) {
			near := config.Nearest(key, known)
			if len(list) == most || strings.EqualFold(key, near) || !config.Resembles(key, known) { // Declared refuses another letter case
				continue
			}
			var value bytes.Buffer
			_ = json.Compact(&value, object[key])
			list = append(list, devinfo.Violation{
				Path: path + key, Value: value.String(), Warning: true,
				Rule: "is not a key of the Device Information Specification; the nearest one is " + strconv.Quote(near),
			})
		}
		return object
	}
	top := walk("$.", "", deviceInfo)
	for _, t := range []devinfo.Type{devinfo.TypePCI, devinfo.TypeVDPA, devinfo.TypeVhostUser, devinfo.TypeMemif} {
		walk("$."+string(t)+".", t, top[string(t)])
	}
	return list
}

// longestSocket is the number of bytes before the NUL in sun_path (include/uapi/linux/un.h).
const longestSocket = 107

// tooLong returns a warning for the path of a socket that no program can bind or connect to.
func tooLong(info *devinfo.Info) (list devinfo.Violations) {
	path := info.Texts()["path"]
	if len(path) > longestSocket && (info.Type == devinfo.TypeVhostUser || info.Type == devinfo.TypeMemif) {
		list = append(list, devinfo.Violation{
			Path: fmt.Sprintf("$.%s.path", info.Type), Value: strconv.Quote(path), Warning: true,
			Rule: fmt.Sprintf("has %d bytes; the path of a socket has at most %d (sun_path, unix(7))", len(path), longestSocket),
		})
	}
	return list
}
