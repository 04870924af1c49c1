package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

const (
	oneLink    = `{"output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://x.example/1.png"}]}}]},"request_id":"theirs","usage":{"image_count":1,"width":1024,"height":1024}}`
	twoFiles   = `{"created":1,"data":[{"b64_json":"aGk="},{"b64_json":"aGk="}]`
	threeLinks = `{"created":1,"data":[{"url":"a"},{"url":"b"},{"url":"c"}]}`
	fileTokens = `,"usage":{"input_tokens":30,"input_tokens_details":{"text_tokens":20,"image_tokens":10},"output_tokens":5000,"total_tokens":5030}}`
)

func alphaBody(model, content string) string {
	return fmt.Sprintf(`{"model":%q,"input":{"messages":[{"role":"user","content":[{"text":"a red cube"}%s]}]}}`, model, content)
}

func TestNothingIsSentInASilenceOfPicturesSoThatAFailureKeepsItsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
			time.Sleep(5 * time.Minute)
			return nil, (&upstream.Failure{Status: 500, Sent: true}).Fault()
		})
		h := newPricedGateway(t, up, "1", "imagegen-2", rates(t, "image", "0.5"))
		silent := func(event []byte) { t.Errorf("%q was sent", event) }
		_, err := h.Do(t.Context(), gateway.Caller{Heartbeat: silent}, &gateway.Request{Op: upstream.GenerateImage, Body: []byte(`{"model":"imagegen-2","prompt":"a","stream":true}`)})
		if !fault.Is(err, fault.InternalServerError) {
			t.Error(err)
		}
	})
}

func TestAStreamOfPicturesIsChargedAsReportedOrByWhatWasDelivered(t *testing.T) {
	const body = `{"model":"imagegen-2","prompt":"a red cube","stream":true,"partial_images":2,"size":"1024x1024"}`
	for name, row := range map[string]struct {
		fault  sim.Fault
		want   billing.Money
		reason string
		events int
	}{
		"complete":           {sim.Fault{}, (1056 + 200) * 1000, billing.ReasonComplete, 3},
		"without a report":   {sim.Fault{NoUsage: true}, (7024 + 200) * 1000, billing.ReasonComplete, 3},
		"a report of zero":   {sim.Fault{ZeroUsage: true}, 0, billing.ReasonComplete, 3},
		"cut after one":      {sim.Fault{Break: sim.Cut, After: 1}, (7024 + 200) / 3 * 1000, billing.ReasonUpstreamFailed, 1},
		"cut after two":      {sim.Fault{Break: sim.ErrorFrame, After: 2}, (7024 + 200) * 2 / 3 * 1000, billing.ReasonUpstreamFailed, 2},
		"broken before that": {sim.Fault{Break: sim.ErrorFrame}, 0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			up := sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { return row.fault }})
			h := newPricedGateway(t, up, "10", "imagegen-2", rates(t, "image_output", "1"))
			r, err := h.do(t.Context(), upstream.GenerateImage, body)
			if row.reason == "" {
				if !fault.Is(err, fault.InternalServerError) || h.spent(t) != 0 {
					t.Errorf("%v, spent %s", err, h.spent(t))
				}
				return
			}
			must(t, err)
			text := drain(t, r.Stream)
			if n := strings.Count(text, "event: image_generation."); n != row.events || strings.Contains(text, "[DONE]") {
				t.Errorf("%d events", n)
			}
			if (r.Stream.Err() == nil) != (row.reason == billing.ReasonComplete) || strings.Contains(text, `data: {"error":`) != (r.Stream.Err() != nil) {
				t.Errorf("it ended with %v", r.Stream.Err())
			}
			receipt, err := h.ledger.Receipt(t.Context(), "local", r.ID)
			if err != nil || receipt.Charge != row.want || receipt.Reason != row.reason || receipt.Usage.Images != 1 {
				t.Errorf("receipt %+v, %v, want %s", receipt, err, row.want)
			}
		})
	}
}

// blank is a PNG file of a size.
func blank(t testing.TB, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))))
	return b.Bytes()
}

