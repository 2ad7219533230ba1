package capture

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// scrubber renames what identifies the machine's owner. Equal things get equal names, so that what
// belonged together still does:
//
//   - hardware addresses of any length, GUIDs, and switch IDs of 6 bytes and more; all-zero and
//     all-one ones stay
//   - IPv4 and IPv6 addresses, but for unspecified and loopback ones and netmasks
//   - names, namespaces and UIDs of pods, names of claims
//   - secrets, such as the host's name and serial numbers
//
// Names of networks and interfaces, container IDs, PCI addresses and paths stay. A pod's name or
// a secret that may be a common word is renamed only where it is the whole value of a field,
// behind "pod" or "claim" in a text, or in the path of the pod's socket.
type scrubber struct {
	words map[string]string // new names, by the old ones in lower case
	count map[string]int    // of words, by sort
	texts map[string]string // what replaces a text, wherever it is
}

// newScrubber returns a scrubber that renames the secrets.
func newScrubber(secrets []string) *scrubber {
	s := &scrubber{words: map[string]string{}, count: map[string]int{}, texts: map[string]string{}}
	for _, secret := range secrets {
		s.word(secret, "secret")
	}
	return s
}

// minWord is the length of the shortest name that is renamed wherever it occurs. A common word
// would take keys of JSON with it.
const minWord = 6

// word returns a name of the sort to put in place of word; a nil scrubber returns word. It renames
// word everywhere if that is long, contains a digit or a dash, and is not one character again and again,
// such as the serial number 00000000.
func (s *scrubber) word(word, sort string) string {
	if s == nil || word == "" {
		return word
	}
	key := strings.ToLower(word)
	if s.words[key] == "" {
		s.count[sort]++
		s.words[key] = fmt.Sprintf("%s-%d", sort, s.count[sort])
	}
	if len(key) >= minWord && strings.ContainsAny(key, "0123456789-") && strings.Trim(key, key[:1]) != "" {
		s.text(word, s.words[key])
	}
	return s.words[key]
}

