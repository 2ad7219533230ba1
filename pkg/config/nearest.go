package config

import "strings"

// Nearest gives the word that takes the fewest edits to become key, letter case
// not counted; the first of several.
func Nearest(key string, words []string) string {
	best, least := "", -1
	for _, w := range words {
		if n := edits(strings.ToLower(key), strings.ToLower(w)); least < 0 || n < least {
			best, least = w, n
		}
	}
	return best
}

// edits is the Levenshtein distance of two strings, byte by byte. Keys longer
// than any of ours could be are cut: a hostile one must not cost time.
func edits(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
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