// countedForm is a form that counts how often it was released.
type countedForm struct {
	*upstream.Form
	released atomic.Int32
}

// editForm is a form for changed pictures; pairs are more fields.
func editForm(t testing.TB, model string, pairs ...string) *countedForm {
	t.Helper()
	w := &countedForm{}
	parts := []upstream.Part{upstream.Field("model", model), upstream.Field("prompt", "make it blue"), editFile("image", blank(t, 16, 16))}
	for i := 0; i < len(pairs); i += 2 {
		parts = append(parts, upstream.Field(pairs[i], pairs[i+1]))
	}
	w.Form = upstream.NewForm(parts, func() error {
		w.released.Add(1)
		return nil
	})
	return w
}

func editFile(name string, content []byte) upstream.Part {
	p := upstream.Field(name, string(content))
	p.Filename = "anonymous_file"
	return p
}

// change sends a form.
func (h *testGateway) change(ctx context.Context, key string, form *countedForm) (*gateway.Response, error) {
	return h.Do(ctx, gateway.Caller{}, &gateway.Request{Op: upstream.EditImage, Form: form.Form, IdempotencyKey: key})
}

const edited = `{"created":1,"data":[{"b64_json":"aGk="}],"usage":{"input_tokens":300,"input_tokens_details":{"text_tokens":20,"image_tokens":280},"output_tokens":4160}}`

func TestABadFormCostsNothingAndIsNotSent(t *testing.T) {
	for name, row := range map[string]struct {
		form   *countedForm
		code   fault.Code
		status int
	}{
		"a rule":             {editForm(t, "imagegen-2", "n", "11"), fault.InvalidRequest, 400},
		"an unknown model":   {editForm(t, "imagegen-9"), fault.ModelNotFound, 404},
		"the other endpoint": {editForm(t, "alpha-image-edit"), fault.InvalidRequest, 400},
		"too dear":           {editForm(t, "imagegen-2", "n", "10"), fault.InsufficientBalance, 402},
	} {
		up := &scriptedUpstream{text: edited}
		models := map[string]string{}
		prices := map[string]*billing.Price{}
		for _, id := range []string{"imagegen-2", "alpha-image-edit", "delta-k3"} {
			models[id], prices[id] = id, rates(t, "image", "0.5")
		}
		h := newTestGateway(t, newRouter(t, router.Channel{Name: "a", Upstream: up, Models: models}), "1", func(o *gateway.Options) { o.Models, o.Prices = nil, billing.NewPriceList(prices) })
		_, err := h.change(t.Context(), "k", row.form)
		f := fault.From(err)
		if f == nil || f.Code != row.code || f.HTTPStatus() != row.status || up.count() != 0 || h.spent(t) != 0 || row.form.released.Load() != 1 {
			t.Errorf("%s: %v, %d calls, released %d times", name, err, up.count(), row.form.released.Load())
		}
		if _, err := h.change(t.Context(), "k", editForm(t, "imagegen-2")); err != nil { // the key is free again
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAFormIsOpenedAnewForAnotherChannel which has another id of the model, and another
// name of a field.
func TestAFormIsOpenedAnewForAnotherChannel(t *testing.T) {
	var bodies []string
	note := func(up upstream.Upstream) upstream.Upstream {
		return upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			data, err := c.Body.Bytes()
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, string(data))
			return up.Do(ctx, c)
		})
	}
	busy := &scriptedUpstream{err: (&upstream.Failure{Status: 429, Sent: true, Refused: true}).Fault()}
	routing := newRouter(t,
		router.Channel{Name: "first", Upstream: note(busy), Models: map[string]string{"imagegen-2": "one"}, Drop: []string{"user"}},
		router.Channel{Name: "second", Upstream: note(&scriptedUpstream{text: edited}), Models: map[string]string{"imagegen-2": "two"}, Priority: 1, Rename: map[string]string{"user": "safety_identifier"}},
	)
	h := newPricedGateway(t, routing, "1", "imagegen-2", rates(t, "image", "0.5"))
	if _, err := h.change(t.Context(), "", editForm(t, "imagegen-2", "user", "u")); err != nil || len(bodies) != 2 {
		t.Fatalf("%v, %d calls", err, len(bodies))
	}
	for i, model := range []string{"one", "two"} {
		if !strings.Contains(bodies[i], string(blank(t, 16, 16))) || !strings.Contains(bodies[i], "\r\n\r\n"+model+"\r\n") || strings.Contains(bodies[i], "safety_identifier") != (i == 1) || strings.Contains(bodies[i], `name="user"`) {
			t.Errorf("call %d got %q", i, bodies[i])
		}
	}
}

