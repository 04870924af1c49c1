// Package fault has the one error type that leaves any package of the gateway.
package fault

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Error says what went wrong, in terms of the API: the code, the request field at fault, and
// what would be right.
//
// Act on Code, never on Message: errors.Is(err, [InsufficientBalance]), for one. An Error is immutable once returned; use [Error.With] to
// derive another.
type Error struct {
	// Code is the word of the API's error table.
	Code Code
	// Message says what was wrong and what would be right. It is sent to the
	// caller, so it never holds a key, a prompt or an internal address.
	Message string
	// Param names the request field at fault in dotted form
	// ("messages[2].role"); empty when no single field is.
	Param string
	// Status replaces the HTTP status of Code's row when it is not zero.
	Status int
	// RetryAfter, when positive, is how long the caller should wait.
	RetryAfter time.Duration
	// Retry tells the SDKs whether to retry, where the status alone would
	// mislead them.
	Retry Retry
	// Body is an upstream's own error body in the public wire of the
	// endpoint; nil unless an upstream of the same dialect refused the request.
	Body []byte
	// Err is the cause. It is logged with secrets masked and never sent.
	Err error
}

// Retry is the advice of the x-should-retry header.
type Retry uint8

// The three kinds of advice.
const (
	RetryByStatus Retry = iota // no header: the status decides
	RetryYes                   // x-should-retry: true
	RetryNo                    // x-should-retry: false
)

// New returns an Error with a message for the caller.
func New(code Code, message string) *Error { return &Error{Code: code, Message: message} }

// Invalid returns an invalid_request_error (400) about one request field.
func Invalid(param, message string) *Error {
	return &Error{Code: InvalidRequest, Message: message, Param: param}
}

// Wrap returns an Error that keeps err as its cause.
func Wrap(code Code, message string, err error) *Error {
	return &Error{Code: code, Message: message, Err: err}
}

// From turns any error into an Error. nil stays nil, and an *Error in err's chain is returned
// as it is. A [Code] of the gateway's own becomes an Error with it. A cancelled context becomes
// [ClientGone], an expired one [RequestTimeout]. Everything else becomes an [InternalError] whose message does not mention the cause.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	var code Code
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &code) && code.Known():
		return Wrap(code, "The request failed: "+string(code)+".", err)
	case errors.Is(err, context.Canceled):
		return Wrap(ClientGone, "The client closed the connection before the answer was complete.", err)
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(RequestTimeout, "The request ran out of time.", err)
	default:
		return Wrap(InternalError, "The gateway failed to handle the request.", err)
	}
}

// FromPanic returns the internal error of a panic with the value p. Call it where the panic is
// recovered. The value may hold a secret, so value and stack are only in [Error.Err], for the
// log.
func FromPanic(p any) *Error {
	return Wrap(InternalError, "The gateway failed to handle the request.", fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
}

// Recover turns a panic into the error at err, by [FromPanic]. Defer it directly.
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = FromPanic(p)
	}
}

// Is reports whether the first Error in err's chain has the code. errors.Is(err, code) looks at
// all of them.
func Is(err error, code Code) bool {
	if err == nil { // without the allocation of errors.As
		return false
	}
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// Error returns the code and the message, and the cause where there is one.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Err != nil {
		s += " (" + e.Err.Error() + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the Error's code, for errors.Is.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && e.Code == code
}

// HTTPStatus is the status that the error is sent with.
func (e *Error) HTTPStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	return e.Code.HTTPStatus()
}

// With returns a copy of e changed by edit.
func (e *Error) With(edit func(*Error)) *Error {
	c := *e
	edit(&c)
	return &c
}
