// Package seal encrypts what the gateway gives to clients or to a database and reads again
// later. Its keys are derived from the secrets of the deployment.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/tollhouse-ai/gateway/secret"
)

// Secrets are the secrets of a deployment, the same on all of its servers. The first one
// encrypts. All of them decrypt, so that a secret can be replaced while older data stays
// readable. They are safe for concurrent use.
type Secrets struct{ roots []secret.String }

// New returns the secrets, whose text should have at least 128 random bits. With none
// there is a random one: what it seals cannot be opened after a restart, nor by another
// server.
func New(secrets []secret.String) *Secrets {
	if len(secrets) == 0 {
		secrets = []secret.String{secret.New(rand.Text())}
	}
	return &Secrets{secrets}
}

// LastingKey is a key of 32 bytes for a purpose, derived from the last secret (RFC 5869).
// A new secret before that one does not change the key.
func (s *Secrets) LastingKey(purpose string) [32]byte {
	return derive(s.roots[len(s.roots)-1], purpose)
}

func derive(root secret.String, purpose string) (key [32]byte) {
	out, _ := hkdf.Key(sha256.New, []byte(root.Reveal()), nil, purpose, len(key)) // refuses only what is longer than 8,160 bytes
	copy(key[:], out)
	return key
}

// Seal encrypts data for an account by AES-256-GCM with a random nonce. Each account and
// purpose has its own key, so that data sealed for one cannot be opened for another.
func (s *Secrets) Seal(purpose, account string, data []byte) []byte {
	return aead(s.roots[0], purpose, account).Seal(nil, nil, data, nil)
}

// Open is the data that was sealed for the account; false if it was not, or by a secret
// that is no longer among these.
func (s *Secrets) Open(purpose, account string, sealed []byte) (data []byte, ok bool) {
	for _, root := range s.roots {
		if data, err := aead(root, purpose, account).Open(nil, nil, sealed, nil); err == nil {
			return data, true
		}
	}
	return nil, false
}

// SealText is [Secrets.Seal] as text that can stand in JSON, after a prefix that names
// its format.
func (s *Secrets) SealText(prefix, purpose, account string, data []byte) string {
	return prefix + base64.RawURLEncoding.EncodeToString(s.Seal(purpose, account, data))
}

// OpenText opens such a text.
func (s *Secrets) OpenText(prefix, purpose, account, text string) (data []byte, ok bool) {
	encoded, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return nil, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, false
	}
	return s.Open(purpose, account, sealed)
}

// aead is the cipher of an account and a purpose.
func aead(root secret.String, purpose, account string) cipher.AEAD {
	key := derive(root, purpose+"\x00"+account)
	block, _ := aes.NewCipher(key[:])             // takes every key of 32 bytes
	gcm, _ := cipher.NewGCMWithRandomNonce(block) // and this every cipher of AES
	return gcm
}
