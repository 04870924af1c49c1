package messages

import (
	"runtime"
	"strings"
	"testing"
)

// allocated is how many bytes of memory f takes.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestTheTextOfManyBlocksTakesMemoryInProportion(t *testing.T) {
	const text = "some words"
	work := func(n int) uint64 {
		blocks := make([]Block, n)
		for i := range blocks {
			blocks[i] = Block{Type: "text", Text: text}
		}
		c := Blocks(blocks...)
		got := ""
		size := allocated(func() { got = c.String() })
		if got != strings.Repeat(text, n) {
			t.Fatalf("%d blocks: %d bytes of text", n, len(got))
		}
		return size
	}
	if once, fourfold := work(2_000), work(8_000); fourfold > 8*once {
		t.Errorf("%d bytes for 2,000 blocks, %d for 8,000", once, fourfold)
	}
}
