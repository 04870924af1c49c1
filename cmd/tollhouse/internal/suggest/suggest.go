// Package suggest finds what somebody who misspelled a name meant.
package suggest

// Nearest returns the name that differs least from a word, if at most two letters differ and
// not every letter does. It returns the empty string if there is none.
func Nearest(word string, names []string) (near string) {
	least := min(3, len(word))
	for _, name := range names {
		if d := distance(word, name); d < least {
			near, least = name, d
		}
	}
	return near
}

// distance is Levenshtein's: how many letters must be added, removed or replaced to turn
// one word into the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from the letters of a so far to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
