package gateway_test

import (
	"strings"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
)

func TestIdsFollowTheClockAndNeverRepeat(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := newHouse(t, &scripted{text: whole("")}, "1.00", func(o *gateway.Options) { o.Now = func() time.Time { return now } })
	seen := map[string]bool{}
	last := ""
	for range 1_000 {
		id := h.Begin().ID
		if !strings.HasPrefix(id, "req_") || len(id) != len("req_")+26 || seen[id] {
			t.Fatalf("%q after %d ids", id, len(seen))
		}
		seen[id] = true
		now = now.Add(time.Millisecond)
		if later := h.Begin().ID; later <= last || later <= id {
			t.Fatalf("%q comes before %q or %q", later, last, id)
		} else {
			last = later
		}
	}
}
