// Package webhook has what a store of webhook deliveries implements, and what an
// operator sees of them. The gateway itself signs and sends: see docs/guides/webhooks.md.
package webhook

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/secret"
)

// Delivery is an event that is sent to a customer's URL at least once, always with
// the same ID and Body.
type Delivery struct {
	ID      string // "evt_…"
	Account string // whose secrets sign it
	TaskID  string // the gateway's id of the task that it is about
	URL     string
	Body    []byte // JSON
	// CreatedAt is when it was written, or last resent by an operator: it is
	// attempted for three days from then on.
	CreatedAt time.Time
	Tries     int // attempts that failed so far
}

// Outbox keeps deliveries until they have ended. Its implementations are safe for
// concurrent use. Several processes may share it: a lease says which of them sends
// a delivery. After an error the call is repeated.
type Outbox interface {
	// Due leases at most n due deliveries to owner, until the given time. It takes those
	// that no process has leased, owner included, and that have waited longest.
	Due(ctx context.Context, owner string, until time.Time, n int) ([]Delivery, error)
	// Done ends a delivery that was received.
	Done(ctx context.Context, id string, at time.Time) error
	// Failed records a failed attempt at d, as Due returned it, and ends its lease. The next
	// attempt is at next; if final, there is none. reason is for the operator. Failed changes
	// nothing if the stored CreatedAt or Tries differ from d's: an operator has resent the
	// delivery since.
	Failed(ctx context.Context, d Delivery, next time.Time, reason string, final bool) error
	// Secrets are the account's, the newest first. If it has none, one is made.
	Secrets(ctx context.Context, account string) ([]Secret, error)
}

// State says whether a delivery has ended, and how.
type State string

// The states.
const (
	Waiting State = "waiting" // for its time, or being attempted
	Sent    State = "sent"
	Failed  State = "failed" // for good
)

// Status is a delivery as an operator sees it.
type Status struct {
	Delivery
	State  State
	Next   time.Time // of the next attempt; zero if it has ended
	Ended  time.Time // zero if it has not
	Reason string    // why the last attempt failed; empty if none did
}

// Overlap is how long the secret before the current one goes on signing.
const Overlap = 24 * time.Hour

const (
	secretPrefix = "whsec_"
	minSecret    = 24 // bytes; receivers refuse less
	newSecret    = 32 // bytes, as many as a signature has
)

// Secret signs an account's deliveries. Like every secret.String it cannot be
// printed; Reveal gives its text, "whsec_" and base64. The zero value signs
// nothing.
type Secret struct{ secret.String }

// NewSecret makes one of 32 bytes from random, crypto/rand's reader if nil. It
// fails if random does.
func NewSecret(random io.Reader) (Secret, error) {
	if random == nil {
		random = rand.Reader
	}
	var key [newSecret]byte
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return Secret{}, fmt.Errorf("no webhook secret was made, for lack of random bytes: %w", err)
	}
	return Secret{secret.New(secretPrefix + base64.StdEncoding.EncodeToString(key[:]))}, nil
}

// ParseSecret reads a secret's text. The error never holds it.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return Secret{}, errors.New("a webhook secret begins with " + secretPrefix)
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	// Some receivers take only what encoding gives: no line ends, no surplus bits.
	case err != nil, base64.StdEncoding.EncodeToString(key) != encoded:
		return Secret{}, errors.New("a webhook secret is standard base64, padded, behind " + secretPrefix)
	case len(key) < minSecret:
		return Secret{}, fmt.Errorf("a webhook secret has at least %d bytes behind the base64, not %d", minSecret, len(key))
	}
	return Secret{secret.New(text)}, nil
}

// Key is what signs; nil for the zero value.
func (s Secret) Key() []byte {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.Reveal(), secretPrefix))
	if err != nil {
		return nil // made neither by NewSecret nor by ParseSecret
	}
	return key
}