func TestADuplicateOfAnEditIsNotMadeAgain(t *testing.T) {
	up := &scriptedUpstream{text: edited}
	h := newPricedGateway(t, up, "1", "imagegen-2", rates(t, "image", "0.5"))
	first, err := h.change(t.Context(), "k", editForm(t, "imagegen-2"))
	must(t, err)
	same := editForm(t, "imagegen-2")
	same.Parts = append(same.Parts[1:], same.Parts[0]) // another order, another boundary
	again, err := h.change(t.Context(), "k", same)
	if err != nil || !again.Replayed || string(again.Body) != string(first.Body) || up.count() != 1 || h.spent(t) != billing.One/2 || same.released.Load() != 1 {
		t.Errorf("%v, %+v, %d calls, spent %s", err, again, up.count(), h.spent(t))
	}
	other := editForm(t, "imagegen-2")
	other.Parts[2] = editFile("image", blank(t, 16, 17))
	renamed := editForm(t, "imagegen-2")
	renamed.Parts[2].Filename = "cube.png"
	for name, form := range map[string]*countedForm{"another image": other, "another file name": renamed, "another field": editForm(t, "imagegen-2", "n", "1")} {
		if _, err = h.change(t.Context(), "k", form); !fault.Is(err, fault.IdempotencyConflict) || form.released.Load() != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAStreamOfAnEditKeepsItsFormUntilItsEnd(t *testing.T) {
	for name, whole := range map[string]bool{"to its end": true, "closed early": false} {
		h := newPricedGateway(t, sim.New(sim.Options{}), "10", "imagegen-2", rates(t, "image_output", "1"))
		form := editForm(t, "imagegen-2", "stream", "true", "partial_images", "2", "size", "1024x1024")
		r, err := h.change(t.Context(), "", form)
		if err != nil || r.Stream == nil || form.released.Load() != 0 {
			t.Fatalf("%s: %v, released %d times", name, err, form.released.Load())
		}
		const want = billing.Money((1056 + 200) * 1000) // closed early too: its vendor makes all of it
		if whole {
			text := drain(t, r.Stream)
			if strings.Count(text, "event: image_edit.partial_image\n") != 2 || strings.Count(text, "event: image_edit.completed\n") != 1 {
				t.Errorf("%.400s", text)
			}
		} else {
			if _, err := r.Stream.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(r.Stream.Close(), h.Close()); err != nil { // which waits for the upstream's end
			t.Fatal(err)
		}
		receipt, err := h.ledger.Receipt(t.Context(), "local", r.ID)
		if err != nil || receipt.Charge != want || form.released.Load() != 1 {
			t.Errorf("%s: receipt %+v, %v, want %s; released %d times", name, receipt, err, want, form.released.Load())
		}
	}
}

func TestOnlyAFormOfAnEditIsTaken(t *testing.T) {
	h := newPricedGateway(t, &scriptedUpstream{text: edited}, "1", "imagegen-2", rates(t, "image", "0.5"))
	form := editForm(t, "imagegen-2")
	if _, err := h.Do(t.Context(), gateway.Caller{}, &gateway.Request{Op: upstream.GenerateImage, Form: form.Form}); !fault.Is(err, fault.NotFound) || form.released.Load() != 1 {
		t.Error(err)
	}
	if _, err := h.do(t.Context(), upstream.EditImage, "{}"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}
