package openai

import (
	"time"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// detail is what Google says in an error's details: a reason that tells a bad
// key from a bad request, and how long to wait, which it does in no header.
type detail struct {
	reason string        // of an ErrorInfo
	wait   time.Duration // of a RetryInfo
}

// parseDetails reads a list of messages that each have a "@type".
func parseDetails(raw []byte) (d detail) {
	for _, item := range rawjson.Elements(raw) {
		o, err := rawjson.Index(item, nil, nil)
		if err != nil {
			continue // no object
		}
		if reason, ok := rawjson.String(o.Raw("reason")); ok {
			d.reason = reason
		}
		delay, _ := rawjson.String(o.Raw("retryDelay"))
		if wait, err := time.ParseDuration(delay); err == nil && wait > 0 {
			d.wait = min(wait, httpdo.MaxWait)
		}
	}
	return d
}

// sole is the element of a list of one, in which some of Google's endpoints wrap
// an error, and data itself otherwise.
func sole(data []byte) []byte {
	if all := rawjson.Elements(data); len(all) == 1 {
		return all[0]
	}
	return data
}
