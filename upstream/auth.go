package upstream

import (
	"errors"
	"fmt"
	"strings"
)

// Auth says how a call carries the vendor's key. The zero value is the driver's own way:
// a bearer token, or x-api-key for the wire of Anthropic.
type Auth struct {
	// By is the way: one of the constants below.
	By AuthBy
	// Name is that of the header or of the parameter of the query; empty for the other ways.
	Name string
}

// AuthBy is a way in which a call carries a key.
type AuthBy string

// The ways to send a key. ByQuery is only for vendors that take no other way: every log of
// addresses between the gateway and the vendor then has the key.
const (
	ByBearer AuthBy = "bearer" // "Authorization: Bearer KEY" (RFC 6750)
	ByHeader AuthBy = "header" // a header of the vendor's own, with the key alone
	ByQuery  AuthBy = "query"  // a parameter of the address
	ByNone   AuthBy = "none"   // no key at all; there must be none then
)

var errAuth = errors.New("it must be one of bearer, header:NAME, query:NAME, none")

// ParseAuth reads what [Auth.String] gives: "bearer", "header:NAME", "query:NAME" or
// "none". Empty text is the zero Auth. The error does not repeat the text, which may be a
// key in the wrong place.
func ParseAuth(text string) (Auth, error) {
	by, name, named := strings.Cut(text, ":")
	a := Auth{By: AuthBy(by), Name: name}
	if named && name == "" {
		return Auth{}, fmt.Errorf("after %q comes a name: %w", by+":", errAuth)
	}
	return a, a.Check()
}

// String is the form that [ParseAuth] reads.
func (a Auth) String() string {
	if a.Name == "" {
		return string(a.By)
	}
	return string(a.By) + ":" + a.Name
}

// Check fails for an unknown way, or for a name that is not allowed in its place.
func (a Auth) Check() error {
	switch a.By {
	case "", ByBearer, ByNone:
		if a.Name != "" {
			return errAuth
		}
	case ByHeader, ByQuery:
		if a.Name == "" {
			return fmt.Errorf("%s needs a name, as in %s:api-key: %w", a.By, a.By, errAuth)
		}
		for _, c := range []byte(a.Name) {
			if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
				return fmt.Errorf("a name has letters, digits, - and _ only: %w", errAuth)
			}
		}
	default:
		return errAuth
	}
	return nil
}
