package auth

import (
	"net/http"
	"strings"
)

// Bearer is the token of a request's Authorization header; empty if there is
// none, or another scheme's, or several headers, of which readers differ on which
// counts. The scheme word is case-insensitive (RFC 9110, section 11.1).
func Bearer(h http.Header) string {
	given := h["Authorization"]
	if len(given) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
