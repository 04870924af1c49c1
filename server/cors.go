package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/server/internal/httpio"
)

// Web pages of other origins may call the API where the operator allows them (CORS). A page
// gets what any client with its key gets. Keys come in headers, never in cookies, so a page
// can spend only a key that it has. No library does this, since only the table of routes knows
// which preflights have an answer. Also, only pages that are named may call into a private
// network.

// everyOrigin stands for all origins in Options.CORS.
const everyOrigin = "*"

// corsPolicy says which pages may read answers. It is immutable.
type corsPolicy struct {
	every bool // pages of all origins
	named []string
}

// SetCORS replaces the origins of Options.CORS. Requests that run keep what they began
// with. It is safe for concurrent use.
func (h *Handler) SetCORS(origins []string) {
	if len(origins) == 0 {
		h.cors.Store(nil)
		return
	}
	h.cors.Store(&corsPolicy{every: slices.Contains(origins, everyOrigin), named: slices.Clone(origins)})
}

// names reports whether the operator wrote the origin down. "null" names no one page, as
// every page can give itself that origin.
func (p *corsPolicy) names(origin string) bool {
	return origin != everyOrigin && origin != "null" && slices.Contains(p.named, origin)
}

// allowOrigin sets the headers that let the page read the answer, whatever that will
// be: an error, a stream, the refusal of a key. Without them a page sees no more than
// that its request failed.
func (p *corsPolicy) allowOrigin(h http.Header, r *http.Request) {
	if !p.every {
		h.Add("Vary", "Origin")
	}
	switch origin := r.Header.Get("Origin"); {
	case origin == "":
	case p.every:
		httpio.AllowOrigin(h, everyOrigin, exposedHeaders)
	case slices.Contains(p.named, origin):
		httpio.AllowOrigin(h, origin, exposedHeaders)
	}
}

// exposedHeaders are the headers of answers that pages may read besides those that they
// always may.
const exposedHeaders = "X-Request-Id, Request-Id, Retry-After, Retry-After-Ms, X-Should-Retry, WWW-Authenticate, Allow, ETag, " +
	"Idempotent-Replayed, X-Gateway-Charge, X-Gateway-Dropped, X-Gateway-Estimated, X-Gateway-Max-Tokens, Deprecation, Sunset, " +
	"X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, " +
	"X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

// pageHeaders are the headers of requests that pages may set, besides those of
// pageHeaderPrefixes and sessionHeaders. The API reads them, or SDKs and agents send them
// along. A page has no use for any other. A proxy before the server may believe that only it
// sets some of these.
var pageHeaders = [...]string{
	"accept", "authorization", "cache-control", "content-type", "http-referer", "idempotency-key", "if-none-match", "originator",
	"traceparent", "tracestate", "baggage", "user-agent", "x-api-key", "x-app", "x-client-request-id", "x-request-id", "x-requested-with", "x-title",
}

// pageHeaderPrefixes begin the names of families of such headers.
var pageHeaderPrefixes = [...]string{"anthropic-", "openai-", "x-openai-", "x-stainless-"}

// maxPageHeaders is the most names of headers that a preflight is answered for.
const maxPageHeaders = 100

// allowedHeaders are the headers that a preflight asks for and pages may set. For any other
// page, the browser says that it is not allowed.
func allowedHeaders(asked string) string {
	var allowed []string
	for name := range strings.SplitSeq(asked, ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); isPageHeader(name) && len(allowed) < maxPageHeaders {
			allowed = append(allowed, name)
		}
	}
	return strings.Join(allowed, ", ")
}

// isPageHeader reports whether pages may set the header, whose name is in lower case.
func isPageHeader(name string) bool {
	if slices.Contains(pageHeaders[:], name) || slices.ContainsFunc(sessionHeaders[:], func(s string) bool { return strings.EqualFold(s, name) }) {
		return true
	}
	hasPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return slices.ContainsFunc(pageHeaderPrefixes[:], hasPrefix) && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// answerPreflight answers a browser that asks whether a page may call one of the
// methods. It reports false for every other request, and where the answer is no, which
// an error tells. A preflight has no key and costs nothing: browsers send none with it.
func (h *Handler) answerPreflight(w http.ResponseWriter, r *http.Request, methods []string) bool {
	p, header, method := h.cors.Load(), w.Header(), httpio.PreflightMethod(r)
	if p == nil || !httpio.IsPreflight(r) || header.Get("Access-Control-Allow-Origin") == "" {
		return false
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if !slices.Contains(methods, method) {
		return false
	}
	httpio.AnswerPreflight(header, methods, allowedHeaders(httpio.PreflightHeaders(r)))
	// A page of the internet that calls into a private network must be one that the
	// operator wrote down (https://wicg.github.io/private-network-access).
	if header.Add("Vary", "Access-Control-Request-Private-Network"); p.names(r.Header.Get("Origin")) && r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		header.Set("Access-Control-Allow-Private-Network", "true")
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// checkPreflight refuses the preflight of a page that may not call, where others may. It
// tells those who look at the network's log of a browser what to do.
func (x *httpExchange) checkPreflight() error {
	if x.h.cors.Load() == nil || !httpio.IsPreflight(x.r) || x.w.Header().Get("Access-Control-Allow-Origin") != "" {
		return nil
	}
	return fault.New(fault.PermissionDenied, "Web pages of the origin "+safetext.Quoted(x.r.Header.Get("Origin"))+" may not call. The operator names those that may in the configuration, under cors.")
}
