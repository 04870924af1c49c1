package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

const (
	askChat       = `{"model":"m","messages":[{"role":"user","content":"say four words"}],"max_tokens":100}`
	askChatStream = `{"model":"m","messages":[{"role":"user","content":"say four words"}],"max_tokens":100,"stream":true}`
)

// chunk is one chunk of a recorded stream.
func chunk(delta string) string {
	return `data: {"id":"up-1","object":"chat.completion.chunk","created":7,"model":"vendor-m","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
}

func chatStream(usage string) string {
	return chunk(`{"role":"assistant","content":""}`) +
		chunk(`{"content":"one "}`) + chunk(`{"content":"two "}`) +
		chunk(`{"content":"three "}`) + chunk(`{"content":"four"}`) +
		`data: {"id":"up-1","object":"chat.completion.chunk","created":7,"model":"vendor-m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		usage + "data: [DONE]\n\n"
}

func usageChunk(prompt, completion int) string {
	return fmt.Sprintf(`data: {"id":"up-1","object":"chat.completion.chunk","created":7,"model":"vendor-m","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n",
		prompt, completion, prompt+completion)
}

func chatAnswer(usage string) string {
	return `{"id":"up-1","object":"chat.completion","created":7,"model":"vendor-m","choices":[{"index":0,"message":{"role":"assistant","content":"one two three four"},"finish_reason":"stop"}]` + usage + `}`
}

// The estimates of the recorded answer: "say four words" with its quotes is 16
// characters and 4 tokens of overhead, so 8 tokens; the answer has 18 characters.
const (
	estimatedInput  = 8
	estimatedOutput = 5
)

// TestATranslatedStreamCutAtEveryByteCostsWhatWasDelivered has what the sweeps of
// internal/faultlab leave out: a vendor that speaks responses alone. Before the first event
// a cut is a 502 for nothing, after it an error event and the charge for what was complete.
// An event whose data line is whole counts, even without its blank line.
func TestATranslatedStreamCutAtEveryByteCostsWhatWasDelivered(t *testing.T) {
	text, last := strings.Join(responseEvents, ""), strings.TrimSpace(responseEvents[len(responseEvents)-1])
	for _, c := range []struct {
		op         upstream.Op
		body       string
		end, error string // of the client's
	}{
		{upstream.Messages, askMessageStream, messageEvent("message_stop", ""), "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":"},
		{upstream.ChatCompletion, askChatStream, "data: [DONE]\n\n", `data: {"error":{"message":`},
	} {
		step := 7
		switch {
		case longtest.Enabled():
			step = 1
		case testing.Short(): // as with the race detector, to which all cuts look alike
			step = 29
		}
		for at := 0; at < len(text); at += step {
			h := newTestGateway(t, answering{upstream.Responses, &scriptedUpstream{text: text[:at]}}, "1.00", nil)
			r, err := h.do(t.Context(), c.op, c.body)
			got := ""
			if err == nil {
				got = drain(t, r.Stream)
			}
			whole := strings.Contains(text[:at], last)
			switch {
			case err != nil:
				if !fault.Is(err, fault.BadGateway) {
					t.Fatalf("%s, cut at %d: %v", c.op, at, err)
				}
			case whole == strings.Contains(got, c.error) || whole && !strings.HasSuffix(got, c.end):
				t.Fatalf("%s, cut at %d: whole %v, but the client got %q", c.op, at, whole, got)
			}
			if want, got := responseStreamCost(text[:at]), h.spent(t); got != want {
				t.Fatalf("%s, cut at %d: spent %s, want %s", c.op, at, got, want)
			}
		}
	}
}

// wholeData are the data of the events in a cut stream that are JSON objects to their end.
func wholeData(text string) (all []string) {
	for line := range strings.Lines(text) {
		data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
		if ok && strings.HasSuffix(data, "}") && strings.Count(data, "{") == strings.Count(data, "}") {
			all = append(all, data)
		}
	}
	return all
}

// between is the text between two others; empty if the first is not there.
func between(text, before, after string) string {
	_, rest, _ := strings.Cut(text, before)
	found, _, _ := strings.Cut(rest, after)
	return found
}

// chatStreamCost is an independent account of what a cut stream delivered.
func chatStreamCost(text string) billing.Money {
	chars, usage := 0, false
	for _, data := range wholeData(text) {
		if strings.Contains(data, `"usage":{`) {
			usage = true
		}
		chars += len(between(data, `"content":"`, `"`))
	}
	switch {
	case usage:
		return micro(50)
	case chars == 0:
		return 0
	}
	return micro(estimatedInput + int64(chars+3)/4)
}

// responseStreamCost is an independent account of what a cut stream of a response delivered.
func responseStreamCost(text string) billing.Money {
	chars := 0
	for _, data := range wholeData(text) {
		if strings.Contains(data, `"output_tokens":30`) {
			return micro(50)
		}
		chars += len(between(data, `"delta":"`, `"`))
	}
	if chars == 0 {
		return 0
	}
	return micro(estimatedInput + int64(chars+3)/4)
}

// TestTimeOutsSettleWhatWasDelivered stalls the upstream in virtual time.
func TestTimeOutsSettleWhatWasDelivered(t *testing.T) {
	for _, c := range []struct {
		name, before string
		cost         int64
	}{
		{"no first byte", "", 0},
		{"idle after content", chunk(`{"content":"four"}`), estimatedInput + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, out := io.Pipe()
				if c.before != "" {
					go func() { _, _ = io.WriteString(out, c.before) }()
				}
				routing := newRouter(t, router.Channel{
					Name: "slow", Upstream: &scriptedUpstream{body: in}, Models: map[string]string{"*": "*"},
					Timeout: router.Timeouts{Headers: time.Minute, Idle: time.Minute, Total: time.Hour},
				})
				h := newTestGateway(t, routing, "1.00", nil)
				defer out.Close()
				r, err := h.ask(t.Context(), askChatStream)
				if err == nil {
					err = lastError(drain(t, r.Stream), r.Stream)
				}
				if f := fault.From(err); f == nil || f.Code != fault.RequestTimeout {
					t.Errorf("error %v", err)
				}
				if got := h.spent(t); got != micro(c.cost) {
					t.Errorf("spent %s, want %s", got, micro(c.cost))
				}
			})
		})
	}
}

func lastError(out string, s *gateway.Stream) error {
	if !strings.Contains(out, `data: {"error":{`) || strings.Contains(out, "[DONE]") {
		return errors.New("the stream did not end with an error event: " + out)
	}
	return s.Err()
}

func TestACallWithoutAFreeSlotAsksNobodyAndHoldsNothing(t *testing.T) {
	up := &scriptedUpstream{text: chatStream(usageChunk(20, 30))}
	h := newTestGateway(t, up, "1.00", func(o *gateway.Options) { o.Limiter = &auth.MemoryLimiter{} })
	ctx := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Key: "k", Limits: auth.Limits{MaxConcurrent: 1}})
	r, err := h.ask(ctx, askChatStream)
	must(t, err)
	held := h.balance(t).Held
	if _, err := h.ask(ctx, askChatStream); !fault.Is(err, fault.RateLimitExceeded) || up.count() != 1 || h.balance(t).Held != held {
		t.Errorf("%v, %d calls, %s held", err, up.count(), h.balance(t).Held)
	}
	drain(t, r.Stream)
	if r, err = h.ask(ctx, askChatStream); err != nil {
		t.Fatal(err)
	}
	drain(t, r.Stream)
}

// failing always ends as f says.
func failing(f upstream.Failure) upstream.Upstream {
	return upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) { return nil, f.Fault() })
}

// inOrder asks the upstreams one after the other: "c0", "c1", …
func inOrder(t *testing.T, ups ...upstream.Upstream) *router.Router {
	t.Helper()
	var channels []router.Channel
	for i, up := range ups {
		channels = append(channels, router.Channel{
			Name: "c" + string(rune('0'+i)), Upstream: up, Priority: i, Models: map[string]string{"m": "their-m"},
		})
	}
	return newRouter(t, channels...)
}

// tries are the failed ones that the ledger keeps of a request.
func (h *testGateway) tries(t *testing.T, id string) []billing.Attempt {
	t.Helper()
	_, tries, err := h.ledger.Request(t.Context(), id)
	must(t, err)
	return tries
}

func TestAFailedTryIsKeptWithTheReceiptAndItsWasteIsTheOperators(t *testing.T) {
	away := failing(upstream.Failure{Err: errors.New("refused")})
	good := &scriptedUpstream{text: chatAnswer(reported)}
	late := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return nil, fault.Wrap(fault.RequestTimeout, "The upstream did not answer in time.", &upstream.Failure{Sent: true})
	})
	unsent := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return nil, upstream.NotSent(fault.Invalid("n", "One candidate only."))
	})
	for name, c := range map[string]struct {
		ups    []upstream.Upstream // asked one after the other
		spent  int64
		tries  int // that are kept; the rest of the row is of the first
		code   fault.Code
		status int
		waste  int64
	}{
		"none failed":              {ups: []upstream.Upstream{good}, spent: 50},
		"no connection":            {[]upstream.Upstream{away, good}, 50, 1, fault.NoChannel, 0, 0},
		"its limit":                {[]upstream.Upstream{failing(upstream.Failure{Status: 429, Sent: true, Refused: true}), good}, 50, 1, fault.UpstreamRateLimit, 429, 0},
		"an error of its own":      {[]upstream.Upstream{failing(upstream.Failure{Status: 500, Sent: true}), good}, 50, 1, fault.InternalServerError, 500, 0},
		"a broken connection":      {[]upstream.Upstream{failing(upstream.Failure{Sent: true, Err: errors.New("reset")}), good}, 50, 1, fault.BadGateway, 0, estimatedInput},
		"a 200 with an error":      {[]upstream.Upstream{&scriptedUpstream{text: `{"error":{"message":"boom"}}`}, good}, 50, 1, fault.BadGateway, 200, estimatedInput},
		"its time ran out":         {[]upstream.Upstream{late}, 0, 1, fault.RequestTimeout, 0, estimatedInput},
		"half an answer":           {[]upstream.Upstream{&scriptedUpstream{text: chatAnswer("")[:60]}, good}, 50, 1, fault.BadGateway, 200, estimatedInput},
		"every channel failed":     {[]upstream.Upstream{away, away, away}, 0, 3, fault.NoChannel, 0, 0},
		"what it cannot be asked":  {ups: []upstream.Upstream{unsent}},
		"what one cannot be asked": {ups: []upstream.Upstream{unsent, good}, spent: 50},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestGateway(t, inOrder(t, c.ups...), "1.00", nil)
			x, err := h.ask(t.Context(), askChat)
			if got := h.spent(t); got != micro(c.spent) || (err == nil) != (c.spent > 0) {
				t.Errorf("%v, spent %s, want %s", err, got, micro(c.spent))
			}
			tries := h.tries(t, x.ID)
			if len(tries) != c.tries {
				t.Fatalf("kept %+v", tries)
			}
			if len(tries) == 0 {
				return
			}
			if a := tries[0]; a.Channel != "c0" || a.Model != "their-m" || a.Code != string(c.code) || a.Status != c.status ||
				a.Billable != (c.waste > 0) || a.Waste != micro(c.waste) {
				t.Errorf("kept %+v", a)
			}
			rows, err := h.ledger.Waste(t.Context(), billing.Query{Account: "local"})
			sum := billing.Money(0)
			for _, row := range rows {
				sum += row.Waste
			}
			if err != nil || sum != micro(c.waste) {
				t.Errorf("the report of the account has %+v, %v, want a waste of %s", rows, err, micro(c.waste))
			}
		})
	}
}