// socket renames a word of the scrubber's where it stands alone in the path of a socket, be it a common word: the
// path is made of such names, by placeholders such as {podName}.
func (s *scrubber) socket(path, word string) {
	if s == nil || !strings.HasPrefix(path, "/") || word == "" {
		return
	}
	alone := regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`)
	s.texts[path] = alone.ReplaceAllLiteralString(cmp.Or(s.texts[path], path), s.words[strings.ToLower(word)])
	s.texts[strings.ReplaceAll(path, "/", "%2F")] = strings.ReplaceAll(s.texts[path], "/", "%2F") // as the journal's leases have it
}

// text replaces a text, also in small or in big letters.
func (s *scrubber) text(old, by string) {
	s.texts[old], s.texts[strings.ToLower(old)] = by, by
	if upper := strings.ToUpper(old); upper != old {
		s.texts[upper] = strings.ToUpper(by)
	}
}

// named matches a pod or a claim, namespace/name, in a message and in JSON.
var named = regexp.MustCompile(`(\bpod |\bclaim |"pod": ?")([a-z0-9][a-z0-9.-]*)/([a-z0-9][a-z0-9.-]*)`)

// scrub renames in all texts together.
func (s *scrubber) scrub(all []*string) {
	found := map[string]string{}
	for _, text := range all {
		*text = named.ReplaceAllStringFunc(*text, func(m string) string {
			part := named.FindStringSubmatch(m)
			sort := strings.Trim(part[1], `": `)
			return part[1] + s.word(part[2], "namespace") + "/" + s.word(part[3], sort)
		})
		addresses(*text, found)
	}
	renamed := rename(found)
	for text, address := range found {
		s.texts[text] = respell(text, renamed[address])
		if isHardware(address) {
			s.text(address, renamed[address])
		}
	}
	longest := slices.SortedFunc(maps.Keys(s.texts), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, text := range longest {
		pairs = append(pairs, text, s.texts[text])
	}
	replacer := strings.NewReplacer(pairs...)
	for _, text := range all {
		*text = replacer.Replace(*text)
	}
}

// hardware are the forms of hardware addresses, GUIDs and switch IDs. A later one may match a part of
// an earlier one.
var hardware = []*regexp.Regexp{
	regexp.MustCompile(`(?i)[0-9a-f]{2}(?:(?::[0-9a-f]{2}){5,31}|(?:-[0-9a-f]{2}){5,31})`),
	regexp.MustCompile(`(?i)\b[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}\b`),
	regexp.MustCompile(`(?i)"phys_switch_id": ?"([0-9a-f]{12,64})"`),
	regexp.MustCompile(`(?i)\b(?:en|wl|ww)x([0-9a-f]{12})\b`), // an interface that is named after its address
	regexp.MustCompile(`(?i)\b[0-9a-f]{6}fffe[0-9a-f]{6}\b`),  // EUI-64 of a MAC address (RFC 4291, appendix A)
	regexp.MustCompile(`(?i)^\s*([0-9a-f]{12,64})\s*$`),       // the attribute phys_switch_id
	regexp.MustCompile(`(?i)\b[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){3}\b`),
}

var (
	ipv4 = regexp.MustCompile(`[0-9]{1,3}(?:\.[0-9]{1,3}){3}`)
	ipv6 = regexp.MustCompile(`(?i)[0-9a-f]*:[0-9a-f:.]*`)
)

// addresses adds the addresses in a text to found, by their spelling: the digits of hardware
// addresses, and IP addresses as netip writes them.
func addresses(text string, found map[string]string) {
	for _, m := range ipv4.FindAllString(text, -1) {
		findIP(m, found)
	}
	for _, m := range ipv6.FindAllString(text, -1) {
		for m = strings.TrimRight(m, "."); m != "" && !findIP(m, found); { // "addr:fe80::1": a label is no part of it
			_, m, _ = strings.Cut(m, ":")
		}
	}
	for _, form := range hardware {
		for _, m := range form.FindAllStringSubmatch(text, -1) {
			findHardware(m[len(m)-1], found)
		}
		text = form.ReplaceAllString(text, " ")
	}
}

// findHardware adds a hardware address, and of InfiniBand's the GUID at its end too.
func findHardware(text string, found map[string]string) {
	const guid = 16
	digits := strings.ToLower(strings.Join(strings.FieldsFunc(text, isSeparator), ""))
	if strings.Trim(digits, "0") == "" || strings.Trim(digits, "f") == "" {
		return
	}
	if found[text] = digits; len(digits) > guid {
		findHardware(digits[len(digits)-guid:], found)
	}
}

func isSeparator(c rune) bool { return strings.ContainsRune(":-.", c) }

func isHardware(address string) bool { return !strings.ContainsFunc(address, isSeparator) }

// findIP returns false if the text is not an IP address.
func findIP(text string, found map[string]string) bool {
	a, err := netip.ParseAddr(text)
	if err == nil && !a.IsUnspecified() && !a.IsLoopback() && !strings.HasPrefix(text, "255.") && hardware[0].FindString(text) != text {
		found[text] = a.Unmap().String()
	}
	return err == nil
}

// rename gives every address found a new one that is not among them: of locally administered
// hardware addresses, of the networks for benchmarks (RFC 2544) and for documentation (RFC 3849).
func rename(found map[string]string) map[string]string {
	taken, renamed := map[string]bool{}, map[string]string{}
	for _, address := range found {
		taken[address] = true
	}
	id, v4, v6 := 0, netip.MustParseAddr("198.18.0.0"), netip.MustParseAddr("2001:db8::")
	for _, address := range slices.Sorted(maps.Keys(taken)) {
		for by := ""; by == "" || taken[by]; renamed[address] = by {
			switch {
			case isHardware(address):
				id++
				by = fmt.Sprintf("02%0*x", len(address)-2, id)
			case strings.Contains(address, ":"):
				v6 = v6.Next()
				by = v6.String()
			default:
				v4 = v4.Next()
				by = v4.String()
			}
		}
	}
	return renamed
}

// respell writes a new hardware address in the way in which the old one was; of one without its
// leading zeros the last digits. An IP address is spelled in one way.
func respell(old, address string) string {
	if !isHardware(address) {
		return address
	}
	left := len(address)
	by := []byte(old)
	for n := len(by) - 1; n >= 0; n-- {
		if !isSeparator(rune(by[n])) {
			left--
			by[n] = address[left]
		}
	}
	if old == strings.ToUpper(old) {
		return strings.ToUpper(string(by))
	}
	return string(by)
}
