package operation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/chat"
	"github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// A token of output costs a hundred-thousandth, as of a model at 10 a million.
const perUnit = 100_000

// price is one of input and output tokens, a million each.
func price(t *testing.T, input, output string) *billing.Price {
	t.Helper()
	p, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: input}, billing.Rate{Unit: billing.Output, Amount: output})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// parsers are those of the conversations.
var parsers = map[string]func([]byte) (operation.Request, error){"chat": chat.Spec.Parse, "messages": messages.Spec.Parse, "responses": responses.Spec.Parse}

func parse(t *testing.T, endpoint, body string) operation.Request {
	t.Helper()
	r, err := parsers[endpoint]([]byte(body))
	if err != nil {
		t.Fatal(body, err)
	}
	if err := r.Check(&operation.Facts{}, nil, nothing{}); err != nil {
		t.Fatal(body, err)
	}
	return r
}

// nothing is what channels pass on that pass nothing on.
type nothing struct{}

func (nothing) Passes(string, string) bool { return false }

// sale is a balance, and requests for one model that run at once.
type sale struct {
	t      *testing.T
	ledger memory.Ledger
	price  *billing.Price
	facts  operation.Facts
	begun  int
	holds  []billing.Hold
	made   []int64 // output tokens of each
}

func newSale(t *testing.T, credit string, p *billing.Price, facts operation.Facts) *sale {
	t.Helper()
	s := &sale{t: t, ledger: memory.NewLedger(memory.LedgerOptions{}), price: p, facts: facts}
	amount, err := billing.ParseMoney(credit)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ledger.CreateAccount(t.Context(), "local", amount); err != nil {
		t.Fatal(err)
	}
	s.facts.HoldTokens = operation.DefaultHoldTokens
	return s
}

// begin holds for a request. limit is what its vendor is limited to of each candidate, 0 for
// the caller's own bound; the error is a 402.
func (s *sale) begin(r operation.Request) (limit int64, err error) {
	q := r.Quote(&s.facts, s.price, false)
	s.begun++
	h, err := s.ledger.Reserve(s.t.Context(), billing.HoldRequest{
		Account: "local", RequestID: fmt.Sprint("req_", s.begun), Price: s.price,
		Bound: q.Bound, Usual: q.Usual, Least: q.Least, Firm: q.Firm,
	})
	if err != nil {
		return 0, err
	}
	s.holds = append(s.holds, h)
	return q.MaxOutput(&h), nil
}

// end settles all, each with what its vendor made, and reports what they cost beyond the
// balance.
func (s *sale) end() (overrun billing.Money) {
	for i, h := range s.holds {
		r, err := s.ledger.Settle(s.t.Context(), h, billing.Usage{Output: s.made[i]}, billing.Outcome{Reason: billing.ReasonComplete})
		if err != nil {
			s.t.Fatal(err)
		}
		overrun += r.Overrun
	}
	s.holds, s.made = nil, nil
	return overrun
}

