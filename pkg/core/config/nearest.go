package config

import (
	"fmt"
	"strings"
)

// compared is the number of bytes that [Nearest] compares, so that a long key from a hostile configuration does not cost much
// time. No known key is longer.
const compared = 64

// Nearest returns the first of the words with the fewest edits to key, ignoring case; "" = each takes more than one edit for
// each four bytes of the word.
func Nearest(key string, words []string) (best string) {
	key, least := lower(key), compared
	for _, w := range words {
		if n := edits(key, lower(w)); n <= len(w)/4 && n < least {
			best, least = w, n
		}
	}
	return best
}

// Suggest ends a message about an unknown key: with the known one that it resembles, or else with all.
func Suggest(key string, known []string) string {
	if near := Nearest(key, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "the known ones are " + strings.Join(known, ", ")
}

// NearestKnown ends a message about an unknown key; nearest "" = none resembles it.
func NearestKnown(nearest string) string {
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("; the nearest known one is %q", nearest)
}

func lower(s string) string {
	s = strings.ToLower(s[:min(len(s), compared)])
	return s[:min(len(s), compared)] // a letter may have grown
}

// edits returns how many bytes to insert, delete or replace, and neighbours to swap, make b of a.
func edits(a, b string) int {
	var rows [3][compared + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			n := last[j]
			if a[i] != b[j] {
				n++
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				n = min(n, before[j-1]+1)
			}
			row[j+1] = min(n, last[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
