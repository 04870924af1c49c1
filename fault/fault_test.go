package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
)

func TestEveryErrorThatLeavesHasACodeAndTellsNothingOfItsCause(t *testing.T) {
	cause := errors.New("secret cause")
	own := fault.Invalid("n", "n must be 1.")
	for _, c := range []struct {
		in     error
		code   fault.Code
		status int
	}{
		{own, fault.InvalidRequest, 400},
		{fmt.Errorf("wrapped: %w", own), fault.InvalidRequest, 400},
		{cause, fault.InternalError, 500},
		{context.Canceled, fault.ClientGone, 499},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), fault.RequestTimeout, 504},
		{own.With(func(e *fault.Error) { e.Status = 404 }), fault.InvalidRequest, 404},
		{fault.New("vendor_word", "x"), "vendor_word", 500},
		{fault.RateLimitExceeded, fault.RateLimitExceeded, 429},
		{fmt.Errorf("limits: %w", fault.BudgetExceeded), fault.BudgetExceeded, 402},
		{fault.Code("vendor_word"), fault.InternalError, 500},
	} {
		f := fault.From(c.in)
		if f.Code != c.code || f.HTTPStatus() != c.status {
			t.Errorf("%v: %s %d", c.in, f.Code, f.HTTPStatus())
		}
		if f.Message == "" || f.Message == cause.Error() {
			t.Errorf("%v: message %q", c.in, f.Message)
		}
		if !fault.Is(f, c.code) || !errors.Is(f, f) {
			t.Errorf("%v is not %s", f, c.code)
		}
	}
	if fault.From(nil) != nil {
		t.Error("nil became an error")
	}
	if own.HTTPStatus() != 400 {
		t.Error("With changed its receiver")
	}
	if !errors.Is(fault.Wrap(fault.BadGateway, "m", cause), cause) {
		t.Error("the cause is lost")
	}
}

func TestErrorsIsFindsTheCodesOfAChain(t *testing.T) {
	broke := fault.New(fault.InsufficientBalance, "The account has 0.")
	outer := fault.Wrap(fault.BadGateway, "The answer failed.", broke)
	for _, c := range []struct {
		name string
		err  error
		code fault.Code
		want bool
	}{
		{"its own code", broke, fault.InsufficientBalance, true},
		{"another code", broke, fault.BudgetExceeded, false},
		{"wrapped by fmt", fmt.Errorf("ask: %w", broke), fault.InsufficientBalance, true},
		{"one of several", errors.Join(io.EOF, broke), fault.InsufficientBalance, true},
		{"the outer of two", outer, fault.BadGateway, true},
		{"the inner of two", outer, fault.InsufficientBalance, true},
		{"a bare code", fmt.Errorf("limits: %w", fault.RateLimitExceeded), fault.RateLimitExceeded, true},
		{"a vendor's code", fault.New("content_policy", "No."), "content_policy", true},
		{"no fault", io.EOF, fault.InternalError, false},
		{"nil", nil, fault.InternalError, false},
	} {
		if got := errors.Is(c.err, c.code); got != c.want {
			t.Errorf("%s: errors.Is(%v, %s) is %t", c.name, c.err, c.code, got)
		}
	}
}

func TestTheTypeOfAnErrorBodyFollowsItsStatus(t *testing.T) {
	for status, want := range map[int]string{
		400: "invalid_request_error", 404: "invalid_request_error", 405: "invalid_request_error", 413: "invalid_request_error",
		415: "invalid_request_error", 401: "authentication_error", 402: "insufficient_balance", 403: "permission_error",
		409: "conflict_error", 429: "rate_limit_error", 500: "api_error", 502: "api_error", 503: "api_error", 504: "api_error",
	} {
		if got := fault.Type(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
	}
}

// A panic's value may be anything, a key of the operator's too.
func TestTheValueOfAPanicIsForTheLogAlone(t *testing.T) {
	err := func() (err error) {
		defer fault.Recover(&err)
		panic("sk-secret")
	}()
	f := fault.From(err)
	if f.Code != fault.InternalError || strings.Contains(f.Message, "sk-secret") {
		t.Errorf("the client gets %q: %s", f.Code, f.Message)
	}
	if text := err.Error(); !strings.Contains(text, "panic: sk-secret") || !strings.Contains(text, "fault_test.go") {
		t.Errorf("the log gets %q, without the value or the stack", text)
	}
	if err := func() (err error) { defer fault.Recover(&err); return nil }(); err != nil {
		t.Errorf("without a panic: %v", err)
	}
}
