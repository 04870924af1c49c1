package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"syscall"

	"github.com/tollhouse-ai/gateway/internal/public"
)

// Outcome is what became of one try.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered" // a 2xx answer
	Gone      Outcome = "gone"      // a 410 answer: the receiver wants no more tries
	Retry     Outcome = "retry"     // anything else that went wrong
	// Refused is an address that no notice goes to. It is tried again like any
	// failure: a name may stand for another address by then.
	Refused Outcome = "refused"
)

// Result is what became of one try.
type Result struct {
	Outcome Outcome
	Status  int // of the answer; 0 if none came
	// Reason says for an operator why the notice was not delivered. It is made of
	// our own words: it has no byte of the body, a secret, the address or the
	// answer in it.
	Reason string
}

// answered is the result of an answer's status.
func answered(status int) Result {
	said := "the receiver answered with " + strconv.Itoa(status)
	switch {
	case status >= 200 && status <= 299:
		return Result{Outcome: Delivered, Status: status}
	case status == http.StatusGone:
		return Result{Gone, status, said + ": it wants no more tries"}
	case status >= 300 && status <= 399:
		return Result{Retry, status, said + ": redirects are not followed"}
	}
	return Result{Retry, status, said}
}

// unanswered is the result of a request that failed. The texts of errors may hold
// bytes of the answer or the address, so their kinds alone are told.
func unanswered(err error) Result {
	var closed *public.Inside
	if errors.As(err, &closed) {
		return Result{Outcome: Refused, Reason: closed.Error()}
	}
	return Result{Outcome: Retry, Reason: reason(err)}
}

func reason(err error) string {
	var (
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		alert       tls.AlertError
		record      tls.RecordHeaderError
		op          *net.OpError
		timeout     net.Error
	)
	switch {
	case errors.Is(err, context.Canceled):
		return "the gateway stopped before an answer came"
	case errors.As(err, &name) && name.IsNotFound:
		return "the host's name is not known"
	case errors.As(err, &name):
		return "the host's name could not be looked up"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer came in time"
	case errors.As(err, &certificate):
		return "the host's certificate is not valid for it, or nobody known signed it"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the host does not speak TLS"
	case errors.As(err, &alert):
		return "the host broke off the TLS handshake"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the host refused the connection"
	case errors.As(err, &op) && op.Op == "dial":
		return "the host could not be reached"
	}
	return "the host broke off the connection, or its answer was not HTTP"
}
