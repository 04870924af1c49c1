package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/secret"
)

// The headers of Standard Webhooks, as net/http spells them.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// version is that of signatures with a shared secret.
const version = "v1,"

// Tolerance is how far a notice's time may be from the receiver's clock.
const Tolerance = 300 * time.Second

// Sign gives the three headers of a notice: its id, the time of this try in Unix
// seconds, and a signature by each secret, in their order. Two secrets sign while
// one replaces the other.
func Sign(id string, at time.Time, body []byte, secrets ...Secret) http.Header {
	stamp := strconv.FormatInt(at.Unix(), 10)
	var signatures []string
	for _, s := range secrets {
		if key := s.key(); len(key) > 0 {
			signatures = append(signatures, version+base64.StdEncoding.EncodeToString(sum(key, id, stamp, body)))
		}
	}
	return http.Header{
		headerID: {id}, headerTimestamp: {stamp}, headerSignature: {strings.Join(signatures, " ")},
	}
}

func sum(key []byte, id, stamp string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + stamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Verify is the receiver's side: it fails unless one of the secrets signed the
// body at a time within Tolerance of now. How long it takes tells nothing about
// the right signature.
func Verify(header http.Header, body []byte, now time.Time, secrets ...Secret) error {
	id, stamp := header.Get(headerID), header.Get(headerTimestamp)
	if id == "" {
		return errors.New("the header webhook-id is missing")
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return errors.New("the header webhook-timestamp must be a time in Unix seconds")
	}
	if at := time.Unix(seconds, 0); at.Before(now.Add(-Tolerance)) || at.After(now.Add(Tolerance)) {
		return errors.New("the header webhook-timestamp is more than five minutes from now")
	}
	for given := range strings.FieldsSeq(header.Get(headerSignature)) {
		encoded, ok := strings.CutPrefix(given, version)
		signature, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil {
			continue
		}
		for _, s := range secrets {
			if key := s.key(); len(key) > 0 && hmac.Equal(signature, sum(key, id, stamp, body)) {
				return nil
			}
		}
	}
	return errors.New("no signature in the header webhook-signature is by a secret of ours")
}

// Overlap is how long the secret before the current one signs, too.
const Overlap = 24 * time.Hour

const (
	secretPrefix = "whsec_"
	minSecret    = 24 // bytes; receivers refuse less
	newSecret    = 32 // bytes, as many as a signature has
)

// Secret signs an account's notices. Like every secret.String it cannot be
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
	key, err := decode(encoded)
	switch {
	case err != nil:
		return Secret{}, errors.New("a webhook secret is standard base64, padded, behind " + secretPrefix)
	case len(key) < minSecret:
		return Secret{}, fmt.Errorf("a webhook secret has at least %d bytes behind the base64, not %d", minSecret, len(key))
	}
	return Secret{secret.New(text)}, nil
}

// decode takes only what encoding gives, since some receivers take nothing else.
func decode(encoded string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err == nil && base64.StdEncoding.EncodeToString(key) != encoded { // line ends and surplus bits are skipped in decoding
		err = errors.New("the base64 has characters that mean nothing")
	}
	return key, err
}

// key is what signs; nil for the zero value.
func (s Secret) key() []byte {
	key, err := decode(strings.TrimPrefix(s.Reveal(), secretPrefix))
	if err != nil {
		return nil // whoever made it otherwise than by New or Parse has no key
	}
	return key
}
