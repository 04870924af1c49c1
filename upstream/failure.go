package upstream

import (
	"net/http"
	"strconv"

	"github.com/tollhouse-ai/gateway/fault"
)

// Failure is the cause inside a *fault.Error that tells a Router what an
// attempt's end means: whether another channel may be asked, and how the
// channel is. Drivers put one into every error that a vendor or the network
// caused; [Failure.Fault] makes that error.
type Failure struct {
	// Status is the vendor's HTTP status; 0 if there was none.
	Status int
	// Sent says that the request may have reached the vendor. Only where it is
	// false is it certain that nothing was billed.
	Sent bool
	// Refused says that the vendor refused before any work, so that nothing was
	// billed (429, 503, 529).
	Refused bool
	// Fatal says that the operator's credentials or account are at fault (401,
	// 403, quota, arrears).
	Fatal bool
	// Err is the transport's error or the vendor's text, secrets masked.
	Err error
}

// Error describes the failure for the log.
func (f *Failure) Error() string {
	s := "upstream"
	if f.Status != 0 {
		s += " status " + strconv.Itoa(f.Status)
	}
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}

// Unwrap returns the transport's error.
func (f *Failure) Unwrap() error { return f.Err }

// Fault is the failure as the caller is told of it (decisions.md, Error
// bodies), without a word of the vendor's. Only for a 4xx that is the caller's
// own fault a driver knows better and makes its own error.
func (f *Failure) Fault() *fault.Error {
	code := f.code()
	e := fault.Wrap(code, messages[code], f)
	if code == fault.InvalidRequest {
		e.Status = f.Status
	}
	return e
}

func (f *Failure) code() fault.Code {
	code, listed := codes[f.Status]
	switch {
	case f.Fatal, f.Status == 0 && !f.Sent:
		return fault.NoChannel
	case listed:
		return code
	case f.Status >= 400 && f.Status < 500:
		return fault.InvalidRequest
	}
	return fault.BadGateway
}

// codes is the table from a vendor's status to ours; 502, a status that is not
// listed and a connection that broke are all a bad answer.
var codes = map[int]fault.Code{
	http.StatusRequestTimeout:      fault.RequestTimeout,
	http.StatusTooManyRequests:     fault.UpstreamRateLimit,
	http.StatusInternalServerError: fault.InternalServerError,
	http.StatusServiceUnavailable:  fault.ServiceUnavailable,
	http.StatusGatewayTimeout:      fault.RequestTimeout,
	529:                            fault.ServiceUnavailable, // "overloaded"
}

var messages = map[fault.Code]string{
	fault.NoChannel:           "No upstream channel can serve the request at the moment. Try again later.",
	fault.UpstreamRateLimit:   "The upstream's rate limit is reached. Try again later.",
	fault.InternalServerError: "The upstream failed with an internal error.",
	fault.ServiceUnavailable:  "The upstream is overloaded or away. Try again later.",
	fault.RequestTimeout:      "The upstream did not answer in time.",
	fault.BadGateway:          "The upstream's answer was malformed or cut short.",
	fault.InvalidRequest:      "The upstream refused the request.",
}
