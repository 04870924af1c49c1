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
	sent := id
	for n := 2; b.used[sent]; n++ {
		sent = id + "_" + strconv.Itoa(n)
	}
	b.used[sent] = true
	return sent
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
