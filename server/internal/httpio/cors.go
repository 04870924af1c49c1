package httpio

import (
	"net/http"
	"strings"
)

// The headers of CORS. By them a browser knows whether a page may read an answer of another
// origin (the Fetch standard, https://fetch.spec.whatwg.org, "HTTP extensions").
//
// Access-Control-Allow-Credentials is never among them. A key comes in a header that the page
// itself sets. With credentials a browser would add what it keeps of its own, such as cookies,
// which nothing here reads.

// preflightAge is for how many seconds a browser may remember the answer to a
// preflight. A page whose origin was removed can send for as long, but read nothing.
const preflightAge = "600"

// AllowOrigin lets pages of an origin, or of every origin ("*"), read the answer and
// those of its headers that exposed names.
func AllowOrigin(h http.Header, origin, exposed string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposed)
}

// IsPreflight reports whether a browser asks with the request whether a page may make
// another one.
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && PreflightMethod(r) != ""
}

// PreflightMethod is the method of the request that a preflight asks for.
func PreflightMethod(r *http.Request) string { return r.Header.Get("Access-Control-Request-Method") }

// PreflightHeaders are the names of the headers that a preflight asks for.
func PreflightHeaders(r *http.Request) string { return r.Header.Get("Access-Control-Request-Headers") }

// AnswerPreflight says with which methods and headers pages may call. It sets the
// headers of the answer, which is otherwise empty.
func AnswerPreflight(h http.Header, methods []string, headers string) {
	h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	h.Set("Access-Control-Allow-Headers", headers)
	h.Set("Access-Control-Max-Age", preflightAge)
}
