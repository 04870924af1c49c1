package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
)

const (
	tokenPrefix = "sk-"
	idPrefix    = "key_"
	hashPrefix  = "sha256:"

	tokenBytes = 30 // 240 random bits, 48 letters
	idBytes    = 10 // 16 letters
)

// Key is a record of an API key. It has only the SHA-256 of the key, so it may be printed and
// logged.
//
// A Key from a [KeyStore] is shared: read it, never change it.
type Key struct {
	ID       string    `json:"id"`      // names the key in logs, usage and commands
	Account  string    `json:"account"` // whose balance pays
	Name     string    `json:"name,omitzero"`
	Hash     [32]byte  `json:"-"`                // see HashOf
	Models   []string  `json:"models,omitempty"` // public model ids; empty means all
	Limits   Limits    `json:"limits,omitzero"`  // unset ones fall back to the defaults
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"` // first moment at which it is refused; zero means never
	Disabled bool      `json:"disabled,omitzero"`
}

// KeyOptions say what a new key is for. Only Account must be set.
type KeyOptions struct {
	Account string
	Name    string
	Models  []string  // public model ids that the key may use; empty means all
	Limits  Limits    // unset ones fall back to the defaults
	Expires time.Time // zero means never

	Now    func() time.Time // the clock; nil means time.Now
	Random io.Reader        // source of the key; nil means crypto/rand.Reader
}

// NewKey mints a key: the record to store and the secret for its holder. The secret exists
// nowhere else, so it can be shown only now.
//
// It fails with fault.InvalidRequest if the options make no usable key, and with
// fault.InternalError if Random fails.
func NewKey(o KeyOptions) (Key, secret.String, error) {
	now := clock(o.Now).UTC()
	if err := o.check(now); err != nil {
		return Key{}, secret.String{}, err
	}
	random := o.Random
	if random == nil {
		random = rand.Reader
	}
	var bits [tokenBytes + idBytes]byte
	if _, err := io.ReadFull(random, bits[:]); err != nil {
		return Key{}, secret.String{}, fault.Wrap(fault.InternalError, "No random numbers could be read to make a key.", err)
	}
	token := tokenPrefix + letters(bits[:tokenBytes])
	return Key{
		ID:      idPrefix + letters(bits[tokenBytes:]),
		Account: o.Account,
		Name:    o.Name,
		Hash:    HashOf(token),
		Models:  slices.Clone(o.Models),
		Limits:  o.Limits,
		Created: now,
		Expires: o.Expires,
	}, secret.New(token), nil
}

// check refuses options that make a key of no use.
func (o *KeyOptions) check(now time.Time) error {
	if o.Account == "" {
		return fault.Invalid("account", "A key needs the name of the account that pays for it.")
	}
	if !o.Expires.IsZero() && !o.Expires.After(now) {
		return fault.Invalid("expires", "A key must expire in the future.")
	}
	for _, l := range []struct {
		name  string
		value int64
	}{
		{"rpm", o.Limits.RPM},
		{"tpm", o.Limits.TPM},
		{"max_concurrent", o.Limits.MaxConcurrent},
		{"max_concurrent_videos", o.Limits.MaxConcurrentVideos},
	} {
		if l.value < 0 {
			return fault.Invalid(l.name, fmt.Sprintf("%s must be 0 (no limit of its own) or more, not %d.", l.name, l.value))
		}
	}
	return nil
}

// HashOf is what is stored of a key: the SHA-256 of the whole token, prefix
// included. Tokens carry 240 random bits, so a slow hash would add nothing.
func HashOf(token string) [32]byte {
	var buf [128]byte // keeps a token of the usual length off the heap
	return sha256.Sum256(append(buf[:0], token...))
}

// ParseHash reads a hash in its written form, "sha256:" and 64 hexadecimal
// digits. It fails with fault.InvalidRequest.
func ParseHash(s string) ([32]byte, error) {
	var hash [32]byte
	digits, ok := strings.CutPrefix(s, hashPrefix)
	if !ok || len(digits) != hex.EncodedLen(len(hash)) {
		return hash, badHash()
	}
	if _, err := hex.Decode(hash[:], []byte(digits)); err != nil {
		return [32]byte{}, badHash()
	}
	return hash, nil
}

// badHash does not repeat the text: it may be a key in the wrong place.
func badHash() error {
	return fault.Invalid("hash", `A key's hash is written "sha256:" and the 64 hexadecimal digits of the SHA-256 of the key.`)
}

// IDOf derives an id from a hash. Keys written in a file need it, so that they keep their id
// from one start to the next. The id reveals no more of the key than the hash does.
func IDOf(hash [32]byte) string {
	again := sha256.Sum256(hash[:])
	return idPrefix + letters(again[:idBytes])
}

// expired reports whether the key's time is over at now.
func (k *Key) expired(now time.Time) bool {
	return !k.Expires.IsZero() && !now.Before(k.Expires)
}

// letters spells b in lower-case letters and digits that survive a double
// click, a URL and being read aloud.
func letters(b []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// clock reads now, or the real clock where now is nil.
func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// KeyStore finds keys. [Keys] asks it once for every request.
type KeyStore interface {
	// Find returns the key with a hash, disabled and expired ones too. It
	// fails with fault.NotFound for a hash that no key has; any other error
	// means that the store cannot say. The Key is shared: callers do not
	// change it. Safe for concurrent use.
	Find(ctx context.Context, hash [32]byte) (*Key, error)
}

// KeyNames is a store of keys that remembers how they were called. The admin API asks a
// [KeyAdmin] for it.
type KeyNames interface {
	// Names returns the names of keys by id, deleted keys included. It leaves out ids without a
	// name.
	Names(ctx context.Context, ids []string) (map[string]string, error)
}

// KeyAdmin changes the keys of a store. Implementations are safe for
// concurrent use; a change is seen by every later Find of the same process.
type KeyAdmin interface {
	// Add stores a key. It fails with fault.InvalidRequest if the key has no
	// id, account or hash, or if another key has the same id or hash.
	Add(ctx context.Context, k Key) error
	// SetDisabled turns a key off or on; fault.NotFound if there is none.
	SetDisabled(ctx context.Context, id string, disabled bool) error
	// Delete removes a key for good; fault.NotFound if there is none.
	Delete(ctx context.Context, id string) error
	// List returns copies of the keys of an account, or of all accounts where
	// it is empty, the oldest first.
	List(ctx context.Context, account string) ([]Key, error)
	// Page is a part of List: at most limit keys that List has after the key with the id
	// after. An empty after begins with the oldest. It fails with fault.InvalidRequest if
	// there is no such key (any more).
	Page(ctx context.Context, account, after string, limit int) ([]Key, error)
}
