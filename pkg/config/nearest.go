package config

import "strings"

// Nearest returns the word that needs the fewest edits to become key, ignoring case; of
// several, the first. It compares 64 bytes of each, so that a hostile key costs no time:
// no key of ours is that long.
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

// edits is the Levenshtein distance of two strings, byte by byte.
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
