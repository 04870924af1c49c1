package messages

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestAHeartbeatIsAPing(t *testing.T) {
	if got := string(tapped(t).Heartbeat([]byte("> "))); got != "> event: ping\ndata: {\"type\":\"ping\"}\n\n" {
		t.Errorf("%q", got)
	}
}

// TestAStreamCutAnywhereIsAWholeMessage cuts a stream short after each of its
// events: what the client got is always a message that a client accepts.
func TestAStreamCutAnywhereIsAWholeMessage(t *testing.T) {
	events := conversation()
	for n := 0; n < len(events); n++ {
		tap := tapped(t)
		got := pass(t, tap, events[:n]...)
		got += string(tap.CutShort(nil)) + tap.Terminator()
		m, err := accumulated(got)
		if err != nil {
			t.Errorf("after %d events: %v\n%s", n, err, got)
			continue
		}
		opened, closed := strings.Count(got, "event: content_block_start"), strings.Count(got, "event: content_block_stop")
		reason, once := "max_tokens", strings.Count(got, `"stop_reason":"`)
		if n == len(events)-1 {
			reason = "end_turn"
		}
		if m.StopReason == nil || *m.StopReason != reason || once != 1 || opened != closed || m.Model != "public" {
			t.Errorf("after %d events: %+v\n%s", n, m, got)
		}
		if u := tap.Usage(); m.Usage.OutputTokens != u.Output || m.Usage.InputTokens != u.Input {
			t.Errorf("after %d events: the client is told %+v, and is charged %+v", n, m.Usage, u)
		}
		if again := tap.CutShort(nil); len(again) > 0 {
			t.Errorf("after %d events: cut twice: %s", n, again)
		}
	}
}

func TestAMessageThatNeverBeganIsBegunToBeCutShort(t *testing.T) {
	tap := tapped(t)
	input := tap.Usage().Input
	want := wire{"message_start", fmt.Sprintf(`{"type":"message_start","message":{"id":"msg_minted","type":"message","role":"assistant","model":"public","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}`, input)}.String() +
		wire{"message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}`, input)}.String()
	if diff := cmp.Diff(want, string(tap.CutShort(nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := string(asked(t).NewTap(TapOptions{}).CutShort(nil)); !strings.Contains(got, `"id":""`) {
		t.Errorf("without a NewID: %s", got)
	}
}

func TestEveryOpenBlockIsClosedInOrder(t *testing.T) {
	tap := tapped(t)
	pass(t, tap, starts, opensTool, opensText, writes("a"))
	got := string(tap.CutShort(nil))
	if want := closes0.String() + closes1.String() + "event: message_delta\n"; !strings.HasPrefix(got, want) {
		t.Error(got)
	}
}

func TestAnErrorOfTheUpstreamKeepsItsWords(t *testing.T) {
	for kind, want := range map[string]fault.Code{
		"overloaded_error": fault.ServiceUnavailable, "rate_limit_error": fault.UpstreamRateLimit, "api_error": fault.InternalServerError,
		"timeout_error": fault.RequestTimeout, "invalid_request_error": fault.InvalidRequest, "request_too_large": fault.RequestTooLarge,
	} {
		data := `{"type":"error","error":{"type":"` + kind + `","message":"Vendor's words."},"request_id":"theirs"}`
		for _, name := range []string{"error", ""} {
			tap := tapped(t)
			pass(t, tap, starts)
			out, done, err := tap.Event(nil, name, []byte(data))
			var f *fault.Error
			var cause *upstream.Failure
			if !errors.As(err, &f) || !errors.As(err, &cause) || f.Code != want || f.Message != "Vendor's words." || cause.Status != 200 || !cause.Sent || cause.Fatal || len(out) > 0 || done {
				t.Errorf("%s: %q, %t, %v", kind, out, done, err)
			}
			if strings.Contains(cause.Error(), "words") {
				t.Errorf("%s: the log gets %s", kind, cause)
			}
			if event := string(ErrorEvent(nil, "req_1", f)); !strings.HasPrefix(event, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\""+ErrorType(want.HTTPStatus())+`","message":"Vendor's words.","code":"`+string(want)+`"},"request_id":"req_1"}`) {
				t.Error(event)
			}
		}
	}
}

func TestAnErrorOfTheOperatorsIsHidden(t *testing.T) {
	for data, fatal := range map[string]bool{
		`{"type":"error","error":{"type":"authentication_error","message":"secret"}}`:                                 true,
		`{"type":"error","error":{"type":"permission_error","message":"secret"}}`:                                     true,
		`{"type":"error","error":{"type":"billing_error","message":"secret"}}`:                                        true,
		`{"type":"error","error":{"type":"invalid_request_error","message":"Your Credit Balance is too low secret"}}`: true,
		`{"type":"error","error":{"type":"not_found_error","message":"secret"}}`:                                      false,
		`{"type":"error","error":{"type":"secret text","message":"secret"}}`:                                          false,
		`{"type":"error","error":{"type":"api_error","message":7}}`:                                                   false,
		`{"type":"error","error":"secret"}`:                                                                           false,
		`{"type":"error"}`:                                                                                            false,
	} {
		_, _, err := tapped(t).Event(nil, "error", []byte(data))
		var f *fault.Error
		var cause *upstream.Failure
		if !errors.As(err, &f) || !errors.As(err, &cause) || f.Code != fault.BadGateway || strings.Contains(err.Error(), "secret") || cause.Fatal != fatal {
			t.Errorf("%s: %v", data, err)
		}
	}
}

func TestWhatIsNotOneObjectNeverPasses(t *testing.T) {
	for _, data := range []string{``, `[]`, `null`, `[DONE]`, `{"type":"ping"`, `{"type":"ping"}{}`, `<html>`} {
		out, done, err := tapped(t).Event(nil, "ping", []byte(data))
		if len(out) > 0 || done || !fault.Is(err, fault.BadGateway) {
			t.Errorf("%s: %q, %t, %v", data, out, done, err)
		}
	}
}

func TestErrorsHaveTheVendorsNames(t *testing.T) {
	for status, want := range map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error", 405: "invalid_request_error",
		413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 502: "api_error", 503: "overloaded_error", 504: "timeout_error", 529: "overloaded_error",
	} {
		if got := ErrorType(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
	}
	body := string(ErrorBody("req_1", fault.New(fault.InsufficientBalance, "Pay <now>.")))
	if want := `{"type":"error","error":{"type":"billing_error","message":"Pay <now>.","code":"insufficient_balance"},"request_id":"req_1"}`; body != want {
		t.Error(body)
	}
	if body := string(ErrorBody("req_1", fault.New(fault.BadGateway, "\xff"))); !strings.Contains(body, `"message":"`) {
		t.Error(body)
	}
	if slices.ContainsFunc(vendorTypes, func(v struct {
		name string
		code fault.Code
	}) bool {
		return ErrorType(v.code.HTTPStatus()) != v.name
	}) {
		t.Error("a vendor's error changes its type on the way through")
	}
}
