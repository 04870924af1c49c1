package upstream_test

import (
	"testing"
	"time"
)

func TestRestsAreCounted(t *testing.T) {
	var d day
	first := plays(failed(500))
	r := two(t, &d, first)
	for want := range int64(4) {
		if got := r.CircuitOpens(); got["first"] != want || got["second"] != 0 || len(got) != 2 {
			t.Errorf("after %d rests it tells of %v", want, got)
		}
		ask(t, r, first, 3)
		d.now = d.now.Add(time.Minute)
	}
}
