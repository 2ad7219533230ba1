package capture

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// scrubber renames data that identifies the machine's owner. Equal names get equal replacements, so that references
// still match:
//
//   - hardware addresses of any length, GUIDs, and switch IDs of 6 bytes and more, except all-zero and all-one ones
//   - IPv4 and IPv6 addresses, except unspecified and loopback ones and netmasks
//   - names, namespaces and UIDs of pods, names of claims
//   - secrets, such as the host's name and serial numbers
//
// Names of networks and interfaces, container IDs, PCI addresses and paths stay. A pod's name or a secret may be a
// common word. It is then renamed only where it is the whole value of a field, follows "pod" or "claim", or is part
// of the path of the pod's socket.
type scrubber struct {
	words map[string]string // replacements by the old name in lower case
	count map[string]int    // number of words by sort
	texts map[string]string // replacements for a text anywhere
}

func newScrubber(secrets []string) *scrubber {
	s := &scrubber{words: map[string]string{}, count: map[string]int{}, texts: map[string]string{}}
	for _, secret := range secrets {
		s.word(secret, "secret")
	}
	return s
}

// word returns the replacement for a word of this sort; a nil scrubber returns the word itself. The word is renamed
// everywhere if it is long, contains a digit or a dash, and does not repeat one character, like the serial number
// 00000000.
func (s *scrubber) word(word, sort string) string {
	if s == nil || word == "" {
		return word
	}
	key := strings.ToLower(word)
	if s.words[key] == "" {
		s.count[sort]++
		s.words[key] = fmt.Sprintf("%s-%d", sort, s.count[sort])
	}
	const shortest = 6 // a shorter word may be a common one, and occur in keys of JSON
	if len(key) >= shortest && strings.ContainsAny(key, "0123456789-") && strings.Trim(key, key[:1]) != "" {
		s.text(word, s.words[key])
	}
	return s.words[key]
}

// socket renames the word in the path of a socket, even a common word. Placeholders such as {podName} put names into
// these paths.
func (s *scrubber) socket(path, word string) {
	if s == nil || !strings.HasPrefix(path, "/") || word == "" {
		return
	}
	alone := regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`)
	s.texts[path] = alone.ReplaceAllLiteralString(cmp.Or(s.texts[path], path), s.words[strings.ToLower(word)])
	// The journal's leases contain the path in this form.
	s.texts[strings.ReplaceAll(path, "/", "%2F")] = strings.ReplaceAll(s.texts[path], "/", "%2F")
}

// text registers a replacement in the given spelling, in lower case and in upper case.
func (s *scrubber) text(old, by string) {
	s.texts[old], s.texts[strings.ToLower(old)] = by, by
	if upper := strings.ToUpper(old); upper != old {
		s.texts[upper] = strings.ToUpper(by)
	}
}

// named matches the namespace/name of a pod or a claim in a message and in JSON.
var named = regexp.MustCompile(`(\bpod |\bclaim |"pod": ?")([a-z0-9][a-z0-9.-]*)/([a-z0-9][a-z0-9.-]*)`)

// scrub renames in a text and in the names and contents of entries, with the same replacements.
func (s *scrubber) scrub(about *string, entries []txtar.File) {
	found, all, contents := map[string]string{}, []*string{about}, make([]string, len(entries))
	for n := range entries {
		contents[n] = string(entries[n].Data)
		all = append(all, &entries[n].Name, &contents[n])
	}
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
	for n := range entries {
		entries[n].Data = []byte(contents[n])
	}
	slices.SortStableFunc(entries, byName)
}

// hardware matches hardware addresses, GUIDs and switch IDs. The order matters, because a later pattern may match a
// part of a longer form.
var hardware = []*regexp.Regexp{
	regexp.MustCompile(`(?i)[0-9a-f]{2}(?:(?::[0-9a-f]{2}){5,31}|(?:-[0-9a-f]{2}){5,31})`),
	regexp.MustCompile(`(?i)\b[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}\b`),
	regexp.MustCompile(`(?i)"phys_switch_id": ?"([0-9a-f]{12,64})"`),
	regexp.MustCompile(`(?i)\b(?:en|wl|ww)x([0-9a-f]{12})\b`), // interface name with a MAC address
	regexp.MustCompile(`(?i)\b[0-9a-f]{6}fffe[0-9a-f]{6}\b`),  // EUI-64 of a MAC address (RFC 4291, appendix A)
	regexp.MustCompile(`(?i)^\s*([0-9a-f]{12,64})\s*$`),       // attribute phys_switch_id
	regexp.MustCompile(`(?i)\b[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){3}\b`),
}

var (
	ipv4 = regexp.MustCompile(`[0-9]{1,3}(?:\.[0-9]{1,3}){3}`)
	ipv6 = regexp.MustCompile(`(?i)[0-9a-f]*:[0-9a-f:.]*`)
)

// addresses adds the addresses in a text to found. The keys are the spellings in the text. The values are the digits
// of hardware addresses, and IP addresses as netip formats them.
func addresses(text string, found map[string]string) {
	for _, m := range ipv4.FindAllString(text, -1) {
		findIP(m, found)
	}
	for _, m := range ipv6.FindAllString(text, -1) {
		for m = strings.TrimRight(m, "."); m != "" && !findIP(m, found); { // "addr:fe80::1" begins with a label
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

// findHardware adds a hardware address. For an InfiniBand address it also adds the GUID at the end.
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

// findIP adds an IP address. It returns false if the text is not an IP address.
func findIP(text string, found map[string]string) bool {
	a, err := netip.ParseAddr(text)
	if err == nil && !a.IsUnspecified() && !a.IsLoopback() && !strings.HasPrefix(text, "255.") && hardware[0].FindString(text) != text {
		found[text] = a.Unmap().String()
	}
	return err == nil
}

// rename returns a replacement for each found address that is not itself among them. The replacements are locally
// administered hardware addresses, and IP addresses for benchmarks (RFC 2544) and documentation (RFC 3849).
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

// respell formats a new hardware address like the old one. If the old one lacks leading zeros it uses the last
// digits. It returns an IP address unchanged.
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
	return string(by)
}
