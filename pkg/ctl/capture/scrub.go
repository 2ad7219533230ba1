package capture

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/pkg/dra/state"
)

// Scrub renames, in the whole archive and in the names of its entries, what identifies the
// machine's owner. Equal things get equal names, so that what belonged together still does:
//
//   - hardware addresses of any length, GUIDs and switch IDs of 6 bytes and more, in
//     every spelling, also inside IPv6 addresses; all-zero and all-one ones stay
//   - IPv4 and IPv6 addresses, but for unspecified and loopback ones and netmasks
//   - names, namespaces and UIDs of pods, names of claims
//   - the secrets, such as the host's name and serial numbers
//
// Of a journal entry and a claim's record only what the commands read is kept: see
// journalEntry and claimRecord. Names of networks and interfaces, container IDs, PCI addresses
// and paths stay. A pod's name or a secret that is a common word is renamed only where it
// is the whole value, not wherever the word occurs.
func (a *Archive) Scrub(name string, secrets []string) {
	a.name = name
	s := newScrubber()
	for n := range a.entries {
		switch e := &a.entries[n]; {
		case isLink(*e):
		case strings.Contains(e.Name, "/attachments/"):
			e.Data = s.shown(e.Data, journalEntry)
		case e.Name == live:
			e.Data = s.shown(e.Data, liveFacts)
		case a.claims != "" && e.Name == path.Join(a.claims, state.OfferFile):
			e.Data = s.shown(e.Data, offered)
		case a.claims != "" && path.Dir(e.Name) == a.claims:
			e.Data = s.shown(e.Data, claimRecord)
		case strings.Contains(e.Name, "/claims/"):
			e.Data = s.shown(e.Data, journalClaim)
		}
	}
	for _, secret := range secrets {
		s.word(secret, "secret")
	}
	for _, text := range append(a.texts(), a.title) {
		s.collect(text)
	}
	s.assign()
	for n := range a.entries {
		e := &a.entries[n]
		e.Name, e.Data = s.replace(e.Name), []byte(s.replace(string(e.Data)))
	}
	a.title = s.replace(a.title)
	for n := range a.notes {
		a.notes[n] = s.replace(a.notes[n])
	}
	slices.SortStableFunc(a.entries, byName)
}

func (a *Archive) texts() (texts []string) {
	for _, e := range a.entries {
		texts = append(texts, e.Name, string(e.Data))
	}
	return append(texts, a.notes...)
}

// scrubber knows what to rename, in lower case, and to what.
type scrubber struct {
	ids   map[string]string     // hexadecimal digits without separators
	ips   map[string]netip.Addr // by spelling
	words map[string]string     // anything else
	count map[string]int        // of words, by sort

	spelled map[string]spelling // every spelling of them all
	lengths []int               // of spellings, the longest first
	starts  map[string]bool     // how spellings begin
}

// spelling is what takes the place of one spelling.
type spelling struct {
	by    string
	alone bool // only where no letter or digit is beside it
}

func newScrubber() *scrubber {
	return &scrubber{
		ids: map[string]string{}, ips: map[string]netip.Addr{}, words: map[string]string{}, count: map[string]int{},
		spelled: map[string]spelling{}, starts: map[string]bool{},
	}
}

var (
	separated = regexp.MustCompile(`(?i)[0-9a-f]{2}(?:(?::[0-9a-f]{2}){5,31}|(?:-[0-9a-f]{2}){5,31})`)
	dotted    = regexp.MustCompile(`(?i)\b[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}\b`)
	guid      = regexp.MustCompile(`(?i)[0-9a-f]{4}(?::[0-9a-f]{4}){3}`)
	switchID  = regexp.MustCompile(`(?i)"phys_switch_id": ?"([0-9a-f]{12,64})"`)
	embedded  = regexp.MustCompile(`(?i)\b(?:en|wl|ww)x([0-9a-f]{12})\b`) // an interface that is named after its address
	digits    = regexp.MustCompile(`(?i)^\s*([0-9a-f]{12,64})\s*$`)       // the attribute phys_switch_id
	ipv4      = regexp.MustCompile(`[0-9]{1,3}(?:\.[0-9]{1,3}){3}`)
	ipv6      = regexp.MustCompile(`(?i)[0-9a-f]*:[0-9a-f:.]*`)
)

// collect finds what is to be renamed in a text.
func (s *scrubber) collect(text string) {
	for _, re := range []*regexp.Regexp{separated, dotted, guid, switchID, embedded, digits} {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			s.id(m[len(m)-1])
		}
	}
	for _, m := range ipv4.FindAllString(text, -1) {
		s.ip(m)
	}
	for _, m := range ipv6.FindAllString(text, -1) {
		for m = strings.TrimRight(m, "."); m != "" && !s.ip(m); { // "addr:fe80::1": a label is no part of it
			_, m, _ = strings.Cut(m, ":")
		}
	}
}

// id notes a hardware address, and of one of InfiniBand the GUID at its end, too.
func (s *scrubber) id(text string) {
	const guid = 16
	digits := bare(text)
	if strings.Trim(digits, "0") == "" || strings.Trim(digits, "f") == "" {
		return
	}
	s.ids[digits] = ""
	if len(digits) > guid {
		s.id(digits[len(digits)-guid:])
	}
}

