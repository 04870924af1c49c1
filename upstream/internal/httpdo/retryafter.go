package httpdo

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxWait bounds what a vendor's wish for a pause is believed.
const MaxWait = time.Hour

// retryAfter is how long the vendor asks to wait; 0 if it does not say, or says
// nonsense.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if d, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	given := h.Get("Retry-After")
	if d, ok := number(given, time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(given); err == nil {
		return min(max(at.Sub(now), 0), MaxWait)
	}
	return 0
}

// number reads a count of units, which may have a fraction.
func number(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	switch {
	case err != nil || !(n >= 0): // NaN is not
		return 0, false
	case n >= float64(MaxWait/unit):
		return MaxWait, true
	}
	return time.Duration(n * float64(unit)), true
}
