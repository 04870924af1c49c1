package server

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/server/internal/httpio"
)

// The headers of a window, in canonical form: limit, remaining, reset.
var (
	requestLimits = [3]string{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"}
	tokenLimits   = [3]string{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"}
)

// limitHeaders sets the headers that say what is left of the key's limits, in
// OpenAI's form, where limits are set. Later calls do nothing.
func (x *httpExchange) limitHeaders() {
	if x.limitsSent {
		return
	}
	x.limitsSent = true
	state := x.entry.Limits()
	if state.Requests.Limit > 0 {
		setLimitHeaders(x.w.Header(), requestLimits, state.Requests)
	}
	if state.Tokens.Limit > 0 {
		setLimitHeaders(x.w.Header(), tokenLimits, state.Tokens)
	}
}

// setLimitHeaders sets three headers whose values share one array, which saves two
// allocations.
func setLimitHeaders(h http.Header, names [3]string, w auth.Window) {
	values := []string{
		strconv.FormatInt(w.Limit, 10),
		strconv.FormatInt(max(w.Remaining, 0), 10),
		w.Reset.Round(time.Millisecond).String(),
	}
	for i, name := range names {
		h[name] = values[i : i+1 : i+1]
	}
}

// dialect is how the clients of some paths read headers and errors.
type dialect struct {
	errors      errorFormat
	forwarded   string        // begins the names of headers that go on to a vendor of the same dialect; empty for none
	requestID   string        // a header of their own that has the request's id; empty for none
	longestWait time.Duration // that a Retry-After may name
	codex       bool          // Codex is among them
}

// dialects are those of the endpoints. Anthropic's SDKs obey any Retry-After, an hour too,
// while their caller hears nothing.
var dialects = [...]dialect{
	operation.OpenAI:    {errors: errorFormat{openAIShape, false}, longestWait: time.Hour},
	operation.Anthropic: {errors: errorFormat{messagesShape, false}, forwarded: "Anthropic-", requestID: "Request-Id", longestWait: time.Minute},
	operation.Responses: {errors: errorFormat{responsesShape, false}, forwarded: "Openai-Beta", longestWait: time.Minute, codex: true},
	operation.Images:    {errors: errorFormat{alphaShape, true}, longestWait: time.Hour},
	operation.Plain:     {errors: errorFormat{plainShape, false}, longestWait: time.Hour},
	operation.Rerank:    {errors: errorFormat{rerankShape, true}, longestWait: time.Hour}, // Cohere's clients read message, Voyage's and Jina's detail
}

// dialectOfPath is that of the clients which call a path: the dialect of the endpoint that has
// the path or lies above it, or OpenAI's.
func dialectOfPath(path string) *dialect {
	for _, spec := range all.Specs() {
		within := func(prefix string) bool { return isWithin(path, prefix) }
		if within(spec.Path) || slices.ContainsFunc(spec.Paths, within) {
			return &dialects[spec.Dialect]
		}
	}
	return &dialects[operation.OpenAI]
}

// dialectOf is the dialect of a request's client. The path alone does not say so of lists of
// models.
func dialectOf(routes []*route, r *http.Request) *dialect {
	if isWithin(r.URL.Path, "/v1/models") && r.Header.Get("Anthropic-Version") != "" {
		return &dialects[operation.Anthropic]
	}
	if len(routes) > 0 {
		return routes[0].dialect
	}
	return dialectOfPath(r.URL.Path)
}

// isWithin reports whether the path is prefix or lies below it.
func isWithin(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// forwardedHeaders sets what of the client's headers and query belongs to the dialect of the
// path, and goes on to an upstream that speaks it.
func (x *httpExchange) forwardedHeaders(q *gateway.Request) (err error) {
	if x.dialect.forwarded == "" {
		return nil
	}
	if x.r.URL.Query().Get("beta") == "true" {
		q.Query = "beta=true"
	}
	q.Header, err = headersWith(x.dialect.forwarded, x.r.Header)
	return err
}

// headersWith are the headers whose names begin with prefix. A vendor may take few
// bytes of headers, and would blame the gateway.
func headersWith(prefix string, h http.Header) (own http.Header, err error) {
	const maxBytes = 8 << 10
	size := 0
	for name, values := range h {
		if name = textproto.CanonicalMIMEHeaderKey(name); strings.HasPrefix(name, prefix) {
			if own == nil {
				own = make(http.Header)
			}
			own[name] = append(own[name], values...)
			for _, v := range values {
				size += len(name) + len(v)
			}
		}
	}
	if size > maxBytes {
		return nil, fault.Invalid("", fmt.Sprintf("The headers %s* have %d bytes in all. At most %d are allowed.", strings.ToLower(prefix), size, maxBytes))
	}
	return own, nil
}

// codexPatience is the longest Retry-After that Codex gets: it waits it out in full,
// five times, and its user sees nothing. Without one it stops at a 429.
const codexPatience = 10 * time.Second

// maxRetryAfter is how long a client may be asked to wait. With a Retry-After, Codex repeats
// an overloaded request 30 times, and without it five times.
func (x *httpExchange) maxRetryAfter(f *fault.Error) time.Duration {
	if x.dialect.codex {
		overloaded := f.HTTPStatus() == http.StatusServiceUnavailable
		if overloaded || f.RetryAfter > codexPatience && strings.HasPrefix(strings.ToLower(x.r.Header.Get("Originator")), "codex") {
			return 0
		}
	}
	return x.dialect.longestWait
}

// setRequestID puts the request's id in the headers that clients read.
func (x *httpExchange) setRequestID(id string) {
	h := x.w.Header()
	h["X-Request-Id"] = []string{id}
	if own := x.dialect.requestID; own != "" {
		h[own] = []string{id}
	}
}

// clientID is the client's own id of the request, if it is fit to be logged: at
// most 512 printable ASCII characters.
func clientID(r *http.Request) string {
	id := r.Header.Get("X-Client-Request-Id")
	if len(id) > 512 || !safetext.IsPrintable(id) {
		return ""
	}
	return id
}

// sessionHeaders are those by which clients name a conversation, in canonical form and in the
// order in which they count. They are Claude Code's, Codex's of now and of before, and those
// of agents and other gateways. X-Client-Request-Id is not one of them: in many clients it is
// new for each request.
var sessionHeaders = [...]string{
	"X-Claude-Code-Session-Id", "Session-Id", "Session_id", "Thread-Id",
	"X-Session-Id", "X-Session-Affinity", "Agent-Session-Id", "Helicone-Session-Id", "X-Litellm-Session-Id",
}

// sessionOf is the client's own name of the conversation; empty if no header has one.
func sessionOf(h http.Header) string {
	for _, name := range sessionHeaders {
		if values := h[name]; len(values) > 0 && gateway.IsSessionName(values[0]) {
			return values[0]
		}
	}
	return ""
}

// errorHeaders sets the headers that tell a client what to do next: how to
// authenticate, when to retry, also in milliseconds, and whether to.
func errorHeaders(h http.Header, f *fault.Error, longest time.Duration) {
	httpio.SetErrorHeaders(h, f, longest)
	if wait := httpio.RetryAfter(f, longest); wait > 0 {
		h.Set("Retry-After-Ms", strconv.FormatInt(max(wait.Milliseconds(), 1), 10))
	}
	switch f.Retry {
	case fault.RetryYes:
		h.Set("X-Should-Retry", "true")
	case fault.RetryNo:
		h.Set("X-Should-Retry", "false")
	}
}