func bare(text string) string {
	return strings.ToLower(strings.NewReplacer(":", "", "-", "", ".", "").Replace(text))
}

// ip notes an IP address as it is spelled; ok is false if the text is not an address.
func (s *scrubber) ip(text string) (ok bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return false
	}
	known := a.IsUnspecified() || a.IsLoopback() || strings.HasPrefix(text, "255.")
	if !known && separated.FindString(text) != text {
		s.ips[strings.ToLower(text)] = a.Unmap()
	}
	return true
}

// assign gives everything its new name, in the order of the old ones.
func (s *scrubber) assign() {
	s.assignIPs()
	next := 0
	for _, id := range slices.Sorted(maps.Keys(s.ids)) {
		by := ""
		for taken := true; taken; _, taken = s.ids[by] {
			next++
			by = "02" + fmt.Sprintf("%0*x", len(id)-2, next)
		}
		s.ids[id] = by
	}
	for _, id := range slices.Sorted(maps.Keys(s.ids)) {
		forms, others := spellings(id), spellings(s.ids[id])
		for n := range forms {
			s.spell(forms[n], spelling{by: others[n]})
		}
	}
	slices.Sort(s.lengths)
	s.lengths = slices.Compact(s.lengths)
	slices.Reverse(s.lengths)
}

// assignIPs takes the new addresses from the networks for benchmarks (RFC 2544) and
// for documentation (RFC 3849).
func (s *scrubber) assignIPs() {
	old := slices.SortedFunc(maps.Values(s.ips), netip.Addr.Compare)
	v4, v6 := netip.MustParseAddr("198.18.0.0"), netip.MustParseAddr("2001:db8::")
	names := map[netip.Addr]string{}
	for _, a := range slices.Compact(old) {
		next := &v6
		if a.Is4() {
			next = &v4
		}
		for taken := true; taken; _, taken = slices.BinarySearchFunc(old, *next, netip.Addr.Compare) {
			*next = next.Next()
		}
		names[a] = next.String()
	}
	for text, a := range s.ips {
		s.spell(text, spelling{by: names[a]})
	}
}

// spellings are all the ways to write an address, always in the same order.
func spellings(id string) (forms []string) {
	pairs, fours := groups(id, 2), groups(id, 4)
	forms = []string{id, strings.Join(pairs, ":"), strings.Join(pairs, "-")}
	const mac, guid = 12, 16
	switch len(id) {
	case mac:
		forms = append(forms, strings.Join(fours, "."))
		first, _ := strconv.ParseUint(id[:2], 16, 8)                           // only hexadecimal digits come here
		for _, first := range []string{fmt.Sprintf("%02x", first^2), id[:2]} { // EUI-64, modified (RFC 4291, appendix A) and plain
			forms = append(forms, spellings(first+id[2:6]+"fffe"+id[6:])...)
		}
	case guid:
		forms = append(forms, strings.Join(fours, ":"))
		for n := range fours {
			fours[n] = cmp.Or(strings.TrimLeft(fours[n], "0"), "0")
		}
		forms = append(forms, strings.Join(fours, ":"))
	}
	return forms
}

func groups(id string, size int) (list []string) {
	for chunk := range slices.Chunk([]byte(id), size) {
		list = append(list, string(chunk))
	}
	return list
}

// startLength is how many bytes of a spelling are looked at first.
const startLength = 3

func (s *scrubber) spell(text string, sp spelling) {
	if _, ok := s.spelled[text]; ok || len(text) < startLength {
		return
	}
	s.spelled[text] = sp
	s.lengths = append(s.lengths, len(text))
	s.starts[text[:startLength]] = true
}

// replace renames all that is known, at each place the longest.
func (s *scrubber) replace(text string) string {
	var out strings.Builder
	lower := lowerASCII(text)
	for at := 0; at < len(text); {
		n, by := s.match(lower, at)
		if n == 0 {
			out.WriteByte(text[at])
			at++
			continue
		}
		if old := text[at : at+n]; old == strings.ToUpper(old) && old != strings.ToLower(old) {
			by = strings.ToUpper(by)
		}
		out.WriteString(by)
		at += n
	}
	return out.String()
}

// lowerASCII keeps every byte in its place, even in invalid UTF-8.
func lowerASCII(text string) string {
	b := []byte(text)
	for n, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[n] += 'a' - 'A'
		}
	}
	return string(b)
}

func (s *scrubber) match(lower string, at int) (n int, by string) {
	if at+startLength > len(lower) || !s.starts[lower[at:at+startLength]] {
		return 0, ""
	}
	for _, n := range s.lengths {
		if at+n > len(lower) {
			continue
		}
		sp, ok := s.spelled[lower[at:at+n]]
		if ok && (!sp.alone || (at == 0 || !wordy(lower[at-1])) && (at+n == len(lower) || !wordy(lower[at+n]))) {
			return n, sp.by
		}
	}
	return 0, ""
}

func wordy(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z'
}
