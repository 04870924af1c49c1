package upstream

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
)

// Failure is the cause inside a *fault.Error. It tells a Router what the end of an attempt
// means: whether to ask another channel, and how healthy the channel is. Drivers put one into
// every error that a vendor or the network caused; [Failure.Fault] makes that error.
type Failure struct {
	// Status is the vendor's HTTP status; 0 if there was none.
	Status int
	// Sent says that the request may have reached the vendor. Only if it is false is it certain
	// that nothing was billed.
	Sent bool
	// Unasked says that the call never went to the upstream, because it cannot be said in
	// the upstream's words. That is a property of the channel: a Router asks another one,
	// and counts nothing.
	Unasked bool
	// Refused says that the vendor refused before any work, so that nothing was
	// billed (429, 503, 529).
	Refused bool
	// Stated says that the vendor itself answered a 500, in the form of its own errors: it
	// failed, and did not take the work. A 500 of another form may come from a proxy in front of
	// a vendor that goes on.
	Stated bool
	// Fatal says that the operator has to mend something before any call can go through.
	// It is the credentials or the account (401, 403, quota, arrears), or the way to the
	// vendor (407, 421, 426).
	Fatal bool
	// Ambiguous marks a Fatal failure that only the status shows. Vendors also answer 401, 402
	// or 403 to a request that they refuse for its content. So only failures of two accounts
	// show that the channel is unusable.
	Ambiguous bool
	// Oversized says that a Refused request exceeds the vendor's rate limit by its own size.
	// Waiting does not help it, and others are not concerned.
	Oversized bool
	// NoModel says that the vendor does not have the model, or not for the operator's account.
	// The key and the channel's other models are not concerned.
	NoModel bool
	// OtherKey says that the vendor refused or paused a key, and that another key of the
	// operator can serve. The same channel can be asked again at once.
	OtherKey bool
	// Key is the [Key.ID] of the key that the call was made with; set by [Key.Report].
	Key string
	// Err is the transport's error or the vendor's text, secrets masked.
	Err error
}

// FromStatus returns the failure that an HTTP status means by itself. A driver that reads the
// body may know better.
func FromStatus(status int) *Failure {
	return &Failure{
		Status: status, Sent: true, Refused: unbilledStatuses[status],
		Fatal: accountStatuses[status] || misroutedStatuses[status], Ambiguous: accountStatuses[status],
	}
}

// Stated reports whether a status and a code, in the form of a vendor's own errors, say
// that it failed ([Failure.Stated]). A code that tells of a time-out leaves open what
// becomes of the request.
func Stated(status int, code string) bool {
	return status == http.StatusInternalServerError && code != "" && !strings.Contains(strings.ToLower(code), "timeout")
}

// BadAnswer returns the error of a 200 answer that is malformed, empty, cut or too large.
// Another channel may be tried. The message is for the client; the cause, which may be nil, is
// for the log.
func BadAnswer(message string, cause error) *fault.Error {
	return fault.Wrap(fault.BadGateway, message, &Failure{Status: http.StatusOK, Sent: true, Err: cause})
}

// Error describes the failure for the log.
func (f *Failure) Error() string {
	s := "upstream"
	switch {
	case f.Unasked:
		s += " not asked"
	case f.Status != 0:
		s += " status " + strconv.Itoa(f.Status)
	}
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}

// Unwrap returns the transport's error.
func (f *Failure) Unwrap() error { return f.Err }

// Fault is the caller's error of the failure, without the vendor's text. Only for a
// 4xx that is the caller's own fault a driver knows more and makes its own error.
func (f *Failure) Fault() *fault.Error {
	code := f.code()
	e := fault.Wrap(code, messages[code], f)
	if f.Oversized {
		e.Message = oversized
	}
	if code == fault.InvalidRequest {
		e.Status = f.Status
	}
	return e
}

func (f *Failure) code() fault.Code {
	code, listed := statusCodes[f.Status]
	switch {
	case f.Fatal, f.Status == 0 && !f.Sent:
		return fault.NoChannel
	case listed:
		return code
	case CallersFault(f.Status):
		return fault.InvalidRequest
	}
	return fault.BadGateway
}

// CallersFault reports whether a vendor's status says that the caller's request
// is wrong: a 4xx does, unless the table below has another code for it.
func CallersFault(status int) bool {
	_, listed := statusCodes[status]
	return status >= 400 && status < 500 && !listed
}

