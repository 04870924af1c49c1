package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// sickMeter fails or hangs at every extension.
type sickMeter struct {
	billing.Meter
	hang  bool
	asked atomic.Int64
}

func (m *sickMeter) Extend(ctx context.Context, _ billing.Hold, _ billing.Usage, _ billing.Money) error {
	m.asked.Add(1)
	if m.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("the database is away")
}

// TestAMeterThatIsAwayEndsNoStream has a model that says more than was held.
func TestAMeterThatIsAwayEndsNoStream(t *testing.T) {
	for name, hang := range map[string]bool{"fails": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := strings.Repeat(chunk(`{"content":"abcd"}`, ""), 3_000) + usageChunk(1, 3_000) + "data: [DONE]\n\n"
				meter := &sickMeter{hang: hang}
				h := newHouse(t, &scripted{text: text}, "1.00", func(o *gateway.Options) {
					meter.Meter, o.Meter = o.Meter, meter
					o.Models = []gateway.Model{{ID: "m", HoldTokens: 100, MaxOutput: 10_000}}
				})
				_, r, err := h.ask(t.Context(), strings.Replace(askStream, `"max_tokens":100,`, "", 1))
				if err != nil {
					t.Fatal(err)
				}
				out := drain(t, r.Stream)
				if strings.Contains(out, `"length"`) || !strings.HasSuffix(out, "data: [DONE]\n\n") {
					t.Errorf("the stream ends with %q", out[len(out)-200:])
				}
				if got := h.spent(t, "1.00"); got != micro(3_001) {
					t.Errorf("spent %s", got)
				}
				if n := meter.asked.Load(); n < 1 || n > 5 {
					t.Errorf("the meter was asked %d times", n)
				}
			})
		})
	}
}

func TestAnErrorInA200TellsNeitherCallerNorLogWhatTheVendorSaid(t *testing.T) {
	const said = "Incorrect API key provided: sk-OPERATOR. You wrote: my prompt."
	frame := `{"error":{"message":"` + said + `","code":"invalid_api_key"}}`
	for name, c := range map[string]struct {
		text, ask string
		code      fault.Code
	}{
		"answer":        {frame, askWhole, fault.NoChannel},
		"first frame":   {"data: " + frame + "\n\n", askStream, fault.NoChannel},
		"later frame":   {chunk(`{"content":"x"}`, "") + "data: " + frame + "\n\n", askStream, fault.BadGateway},
		"event: error ": {chunk(`{"content":"x"}`, "") + "event: error\ndata: " + frame + "\n\n", askStream, fault.BadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			h := newHouse(t, &scripted{text: c.text}, "1.00", func(o *gateway.Options) {
				o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
			})
			x, r, err := h.ask(t.Context(), c.ask)
			out := ""
			if err == nil {
				out = drain(t, r.Stream)
				err = r.Stream.Err()
			}
			x.End(t.Context(), 0, err)
			if !fault.Is(err, c.code) {
				t.Errorf("error %v, want %s", err, c.code)
			}
			for _, never := range []string{"OPERATOR", "my prompt"} {
				if all := out + fault.From(err).Message + log.String(); strings.Contains(all, never) {
					t.Errorf("%q is told: %s", never, all)
				}
			}
			if !strings.Contains(log.String(), "invalid_api_key") {
				t.Errorf("the log lacks the vendor's code: %s", log.String())
			}
		})
	}
}

func TestAVendorsRefusalIsLoggedWithoutItsText(t *testing.T) {
	var log bytes.Buffer
	refusal := &fault.Error{Code: fault.InvalidRequest, Status: 400, Message: "Unsafe input: 'my prompt'",
		Err: &upstream.Failure{Status: 400, Sent: true, Err: errors.New("Unsafe input: 'my prompt'")}}
	h := newHouse(t, &scripted{err: refusal}, "1.00", func(o *gateway.Options) {
		o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	})
	x, _, err := h.ask(t.Context(), askWhole)
	x.End(t.Context(), 400, err)
	if strings.Contains(log.String(), "my prompt") || !strings.Contains(log.String(), "upstream status 400") {
		t.Errorf("log %s", log.String())
	}
}

// TestCloseSettlesAStreamThatNobodyReads must not wait for its reader.
func TestCloseSettlesAStreamThatNobodyReads(t *testing.T) {
	for name, end := range map[string]func(*house, context.CancelFunc) error{
		"close":            func(h *house, _ context.CancelFunc) error { return h.Close() },
		"its context ends": func(h *house, cancel context.CancelFunc) error { cancel(); return h.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, out := io.Pipe()
				h := newHouse(t, &scripted{body: in}, "1.00", nil)
				go func() { _, _ = io.WriteString(out, chunk(`{"content":"four"}`, "")) }()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s, err := h.ChatStream(ctx, &chat.Request{Model: "m", MaxTokens: 100,
					Messages: []chat.Message{{Role: "user", Content: chat.Text("say four words")}}})
				if err != nil {
					t.Fatal(err)
				}
				if err := end(h, cancel); err != nil {
					t.Fatal(err)
				}
				if r, ok := s.Receipt(); !ok || r.Status == "" {
					t.Errorf("receipt %+v, %v", r, ok)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestACallerWhoLeavesAVendorThatRefusedPaysNothing(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		hangUp()
		return nil, (&upstream.Failure{Status: 429, Sent: true, Refused: true}).Fault()
	})
	h := newHouse(t, up, "1.00", nil)
	if _, _, err := h.ask(ctx, askWhole); err == nil {
		t.Fatal("no error")
	}
	if got := h.spent(t, "1.00"); got != 0 {
		t.Errorf("spent %s", got)
	}
}

func TestAModelThatWillBeWithdrawnSaysWhen(t *testing.T) {
	day := time.Date(2100, 1, 31, 0, 0, 0, 0, time.UTC)
	h := newHouse(t, &scripted{text: whole("")}, "1.00", func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "m", Withdrawn: day}}
	})
	_, r, err := h.ask(t.Context(), askWhole)
	if err != nil {
		t.Fatal(err)
	}
	if r.Header.Get("Sunset") != "Sun, 31 Jan 2100 00:00:00 GMT" || !strings.HasPrefix(r.Header.Get("Deprecation"), "@") {
		t.Errorf("headers %v", r.Header)
	}
}
