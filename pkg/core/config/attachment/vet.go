package attachment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
)

// Vet returns an error for a text that is nearly a placeholder in a key of the specification or in cdi, because two pods
// would share it. It returns warnings for such texts in other keys of deviceInfo, and for keys that resemble one of the
// specification; those are an error if the configuration is strict. Only ADD asks: other verbs must work for attachments
// that an older build added. The error is a *[config.Problem].
func Vet(cfg *config.Config) (devinfo.Violations, error) {
	if cfg.CDI != nil {
		for key, text := range map[string]string{"cdi.name": cfg.CDI.Name, "cdi.socketDir": cfg.CDI.SocketDir} {
			for wrong := range suspects(text) {
				return nil, &config.Problem{Key: key, Value: wrong, Want: wantPlaceholder(wrong)}
			}
		}
	}
	list, err := vetKeys("", "", cfg.DeviceInfo)
	if err == nil && len(list) > 0 && cfg.Strict {
		err = &config.Problem{Key: "deviceInfo" + strings.TrimPrefix(list[0].Path, "$"), Value: list[0].Value, Want: strings.TrimPrefix(list[0].Rule, "is not ")}
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// vetKeys looks at the object of a type in deviceInfo, or at deviceInfo itself if the type is "". It returns at most ten
// warnings.
func vetKeys(path string, of devinfo.Type, text json.RawMessage) (list devinfo.Violations, err error) {
	const most = 10
	warn := func(key, value, rule string) {
		if len(list) < most {
			list = append(list, devinfo.Violation{Path: "$" + path + "." + key, Value: value, Rule: "is not " + rule, Warning: true})
		}
	}
	var object map[string]json.RawMessage
	_ = json.Unmarshal(text, &object) // Declared returns the error of anything else
	known := devinfo.Keys(of)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		near, isKnown := config.Nearest(key, known), slices.Contains(known, key)
		if near != "" && !strings.EqualFold(key, near) { // Declared refuses another letter case
			var value bytes.Buffer
			_ = json.Compact(&value, object[key])
			warn(key, value.String(), "a key of the Device Information Specification; the nearest one is "+strconv.Quote(near))
		}
		if of == "" && devinfo.Keys(devinfo.Type(key)) != nil {
			more, err := vetKeys("."+key, devinfo.Type(key), object[key])
			if err != nil {
				return nil, err
			}
			list = append(list, more[:min(len(more), most-len(list))]...)
			continue
		}
		for wrong := range suspectsIn(key, object[key]) {
			if isKnown {
				return nil, &config.Problem{Key: "deviceInfo" + path + "." + key, Value: wrong, Want: wantPlaceholder(wrong)}
			}
			if resembles(wrong) {
				warn(key, wrong, wantPlaceholder(wrong))
				break
			}
		}
	}
	return list, nil
}

// marks begin what authors may take for a placeholder.
const marks = "{}$%<[(@#|~^!*"

// suspectsIn returns the [suspects] of a key and of all strings in its value.
func suspectsIn(key string, value json.RawMessage) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text := key; ; {
			for wrong := range suspects(text) {
				if !yield(wrong) {
					return
				}
			}
			start, end := config.NextString(value)
			if text = ""; start == end {
				return
			}
			if bytes.ContainsAny(value[start:end], marks+`\`) {
				_ = json.Unmarshal(value[start:end], &text) // the text is valid JSON
			}
			value = value[end:]
		}
	}
}

// suspects returns what an author may have taken for a placeholder: braces and dollar signs outside the placeholders, with
// the text between them, and the names of placeholders between other marks.
func suspects(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for at := 0; ; {
			next := strings.IndexAny(text[at:], marks)
			if next < 0 {
				return
			}
			at += next
			length := 1
			if name := placeholder(text[at:]); text[at] == '{' && name != "" {
				length += len(name) + len("}")
			} else if wrong, end := suspect(text, at); wrong != "" {
				if !yield(wrong) {
					return
				}
				length = end - at
			}
			at += length
		}
	}
}

// suspect returns the text with the mark at a position, up to the closing bracket, or the element of the path; "" = nothing
// is wrong. end is the position after it.
func suspect(text string, at int) (wrong string, end int) {
	const longest = 64 // a text of many marks must cost little
	rest := text[at:min(len(text), at+longest)]
	switch closing := rest[:1]; closing {
	case "}":
		return text[max(0, at-longest, strings.LastIndexAny(text[:at], "/}")+1) : at+1], at + 1
	case "{", "$":
		if n := strings.IndexAny(rest, "})/"); n >= 0 {
			rest = rest[:len(rest)-len(strings.TrimLeft(rest[n:], "})"))]
		}
		return rest, at + len(rest)
	default:
		if n := strings.Index("<[(", closing); n >= 0 {
			closing = ">])"[n : n+1]
		}
		length := strings.Index(rest[1:], closing) + 2
		if strings.ContainsAny(rest[1:length], "{/") || !resembles(rest[:length]) { // marks around a placeholder are text
			return "", 0
		}
		return rest[:length], at + length
	}
}

// resembles reports whether the letters of text are nearly the name of a placeholder, or of what authors call it elsewhere.
func resembles(text string) bool {
	name := word(text)
	return len(name) >= len("uid") && config.Nearest(name, append([]string{
		"K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID", "CNI_CONTAINERID", "CNI_IFNAME", "uid", "namespace",
	}, placeholders...)) != ""
}

func wantPlaceholder(wrong string) string {
	want := "one of the placeholders {" + strings.Join(placeholders, "}, {") + "}"
	if near := config.Nearest(word(wrong), placeholders); near != "" {
		want += "; the nearest is {" + near + "}"
	}
	return want
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
