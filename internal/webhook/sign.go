package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
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
