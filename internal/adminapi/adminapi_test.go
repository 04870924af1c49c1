package adminapi

import (
	"testing"
	"time"
)

func TestTheTimesOfTheAdminAPIAreInUTC(t *testing.T) {
	at := time.Date(2026, 7, 1, 2, 0, 0, 0, time.FixedZone("CEST", 2*60*60))
	if got := Time(at); !got.Equal(at) || got.Location() != time.UTC {
		t.Errorf("got %v, want it in UTC", got)
	}
	if got := Time(time.Time{}); got != nil {
		t.Errorf("got %v of no time", got)
	}
}
