package video

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/video"
)

// FuzzParse feeds anything to the parser: it never panics, what it refuses is a
// 400, and what it accepts goes on as it came but for the owned edits.
func FuzzParse(f *testing.F) {
	for _, e := range ownedEdits {
		f.Add([]byte(e.request))
	}
	for _, id := range everyModel() {
		f.Add(least(id).json(f))
	}
	f.Add([]byte(`{"model":"gamma-2.5","content":[{"type":"draft_task","draft_task":{"task_id":"vid_1"}}]}`))
	all := price(f, map[string]string{"": "0.1"})
	tokens := newPrice(f, billing.Rate{Unit: billing.Output, Amount: "7"})
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		r, err := Parse(data)
		if err == nil {
			err = r.Check(&operation.Facts{}, all, nil)
		}
		if err != nil {
			var e *fault.Error
			if !errors.As(err, &e) || e.HTTPStatus() != 400 || e.Message == "" {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		sent, err := r.Outgoing(0).Body.Bytes()
		if err != nil || !json.Valid(sent) || !bytes.Equal(data, before) {
			t.Fatalf("%q became %q, %v", data, sent, err)
		}
		b, err := r.Bound(all)
		if err != nil || b.Usage.Seconds < 1 || b.Usage.Seconds > unknownMost {
			t.Fatalf("%q: %+v, %v", data, b, err)
		}
		if b, err := r.Bound(tokens); err != nil || b.Usage.Output < 1 {
			t.Fatalf("%q: %+v, %v", data, b, err)
		}
		if r.Family() == video.FamilyBeta {
			return // its top-level fields are gone
		}
		again, err := Parse(sent)
		if err == nil {
			err = again.Check(&operation.Facts{}, all, nil)
		}
		if err != nil || again.Model != r.Model || again.asked.seconds != r.asked.seconds {
			t.Fatalf("%q was sent as %q, which is %v", data, sent, err)
		}
	})
}

// FuzzAdvance feeds anything to a task as the answer of its upstream: its record
// stays JSON, and no step is made that the table does not have.
func FuzzAdvance(f *testing.F) {
	for _, word := range []string{"queued", "running", "succeeded", "failed", "cancelled", "expired", "UNKNOWN", "x"} {
		f.Add(poll(word, ","+content+`,"usage":"{}","error":{"code":"a","message":"b"}`), uint8(2), true)
		f.Add([]byte(`{"output":{"task_id":"up-1","task_status":"`+word+`","video_url":"u"},"usage":{"duration":5.0}}`), uint8(4), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, state uint8, tokens bool) {
		before := task([]string{video.FamilyBeta, video.FamilyGamma, ""}[state%3])
		before.State, before.Tokens, before.Open = everyState[int(state)%len(everyState)], tokens, !tokens
		before.Bound.Output = 100
		m, err := advance(&before, data, noon)
		if err != nil && !fault.Is(err, fault.BadGateway) {
			t.Fatalf("%q: %v", data, err)
		}
		if m.Changed != (m.Task.State != before.State) || m.Changed && !legal(before.State, m.Task.State) || err != nil && m.Changed {
			t.Fatalf("%q: %s became %s", data, before.State, m.Task.State)
		}
		record := Record(&m.Task)
		m.Task.WebhookURL = "https://hooks.example/x"
		d := Delivery(&m.Task, "evt_1", noon)
		if !json.Valid(record) || (d != nil) != m.Task.State.Terminal() || d != nil && !json.Valid(d.Body) {
			t.Fatalf("%q: the record is %q, the delivery %+v", data, record, d)
		}
		var shown video.Response
		if err := jsonv2.Unmarshal(record, &shown, jsontext.AllowDuplicateNames(true)); err != nil || shown.Status != PublicState(m.Task.State) {
			t.Fatalf("%q: the record is %q, %v", data, record, err)
		}
		if u := BilledUsage(&m.Task, nil); min(u.Output, u.Seconds) < 0 || u.Output > 800 || u.Seconds > before.Bound.Seconds {
			t.Fatalf("%q: %+v", data, u)
		}
	})
}
