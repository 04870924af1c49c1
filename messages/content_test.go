package messages

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/roomtest"
)

func TestTheTextOfManyBlocksTakesMemoryInProportion(t *testing.T) {
	roomtest.TextInProportion(t, func(n int, text string) fmt.Stringer {
		return Blocks(slices.Repeat([]Block{{Type: "text", Text: text}}, n)...)
	})
}
