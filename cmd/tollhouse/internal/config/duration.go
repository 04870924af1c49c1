package config

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads Go's durations and whole days: "90s", "24h", "30d".
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, nil
	}
	return 0, errors.New("write a duration such as 90s, 24h or 30d")
}

// parseDate reads a day or a moment.
func parseDate(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("write a day such as 2026-12-31")
}
