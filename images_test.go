package gateway_test

import (
	"context"
	"fmt"
	"strings"
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
		_, err := h.Do(t.Context(), &gateway.Request{Op: upstream.GenerateImage, Body: []byte(`{"model":"imagegen-2","prompt":"a","stream":true}`), Heartbeat: silent})
		if !fault.Is(err, fault.InternalServerError) {
			t.Error(err)
		}
	})
}

func TestAPictureIsAskedOfAnotherChannelOnlyIfCertainlyNoneWasMade(t *testing.T) {
	for _, row := range []struct {
		failure upstream.Failure
		again   bool
	}{
		{upstream.Failure{}, true}, // it was not sent
		{upstream.Failure{Status: 429, Sent: true, Refused: true}, true},
		{upstream.Failure{Status: 503, Sent: true, Refused: true}, true},
		{upstream.Failure{Status: 500, Sent: true}, false},
		{upstream.Failure{Sent: true}, false},
	} {
		second := &scriptedUpstream{text: oneLink}
		first := &scriptedUpstream{err: row.failure.Fault()}
		models := map[string]string{"alpha-image-max": "qwen-image-max"}
		routing := newRouter(t,
			router.Channel{Name: "first", Upstream: first, Models: models}, router.Channel{Name: "second", Upstream: second, Models: models, Priority: 1},
		)
		h := newPricedGateway(t, routing, "1", "alpha-image-max", rates(t, "image", "0.5"))
		_, err := h.do(t.Context(), upstream.GenerateImage, alphaBody("alpha-image-max", ""))
		if (err == nil) != row.again || second.count() != map[bool]int{true: 1}[row.again] {
			t.Errorf("%+v: %v, %d calls of the second", row.failure, err, second.count())
		}
	}
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
				if !fault.Is(err, fault.BadGateway) || h.spent(t, "10") != 0 {
					t.Errorf("%v, spent %s", err, h.spent(t, "10"))
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