// TestAnswersAtOnceNeverCostMoreThanTheBalance has a vendor that makes as much as it may, or
// unasked tokens without a bound. What no bound reaches it is held for, or runs alone. A
// stream of a model that hides its reasoning, or whose bound is dropped, does not show what
// it costs.
func TestAnswersAtOnceNeverCostMoreThanTheBalance(t *testing.T) {
	const unbounded, tail = `{"model":"m","messages":[{"role":"user","content":"say a lot"}]`, `}`
	ask := func(members string) string { return unbounded + members + tail }
	all := operation.Dropped{MaxTokens: true}
	for _, c := range []struct {
		name     string
		endpoint string
		facts    operation.Facts
		credit   int64
		body     string
		calls    int
		granted  int
	}{
		// The first may make half of what the balance is worth, the others 4,096 each.
		{"an unknown cap", "chat", operation.Facts{}, 1, ask(``), 24, 14},
		{"an unknown cap, many", "chat", operation.Facts{}, 1, ask(``), 60, 14},
		{"a cap of 128,000", "chat", operation.Facts{MaxOutput: 128_000}, 1, ask(``), 24, 14},
		{"a cap of a million, many", "chat", operation.Facts{MaxOutput: 1 << 20}, 1, ask(``), 60, 14},
		{"a cap that many can have", "chat", operation.Facts{MaxOutput: 2_000}, 1, ask(``), 60, 50},
		{"two candidates", "chat", operation.Facts{}, 1, ask(`,"n":2`), 24, 8},
		{"a bound above what each can have", "chat", operation.Facts{}, 1, ask(`,"max_tokens":30000`), 24, 4},
		{"a message", "messages", operation.Facts{}, 1, ask(`,"max_tokens":30000`), 24, 4},
		{"a response", "responses", operation.Facts{}, 1, `{"model":"m","max_output_tokens":30000,"input":"x"}`, 24, 4},
		{"streams of a model that hides its reasoning", "chat", operation.Facts{MaxOutput: 128_000, HidesReasoning: true}, 1, ask(`,"stream":true`), 24, 14},
		{"streams whose caller hides the reasoning", "chat", operation.Facts{MaxOutput: 128_000}, 1, ask(`,"stream":true,"include_reasoning":false`), 24, 14},
		{"streams whose bound is dropped", "chat", operation.Facts{MaxOutput: 128_000, Dropped: all}, 1, ask(`,"stream":true`), 24, 1},
		{"a dropped bound, no balance for more than one", "chat", operation.Facts{Dropped: all}, 1, ask(`,"max_tokens":1`), 24, 1},
		{"a dropped bound, a balance for all", "chat", operation.Facts{Dropped: all}, 40, ask(`,"max_tokens":1`), 24, 24},
		{"a dropped bound that the caller does not send", "chat", operation.Facts{Dropped: all}, 1, ask(``), 24, 1},
		{"a dropped bound of the other name", "chat", operation.Facts{Dropped: operation.Dropped{MaxCompletionTokens: true}}, 1, ask(`,"max_completion_tokens":1`), 24, 1},
		{"a dropped bound of the name that a translation gives", "chat", operation.Facts{Dropped: all}, 1, ask(`,"max_completion_tokens":1`), 24, 1},
		{"a dropped bound of the name that responses have", "chat", operation.Facts{Dropped: operation.Dropped{MaxOutputTokens: true}}, 1, ask(`,"max_tokens":1`), 24, 1},
		{"another field is dropped", "chat", operation.Facts{Dropped: operation.Dropped{MaxCompletionTokens: true}}, 1, ask(`,"max_tokens":1`), 24, 24},
		{"a dropped bound of a message", "messages", operation.Facts{Dropped: all}, 1, ask(`,"max_tokens":30000`), 24, 1},
		{"a dropped bound of a message, as responses name it", "messages", operation.Facts{Dropped: operation.Dropped{MaxOutputTokens: true}}, 1, ask(`,"max_tokens":30000`), 24, 1},
		{"another field of a message", "messages", operation.Facts{Dropped: operation.Dropped{MaxCompletionTokens: true}}, 1, ask(`,"max_tokens":30000`), 24, 4},
		{"a dropped bound of a response", "responses", operation.Facts{Dropped: operation.Dropped{MaxOutputTokens: true}}, 1, `{"model":"m","max_output_tokens":1,"input":"x"}`, 24, 1},
		{"a dropped bound of a response, as chat names it", "responses", operation.Facts{Dropped: operation.Dropped{MaxCompletionTokens: true}}, 1, `{"model":"m","max_output_tokens":1,"input":"x"}`, 24, 1},
		{"a dropped bound of a response, as messages name it", "responses", operation.Facts{Dropped: all}, 1, `{"model":"m","max_output_tokens":1,"input":"x"}`, 24, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			unasked := int64(60_000)
			if c.facts.MaxOutput > 0 {
				unasked = min(unasked, c.facts.MaxOutput)
			}
			s := newSale(t, fmt.Sprint(c.credit), price(t, "0", "10"), c.facts)
			for range c.calls {
				r := parse(t, c.endpoint, c.body)
				limit, err := s.begin(r)
				if fault.Is(err, fault.InsufficientBalance) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				made := unasked
				if strings.HasPrefix(c.name, "another field") || c.facts.Dropped == (operation.Dropped{}) { // the vendor gets its bound
					if sent := bound(t, r.Outgoing(limit)); sent > 0 {
						made = sent
					}
				}
				if strings.Contains(c.body, `"n":2`) {
					made *= 2
				}
				s.made = append(s.made, made)
			}
			if granted := len(s.holds); granted != c.granted {
				t.Errorf("%d of %d are let through, want %d", granted, c.calls, c.granted)
			}
			var made int64
			for _, n := range s.made {
				made += n
			}
			if overrun := s.end(); overrun != 0 || made > perUnit*c.credit {
				t.Errorf("%d tokens are made for a balance of %d, %s beyond it", made, perUnit*c.credit, overrun)
			}
		})
	}
}

