package config

import "strings"

// Nearest returns the first of the words with the fewest edits to key, ignoring case. It compares only 64 bytes, so
// that a long key from a hostile configuration does not cost much time. No known key is longer.
func Nearest(key string, words []string) string {
	const most = 64
	key = strings.ToLower(key[:min(len(key), most)])
	best, least := "", -1
	for _, w := range words {
		if n := edits(key, strings.ToLower(w[:min(len(w), most)])); least < 0 || n < least {
			best, least = w, n
		}
	}
	return best
}

// Resembles reports whether a key becomes one of the words with at most one edit for each four bytes of the word.
func Resembles(key string, words []string) bool {
	near := Nearest(key, words)
	return edits(strings.ToLower(key), strings.ToLower(near)) <= len(near)/4
}

// edits returns the Levenshtein distance of two strings, in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
