package httpdo

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/tollhouse-ai/gateway/internal/netguard"
)

// maxRepeatAfter is how long a GET waits at most for its second try: no longer than a poll for
// the next one. Whoever asked obeys a longer Retry-After.
const maxRepeatAfter = 5 * time.Second

// repeating returns a transport for GETs that are safe to repeat: polls of videos, lists of
// models and downloads. It retries a failed GET once. It has no logger, since a log line could
// hold an address that grants access.
func (c *Client) repeating(transport http.RoundTripper) http.RoundTripper {
	return &retryablehttp.RoundTripper{Client: &retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: tripper{transport}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		RetryMax:     1,
		CheckRetry:   c.mayRepeat,
		Backoff:      func(_, _ time.Duration, _ int, resp *http.Response) time.Duration { return c.repeatAfter(resp) },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}}
}

// tripper hides the other methods of a transport. The client would close the idle connections
// of unrelated calls after a failed GET.
type tripper struct{ http.RoundTripper }

// mayRepeat reports whether a GET that ended so is sent again. A failure that can pass at
// once is repeated at once, others when the vendor says, if the context lasts so long.
func (c *Client) mayRepeat(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if _, private := errors.AsType[*netguard.Inside](err); private || ctx.Err() != nil {
		return false, nil
	}
	if passes, _ := retryablehttp.DefaultRetryPolicy(ctx, resp, err); !passes {
		return false, nil
	}
	wait := c.repeatAfter(resp)
	if wait == 0 {
		return resp == nil || resp.StatusCode != http.StatusTooManyRequests, nil
	}
	deadline, bounded := ctx.Deadline()
	return wait <= maxRepeatAfter && (!bounded || time.Until(deadline) > wait), nil
}

// repeatAfter is how long the vendor wants a GET to wait; 0 if it does not say.
func (c *Client) repeatAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	return retryAfter(resp.Header, c.now())
}