// bound is the bound of the output that a vendor gets; 0 for none.
func bound(t *testing.T, out operation.Outgoing) (n int64) {
	t.Helper()
	data, err := out.Body.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if raw := rawjson.Lookup(data, name); raw != nil {
			if _, err := fmt.Sscan(string(raw), &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

func TestASolventCallerIsServedWhateverTheCap(t *testing.T) {
	for _, c := range []struct {
		name, credit string
		cap          int64
		calls        int
		limit        int64 // of the last call's vendor
	}{
		{"alone, with next to nothing", "0.01", 0, 1, 1_000},
		{"alone, half of a small balance", "1.00", 0, 1, 16_384},
		{"alone, a large cap and a small balance", "1.00", 1 << 20, 1, 50_000},
		{"alone, with enough", "3.00", 0, 1, 0},
		{"the second, a cap of a million", "20.00", 1 << 20, 2, 4_096},
		{"the second, with enough for both", "50.00", 1 << 20, 2, 0},
		{"the tenth, a cap of a million", "20.00", 1 << 20, 10, 4_096},
		{"the tenth, with enough for all", "300.00", 1 << 20, 10, 0},
	} {
		s := newSale(t, c.credit, price(t, "0", "10"), operation.Facts{MaxOutput: c.cap})
		var last int64
		for range c.calls {
			limit, err := s.begin(parse(t, "chat", `{"model":"m","messages":[{"role":"user","content":"say a lot"}]}`))
			if err != nil {
				t.Fatal(c.name, err)
			}
			last = limit
		}
		if last != c.limit {
			t.Errorf("%s: the vendor is limited to %d, want %d", c.name, last, c.limit)
		}
	}
}

func TestMediaByURLRunAloneUnlessTheBalanceCoversThem(t *testing.T) {
	const image, inline = `{"type":"image_url","image_url":{"url":"https://a.test/p.png"}}`, `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`
	for _, c := range []struct {
		name, credit, part, more string
		granted                  int
	}{
		{"an image, a small balance", "0.50", image, `,"max_tokens":10`, 1},
		{"an image, a balance for all", "20.00", image, `,"max_tokens":10`, 10},
		{"without a bound of the output", "0.50", image, ``, 1},
		{"a video, a small balance", "9.00", `{"type":"video_url","video_url":{"url":"https://a.test/v.mp4"}}`, `,"max_tokens":10`, 1},
		{"a file by URL", "9.00", `{"type":"file","file":{"file_data":"https://a.test/f.pdf"}}`, `,"max_tokens":10`, 1},
		{"an image in the body", "0.50", inline, `,"max_tokens":10`, 10},
		{"a large text in the body", "0.60", `{"type":"file","file":{"file_data":"data:text/plain,` + strings.Repeat("word ", 20_000) + `"}}`, `,"max_tokens":10`, 1},
	} {
		s := newSale(t, c.credit, price(t, "10", "10"), operation.Facts{})
		r := parse(t, "chat", `{"model":"m","messages":[{"role":"user","content":[`+c.part+`]}]`+c.more+`}`)
		for range 10 {
			if _, err := s.begin(r); err == nil {
				s.made = append(s.made, 1)
			} else if !fault.Is(err, fault.InsufficientBalance) {
				t.Fatal(c.name, err)
			}
		}
		if got := len(s.holds); got != c.granted {
			t.Errorf("%s: %d of 10 are let through, want %d", c.name, got, c.granted)
		}
		s.end()
		if _, err := s.begin(r); err != nil {
			t.Errorf("%s: alone: %v", c.name, err)
		}
	}
}

// A hold that the balance cut short limits the vendor, by the member that the caller used.
func TestAVendorIsAskedForNoMoreThanTheBalanceAffords(t *testing.T) {
	ask := func(members string) string {
		return `{"model":"m",` + members + `"messages":[{"role":"user","content":"say four words"}]}`
	}
	for _, c := range []struct {
		name, endpoint, body string
		affords              int64 // output tokens beside the input
		sent                 string
	}{
		{"a larger max_tokens is lowered", "chat", ask(`"max_tokens":100,`), 40, `"max_tokens":40`},
		{"a smaller one is not", "chat", ask(`"max_tokens":10,`), 40, `"max_tokens":10`},
		{"max_completion_tokens too", "chat", ask(`"max_completion_tokens":100,`), 51, `"max_completion_tokens":51`},
		{"without a bound one is set", "chat", ask(``), 57, `"max_tokens":57`},
		{"of two candidates each has half", "chat", ask(`"n":2,`), 57, `"max_tokens":28`},
		{"a stream for all that is available", "chat", ask(`"stream":true,`), 6_000, `"max_tokens":6000`},
		{"a message", "messages", ask(`"max_tokens":9000,`), 1_500, `"max_tokens":1500`},
		{"a stream of a message", "messages", ask(`"max_tokens":9000,"stream":true,`), 1_500, `"max_tokens":1500`},
		{"a message that thinks", "messages", ask(`"max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":4000},`), 1_000, `"max_tokens":1000`},
		{"a response", "responses", `{"model":"m","max_output_tokens":9000,"input":"say four words"}`, 1_500, `"max_output_tokens":1500`},
		{"a response without a bound", "responses", `{"model":"m","input":"say four words"}`, 57, `"max_output_tokens":57`},
		{"no token at all", "chat", ask(``), 0, ``},
	} {
		s := newSale(t, (billing.Money(int64(len(c.body))+c.affords) * 1000).String(), price(t, "1", "1"), operation.Facts{MaxOutput: 10_000}) // a byte may be a token
		r := parse(t, c.endpoint, c.body)
		limit, err := s.begin(r)
		if c.sent == "" {
			if !fault.Is(err, fault.InsufficientBalance) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(c.name, err)
		}
		out := r.Outgoing(limit)
		if data, err := out.Body.Bytes(); err != nil || !strings.Contains(string(data), c.sent) || strings.Contains(string(data), "thinking") {
			t.Errorf("%s: sent %s, %v, want %s", c.name, data, err, c.sent)
		}
		if thinks := strings.Contains(c.body, "thinking"); thinks != (len(out.Omitted) == 1 && out.Omitted[0] == "thinking") {
			t.Errorf("%s: left out are %q", c.name, out.Omitted)
		}
	}
}

// The bound that the caller sent is lower still, though a channel leaves it out.
func TestADroppedBoundIsNotRaised(t *testing.T) {
	s := newSale(t, "0.01", price(t, "0", "10"), operation.Facts{Dropped: operation.Dropped{MaxTokens: true}})
	if limit, err := s.begin(parse(t, "chat", `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`)); err != nil || limit != 0 {
		t.Errorf("limited to %d, %v, want the caller's own bound", limit, err)
	}
}

// A token is at least a byte of what was sent, and a vendor may put a prompt of its own
// before it.
func TestACountOfInputIsBelievedAsFarAsTheBodyAllows(t *testing.T) {
	const head, text = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":`, `"hi"}]}`
	const response = `{"model":"m","max_output_tokens":9,"input":"hi"}`
	const ownPrompt, size = 16_384, int64(len(head + text))
	for _, row := range []struct {
		name, endpoint, body string
		passed               bool // a field by which the vendor reads more
		reported             int64
		believed             bool
	}{
		{"a vendor's own prompt", "chat", head + text, false, 3_000, true},
		{"the most", "chat", head + text, false, size + ownPrompt, true},
		{"one more", "chat", head + text, false, size + ownPrompt + 1, false},
		{"with a field that is passed", "chat", head + text, true, 500_000, true},
		{"above any context", "chat", head + text, true, operation.MaxContext + 1, false},
		{"of a message", "messages", head + text, false, 2_000_000, false},
		{"of a message with a field that is passed", "messages", head + text, true, 500_000, true},
		{"of a response", "responses", response, false, 2_000_000, false},
		{"of a response with a field that is passed", "responses", response, true, 500_000, true},
		{"of a small image in the body", "chat", head + `[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`, false, 30_000, true},
		{"of an image by URL", "chat", head + `[{"type":"image_url","image_url":{"url":"https://a.test/p.png"}}]}]}`, false, 500_000, true},
	} {
		q := parse(t, row.endpoint, row.body).Quote(&operation.Facts{}, price(t, "1", "1"), row.passed)
		u := q.Clamp(billing.Usage{Input: row.reported, Output: 9}, 0)
		if believed := u.Input == row.reported && !u.Anomaly; believed != row.believed || u.Output != 9 || !believed && u.Input > int64(len(row.body)+16) {
			t.Errorf("%s: %d of %d reported tokens, an anomaly: %t", row.name, u.Input, row.reported, u.Anomaly)
		}
	}
}

// A vendor may bill the whole bound of the input as written to its cache, which costs more
// than to read it.
func TestAHoldCoversAnInputThatACacheTakes(t *testing.T) {
	rates := func(written string) *billing.Price {
		all := []billing.Rate{{Unit: billing.Input, Amount: "3"}, {Unit: billing.CachedInput, Amount: "0.3"}, {Unit: billing.Output, Amount: "15"}}
		if written != "" {
			all = append(all, billing.Rate{Unit: billing.CacheWrite, Amount: written})
		}
		p, err := billing.NewPrice(all...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const image = `{"model":"m","max_tokens":7,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://files.example/a.png"}}]}]}`
	for _, c := range []struct {
		name, endpoint, body, written string
		dearest                       bool
	}{
		{"a completion", "chat", `{"model":"m","max_tokens":7,"messages":[{"role":"user","content":"x"}]}`, "3.75", true},
		{"a message", "messages", `{"model":"m","max_tokens":7,"messages":[{"role":"user","content":"x"}]}`, "3.75", true},
		{"a response", "responses", `{"model":"m","max_output_tokens":7,"input":"hi"}`, "3.75", true},
		{"an image by its address", "chat", image, "3.75", true},
		{"writing that costs what reading does", "chat", image, "", false},
		{"writing that costs less", "chat", image, "1", false},
	} {
		p := rates(c.written)
		q := parse(t, c.endpoint, c.body).Quote(&operation.Facts{}, p, false)
		in := q.Bound.Input + q.Bound.CacheWrite
		if (q.Bound.CacheWrite > 0) != c.dearest || in == 0 || q.Bound.Output != 7 {
			t.Errorf("%s: held for %+v", c.name, q.Bound)
		}
		held, err := p.Cost(q.Bound)
		billed, err2 := p.Cost(billing.Usage{CacheWrite: in, Output: 7})
		if err != nil || err2 != nil || billed > held || c.dearest && billed != held {
			t.Errorf("%s: held %s for a bill of %s, %v, %v", c.name, held, billed, err, err2)
		}
	}
}

// No balance pays for the tokens and not for the request itself.
func TestAHoldCoversTheRequestItself(t *testing.T) {
	p, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1"}, billing.Rate{Unit: billing.Output, Amount: "1"}, billing.Rate{Unit: billing.Request, Amount: "0.01"})
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"model":"m","messages":[{"role":"user","content":"go on"}],"stream":true}`
	r := parse(t, "chat", body)
	if _, err := newSale(t, "0.009999", p, operation.Facts{}).begin(r); !fault.Is(err, fault.InsufficientBalance) {
		t.Errorf("a balance for the tokens alone: %v", err)
	}
	credit := billing.Money(10_000+len(body)+1_500) * 1_000
	s := newSale(t, credit.String(), p, operation.Facts{})
	if limit, err := s.begin(r); err != nil || limit != 1_500 {
		t.Errorf("limited to %d, %v, want 1500 beside the request", limit, err)
	}
	if q := r.Quote(&operation.Facts{HoldTokens: 9}, p, false); q.Bound.Requests != 1 || q.Least.Requests != 1 || q.Clamp(billing.Usage{Output: 1}, 0).Requests != 1 || q.Clamp(billing.Usage{}, 0).Requests != 0 {
		t.Errorf("the quote is %+v", q)
	}
}
