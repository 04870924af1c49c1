package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/secret"
)

// Overlap is how long the secret before the current one signs, too.
const Overlap = 24 * time.Hour

const (
	secretPrefix = "whsec_"
	leastSecret  = 24 // bytes; receivers refuse less
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
	case len(key) < leastSecret:
		return Secret{}, fmt.Errorf("a webhook secret has at least %d bytes behind the base64, not %d", leastSecret, len(key))
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
