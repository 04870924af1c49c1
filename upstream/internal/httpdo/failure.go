package httpdo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// MaxRefusal is how much of an error body is read.
const MaxRefusal = 64 << 10

// readRefusal reads and closes an error body; as far as it goes if it is cut.
func readRefusal(body io.ReadCloser) []byte {
	data, _ := io.ReadAll(io.LimitReader(body, MaxRefusal+1))
	_ = body.Close()
	return rawjson.TrimBOM(data)
}

// Refused returns what a vendor's status means by itself. text is the vendor's, for the log
// only. The fault's message is for the client and has none of it.
func (c *Client) Refused(status int, text string, h http.Header) (*fault.Error, *upstream.Failure) {
	f := upstream.FromStatus(status)
	f.Err = errors.New(c.Excerpt(text))
	e := f.Fault()
	if f.Refused {
		e.RetryAfter = retryAfter(h, c.now())
	}
	return e, f
}

// OperatorFault marks a refusal as the operator's fault: the vendor's code blames the key or
// the account, for instance because it cannot pay.
func (c *Client) OperatorFault(f *upstream.Failure) *fault.Error {
	f.Fatal, f.Refused, f.Ambiguous = true, false, false
	return f.Fault()
}

// Malformed returns the error of an answer that has not the vendor's form.
func (c *Client) Malformed(status int, err error) error {
	f := &upstream.Failure{Sent: true, Err: c.masked(err)}
	e := f.Fault()
	f.Status = status // which is not what is wrong
	return e
}

// transportError is the error of a call that got no response.
func (c *Client) transportError(ctx context.Context, sent bool, err error) error {
	f := &upstream.Failure{Sent: sent, Err: c.masked(err)}
	if ctx.Err() != nil {
		return fault.From(ctx.Err()).With(func(e *fault.Error) { e.Err = f })
	}
	return f.Fault()
}

// masked is err, or its text alone where that holds a key.
func (c *Client) masked(err error) error {
	if text := c.Keys.Mask(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// maxExcerpt is how many bytes of a vendor's text the log has.
const maxExcerpt = 1024

// Excerpt returns the beginning of a vendor's text for the log. It masks keys first, since a
// key that is cut in half would not be found.
func (c *Client) Excerpt(text string) string { return safetext.Truncate(c.Keys.Mask(text), maxExcerpt) }

// MaxWait bounds the Retry-After of a vendor that is believed.
const MaxWait = time.Hour

// retryAfter is how long the vendor asks to wait; 0 if it does not say, or says
// nonsense.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if d, ok := parseUnits(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	given := h.Get("Retry-After")
	if d, ok := parseUnits(given, time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(given); err == nil {
		return min(max(at.Sub(now), 0), MaxWait)
	}
	return 0
}

// parseUnits reads a count of units, which may have a fraction.
func parseUnits(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	switch {
	case err != nil || !(n >= 0): // NaN is not
		return 0, false
	case n >= float64(MaxWait/unit):
		return MaxWait, true
	}
	return time.Duration(n * float64(unit)), true
}
