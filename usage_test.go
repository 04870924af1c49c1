package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
)

// seenBody is what a vendor's reader makes of a body: the last of repeated names
// counts for it, and it minds no case.
type seenBody struct {
	Model      string
	N          json.RawMessage
	MaxTokens  json.RawMessage `json:"max_tokens"`
	Duration   json.RawMessage
	Parameters struct {
		Duration json.RawMessage
	}
}

// names are those of the object that data begins with, or of the one under a
// name in it.
func names(data []byte, under string) (all []string) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		if under != "" && name == under {
			return names(value, "")
		}
		all = append(all, name.(string))
	}
	if under != "" {
		return nil
	}
	return all
}

// readStrictly is what a strict vendor reads; it fails for what two readers could
// read differently.
func readStrictly(t *testing.T, data []byte) (s seenBody) {
	t.Helper()
	for _, under := range []string{"", "parameters"} {
		seen := map[string]bool{}
		for _, name := range names(data, under) {
			if seen[name] {
				t.Fatalf("%q stands twice in %q", name, data)
			}
			seen[name] = true
		}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&s); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) || !utf8.Valid(data) {
		t.Fatalf("the vendor gets %q: %v", data, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("something follows in %q", data)
	}
	return s
}

// wares are the operations that are tried, with what their vendor answers.
var wares = []struct {
	op     upstream.Op
	model  string // of those whose price is that of the operation, the beginning
	answer string
	// least is what must be held for what the vendor reads.
	least func(t *testing.T, s seenBody) billing.Money
}{
	{upstream.ChatCompletion, "m", chatAnswer(""), func(t *testing.T, s seenBody) billing.Money {
		return micro(count(t, s.MaxTokens) * max(count(t, s.N), 1))
	}},
	{upstream.GenerateImage, "imagegen", `{"created":1,"data":[{"b64_json":"AA=="}]}`, func(t *testing.T, s seenBody) billing.Money {
		return billing.Money(max(count(t, s.N), 1)) * billing.One / 10
	}},
	{upstream.SubmitVideo, "beta", `{"output":{"task_id":"t","task_status":"PENDING"},"request_id":"r"}`, func(t *testing.T, s seenBody) billing.Money {
		if s.Duration != nil {
			t.Fatalf("the vendor is told a duration in two places")
		}
		return billing.Money(count(t, s.Parameters.Duration)) * billing.One / 10
	}},
}

// count is a number that is billed; 0 if there is none.
func count(t *testing.T, raw json.RawMessage) (n int64) {
	t.Helper()
	if raw == nil || string(raw) == "null" {
		return 0
	}
	if err := json.Unmarshal(raw, &n); err != nil || n < 0 {
		t.Fatalf("the vendor gets the number %q: %v", raw, err)
	}
	return n
}

// FuzzWhatIsBilledIsWhatTheVendorReads is docs/faults.md, row 25: whatever bytes come,
// either nobody is asked, or what is held covers what a strict reader finds in
// the bytes that went out.
func FuzzWhatIsBilledIsWhatTheVendorReads(f *testing.F) {
	for i, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7,"n":3}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7,"MAX_TOKENS":9000}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7,"max_to\u212aens":9000}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"n":1,"\u006e":9}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"n":1e0}`,
		`{"model":"imagegen-2","prompt":"a","n":2}`, `{"model":"imagegen-2","prompt":"a","n":1,"N":10}`,
		`{"model":"beta2.7-t2v","duration":5,"resolution":"720p","input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","duration":2,"Duration":15,"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","duration":2,"parameters":{"duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":{"duration":2,"duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":{"duration":2,"Duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":{"duration":2},"Parameters":{"duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":{"duration":2},"parameters":{"duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":null,"duration":15,"input":{"prompt":"a"}}`,
	} {
		f.Add([]byte(body), uint8(i))
		f.Add([]byte(body), uint8(2))
		f.Add([]byte(body), uint8(0))
	}
	second, picture := rates(f, "second", "0.1"), rates(f, "image", "0.1")
	prices := billing.NewPriceList(map[string]*billing.Price{"m": price(f, "1", "1"), "imagegen-2": picture, "beta2.7-t2v": second, "beta2.6-t2v": second})
	f.Fuzz(func(t *testing.T, body []byte, which uint8) {
		ware := wares[int(which)%len(wares)]
		up := &scriptedUpstream{text: ware.answer}
		ledger := memory.NewLedger(memory.LedgerOptions{})
		must(t, ledger.CreateAccount(t.Context(), "local", 1000*billing.One))
		watch := &holds{Ledger: ledger}
		g, err := gateway.New(gateway.Options{Upstream: up, Meter: watch, Prices: prices, RequirePrice: true})
		must(t, err)
		defer g.Close()
		r, err := g.Do(t.Context(), &gateway.Request{Op: ware.op, Body: body})
		r.End(0, err)
		if up.count() == 0 {
			return
		}
		seen := readStrictly(t, []byte(up.sent(t)))
		if seen.Model != watch.model {
			t.Fatalf("%q was sent as %s, and %q was billed", body, up.sent(t), watch.model)
		}
		if !strings.HasPrefix(seen.Model, ware.model) {
			return
		}
		if least := ware.least(t, seen); watch.held < least {
			t.Errorf("%q was sent as %s, for which %s was held, less than %s", body, up.sent(t), watch.held, least)
		}
	})
}

// holds is a ledger that notes what was held, and for which model.
type holds struct {
	memory.Ledger
	held  billing.Money
	model string
}

func (h *holds) Reserve(ctx context.Context, c billing.HoldRequest) (billing.Hold, error) {
	hold, err := h.Ledger.Reserve(ctx, c)
	h.held, h.model = max(h.held, hold.Amount), c.Model
	return hold, err
}
