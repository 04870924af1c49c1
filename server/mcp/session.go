package mcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
)

// sessionHeader names a session of the versions of the protocol that have them.
const sessionHeader = "Mcp-Session-Id"

// A session's id proves by itself that it was given out for the key that comes
// with it: it ends in a code of the rest that only who has the key can make. So
// nothing is kept of a session, and any node knows its ids, before a restart and
// after it; and an id is worth nothing with another key.

// newSession is the id of a session that the exchange with this id opens.
func newSession(exchange, token string) string {
	name := strings.TrimPrefix(exchange, "req_")
	return "mcp_" + name + "." + seal(name, token)
}

// checkSession is nil for an id that was given out for the key, and where there
// is none.
func checkSession(id, token string) error {
	name, code, _ := strings.Cut(strings.TrimPrefix(id, "mcp_"), ".")
	if id == "" || hmac.Equal([]byte(code), []byte(seal(name, token))) && strings.HasPrefix(id, "mcp_") {
		return nil
	}
	return fault.New(fault.NotFound, "There is no such session of this key. Begin a new one with initialize.")
}

func seal(name, token string) string {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write([]byte("tollhouse mcp session\n" + name)) // a hash takes everything
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}