// statusCodes is the table from a vendor's status to ours. A 502, a status that is not listed
// and a broken connection are all a bad answer. So is a 4xx about what the gateway alone
// decides: the method, the path, the headers and the conditions of its request. No caller can
// mend that.
var statusCodes = map[int]fault.Code{
	http.StatusMethodNotAllowed:             fault.BadGateway,
	http.StatusNotAcceptable:                fault.BadGateway,
	http.StatusProxyAuthRequired:            fault.NoChannel,
	http.StatusRequestTimeout:               fault.RequestTimeout,
	http.StatusLengthRequired:               fault.BadGateway,
	http.StatusPreconditionFailed:           fault.BadGateway,
	http.StatusRequestURITooLong:            fault.BadGateway,
	http.StatusRequestedRangeNotSatisfiable: fault.BadGateway,
	http.StatusExpectationFailed:            fault.BadGateway,
	http.StatusMisdirectedRequest:           fault.NoChannel,
	http.StatusFailedDependency:             fault.BadGateway, // "the request failed during generation"
	http.StatusTooEarly:                     fault.ServiceUnavailable,
	http.StatusUpgradeRequired:              fault.NoChannel,
	http.StatusPreconditionRequired:         fault.BadGateway,
	http.StatusTooManyRequests:              fault.UpstreamRateLimit,
	http.StatusRequestHeaderFieldsTooLarge:  fault.BadGateway,
	499:                                     fault.BadGateway, // the client of the vendor's own proxy left
	http.StatusInternalServerError:          fault.InternalServerError,
	http.StatusServiceUnavailable:           fault.ServiceUnavailable,
	http.StatusGatewayTimeout:               fault.RequestTimeout,
	529:                                     fault.ServiceUnavailable, // "overloaded"
}

// unbilledStatuses are those by which a vendor refuses before any work.
var unbilledStatuses = map[int]bool{
	http.StatusTooEarly:           true,
	http.StatusTooManyRequests:    true,
	http.StatusServiceUnavailable: true,
	529:                           true,
}

// accountStatuses are those of credentials or an account that will not do.
var accountStatuses = map[int]bool{
	http.StatusUnauthorized:    true,
	http.StatusPaymentRequired: true,
	http.StatusForbidden:       true,
}

// misroutedStatuses are those of a call that did not reach the vendor properly, whatever
// it asks for and whichever account pays. A proxy wants credentials, the address is
// wrong, or the protocol is too old. The operator must fix that. (451 is the client's:
// vendors refuse content with it.)
var misroutedStatuses = map[int]bool{
	http.StatusProxyAuthRequired:  true,
	http.StatusMisdirectedRequest: true,
	http.StatusUpgradeRequired:    true,
}

const oversized = "The request is larger than the upstream's rate limit allows a single request to be. Send less at a time, or ask for fewer tokens."

var messages = map[fault.Code]string{
	fault.NoChannel:           "No upstream channel can serve the request at the moment. Try again later.",
	fault.UpstreamRateLimit:   "The upstream's rate limit is reached. Try again later.",
	fault.InternalServerError: "The upstream failed with an internal error.",
	fault.ServiceUnavailable:  "The upstream is overloaded or away. Try again later.",
	fault.RequestTimeout:      "The upstream did not answer in time.",
	fault.BadGateway:          "The upstream's answer was malformed or cut short.",
	fault.InvalidRequest:      "The upstream refused the request.",
}

// FailureOf is the Failure in err's chain; without one, the worst is assumed.
func FailureOf(err error) (f *Failure, found bool) {
	if errors.As(err, &f) {
		return f, true
	}
	return &Failure{Sent: true, Err: err}, false
}

// LimitOfStored reports whether err is a vendor's limit (429) of an operation on a response
// that it keeps. Such operations are free to the caller. Their limit counts neither against
// the key nor against the channel, because others make paid calls there.
func LimitOfStored(op Op, err error) bool {
	if op != ShowResponse && op != DeleteResponse && op != ListInput {
		return false
	}
	f, _ := FailureOf(err)
	return f.Status == http.StatusTooManyRequests && !f.Fatal
}

// NotSent is the refusal of a call that never goes to its upstream, because it cannot
// be put into the upstream's words ([Failure.Unasked]).
func NotSent(refusal *fault.Error) error {
	return refusal.With(func(e *fault.Error) { e.Err = &Failure{Unasked: true, Err: refusal.Err} })
}
