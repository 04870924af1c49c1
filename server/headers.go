package server

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
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
	state := x.response.Limits()
	if state.Requests.Limit > 0 {
		setLimitHeaders(x.w.Header(), requestLimits, state.Requests)
	}
	if state.Tokens.Limit > 0 {
		setLimitHeaders(x.w.Header(), tokenLimits, state.Tokens)
	}
}

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

// isMessagesPath reports whether Anthropic's clients call the path. They send
// the key in a header of their own and read the request's id from another.
func isMessagesPath(path string) bool {
	return path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/")
}

// anthropicHeaders are those of the client that belong to the dialect. They go on
// to a vendor, who may take few bytes of headers, and would blame the gateway.
func anthropicHeaders(h http.Header) (own http.Header, err error) {
	const prefix, maxBytes = "Anthropic-", 8 << 10
	size := 0
	for name, values := range h {
		if strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), prefix) {
			if own == nil {
				own = make(http.Header)
			}
			own[name] = values
			for _, v := range values {
				size += len(name) + len(v)
			}
		}
	}
	if size > maxBytes {
		return nil, fault.Invalid("", fmt.Sprintf("The headers anthropic-* have %d bytes in all. At most %d are allowed.", size, maxBytes))
	}
	return own, nil
}

// token is the caller's key. Two keys that differ are an error.
func (x *httpExchange) token() (string, error) {
	token := auth.Bearer(x.r.Header)
	if !isMessagesPath(x.r.URL.Path) {
		return token, nil
	}
	other := strings.TrimSpace(x.r.Header.Get("X-Api-Key"))
	switch {
	case token == "":
		return other, nil
	case other != "" && other != token:
		return "", fault.New(fault.Unauthorized, "The key in x-api-key is not the one in Authorization. Send one of them, or the same key in both.")
	}
	return token, nil
}

// maxRetryAfter is how long a client may be asked to wait. Anthropic's SDKs obey
// any Retry-After, an hour too, while their caller hears nothing.
func (x *httpExchange) maxRetryAfter() time.Duration {
	if isMessagesPath(x.r.URL.Path) {
		return time.Minute
	}
	return time.Hour
}

// setRequestID puts the request's id in the headers that clients of the path read.
func (x *httpExchange) setRequestID(id string) {
	h := x.w.Header()
	h["X-Request-Id"] = []string{id}
	if isMessagesPath(x.r.URL.Path) {
		h["Request-Id"] = []string{id}
	}
}

// clientID is the client's own id of the request, if it is fit to be logged: at
// most 512 printable ASCII characters.
func clientID(r *http.Request) string {
	id := r.Header.Get("X-Client-Request-Id")
	if len(id) > 512 {
		return ""
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return ""
		}
	}
	return id
}

// sessionHeaders are those by which clients name a conversation, in canonical form and in
// the order in which they count: Claude Code's, Codex's of now and of before, and those
// that agents and other gateways use. X-Client-Request-Id is none: in many clients it
// is new for each request.
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
