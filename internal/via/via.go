// Package via detects request loops between gateways. A gateway writes its name into the Via
// header of its requests to vendors (RFC 9110, section 7.6.3). It refuses a request that
// already has that name.
package via

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// Header is the header that names the gateways which a request has passed.
const Header = "Via"

// Most is how many gateways of this kind a request may have passed. A short chain is
// legitimate. A longer one is a loop through nodes with different names.
const Most = 4

const (
	protocol = "1.1 "
	prefix   = "tollhouse-"
	longest  = 64 // bytes of a name behind the prefix
)

// Trail is the gateways that a request has passed, this one included. It is immutable.
type Trail struct{ header []string }

// New returns the trail of a request that begins here. id is the gateway's own,
// unique among all that may ever ask each other.
func New(id string) *Trail { return &Trail{[]string{protocol + name(id)}} }

// name makes an id a token of the header, whatever is in it.
func name(id string) string {
	id = strings.Map(func(r rune) rune {
		if letter(r) {
			return r
		}
		return '-'
	}, id)
	return prefix + id[:min(len(id), longest)]
}

func letter(r rune) bool {
	return r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// Values are those of the header of a request to a vendor. They must not be
// changed.
func (t *Trail) Values() []string { return t.header }

// After returns the trail of a request that came with these values of the header. Only the
// names of gateways of this kind are kept. A request that has passed this one, or too many, is
// a 508.
func (t *Trail) After(given []string) (*Trail, error) {
	if len(given) == 0 {
		return t, nil
	}
	own := t.header[0]
	var passed []string
	for _, line := range given {
		for entry := range strings.SplitSeq(line, ",") {
			switch at, ok := gateway(entry); {
			case !ok:
			case at == own:
				return nil, loop("The request has passed this gateway before: one of its channels leads back to it.")
			case len(passed) == Most:
				return nil, loop(fmt.Sprintf("The request has passed more than %d gateways.", Most))
			default:
				passed = append(passed, at)
			}
		}
	}
	if passed == nil {
		return t, nil
	}
	return &Trail{[]string{strings.Join(append(passed, own), ", ")}}, nil
}

// gateway is an entry of the header that names a gateway of this kind, in the
// form that this one would give it.
func gateway(entry string) (string, bool) {
	fields := strings.Fields(entry)
	if len(fields) < 2 {
		return "", false
	}
	id, ok := strings.CutPrefix(fields[1], prefix)
	if !ok || id == "" || len(id) > longest || strings.ContainsFunc(id, func(r rune) bool { return !letter(r) }) {
		return "", false
	}
	return protocol + prefix + id, true
}

// loop is the refusal of a request that would loop. It must not be retried.
func loop(message string) error {
	return &fault.Error{Code: fault.LoopDetected, Message: message, Retry: fault.RetryNo}
}

type key struct{}

// Context is a context whose calls to vendors carry a trail. It is a struct, so that it
// can be a part of what it belongs to.
type Context struct {
	context.Context
	Trail *Trail
}

// Value is that of the context, or the trail.
func (c *Context) Value(k any) any {
	if k == (key{}) {
		return c.Trail
	}
	return c.Context.Value(k)
}

// Lasting is a Context that never ends.
type Lasting Context

// Deadline is none.
func (*Lasting) Deadline() (at time.Time, ok bool) { return at, false }

// Done is never closed.
func (*Lasting) Done() <-chan struct{} { return nil }

// Err is nil.
func (*Lasting) Err() error { return nil }

// Value is that of the Context.
func (c *Lasting) Value(k any) any { return (*Context)(c).Value(k) }

// FromContext is the trail of a context; nil if it has none.
func FromContext(ctx context.Context) *Trail {
	t, _ := ctx.Value(key{}).(*Trail)
	return t
}
