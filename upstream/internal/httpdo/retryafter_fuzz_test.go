package httpdo

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

// FuzzRetryAfter: a wait is between nothing and an hour, whatever the vendor
// says, and a plain number of seconds is what it says.
func FuzzRetryAfter(f *testing.F) {
	for _, row := range [][2]string{
		{"", "7"}, {"250", ""}, {"", "-1"}, {"", "99999999999999999999"}, {"", "0x10"}, {"", "1_000"}, {"NaN", "Inf"}, {"", "1e-400"},
		{"", "Tue, 01 Sep 2026 12:00:30 GMT"}, {"", "Thu, 01 Jan 1970 00:00:00 GMT"}, {"", "Fri, 31 Dec 9999 23:59:59 GMT"}, {"\x00", "7\r\nX: y"},
	} {
		f.Add(row[0], row[1])
	}
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, ms, after string) {
		d := retryAfter(http.Header{"Retry-After-Ms": {ms}, "Retry-After": {after}}, now)
		if d < 0 || d > MaxWait {
			t.Fatalf("%q, %q: %s", ms, after, d)
		}
		if n, err := strconv.ParseUint(after, 10, 32); err == nil && ms == "" && d != min(time.Duration(n)*time.Second, MaxWait) {
			t.Errorf("%q: %s", after, d)
		}
	})
}
