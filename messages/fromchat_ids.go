package messages

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// fresh is a call's id as the upstream gets it: the caller's own where it has
// the upstream's letters and no call before has it. It depends only on the
// conversation until here, so that a longer one begins alike and is found in
// the upstream's cache.
func (b *chatTurns) fresh(id string) string {
	if !plainID(id) {
		sum := sha256.Sum256([]byte(id))
		id = "call_" + hex.EncodeToString(sum[:12])
	}
	n, before := b.used[id]
	if !before {
		b.used[id] = 2
		return id
	}
	for { // what was found used once is not tried again
		sent := id + "_" + strconv.Itoa(n)
		n++
		if _, used := b.used[sent]; !used {
			b.used[id], b.used[sent] = n, 2
			return sent
		}
	}
}

// plainID reports whether the upstream takes an id: letters, digits, - and _.
func plainID(id string) bool {
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != ""
}
