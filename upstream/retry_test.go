package upstream_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// keyed are refusals that one of several keys caused.
func keyed(status int) error {
	return (&upstream.Failure{
		Status: status, Sent: true, OtherKey: true, Fatal: status == 401, Refused: status == 429,
	}).Fault()
}

// TestWhoIsRepeatedWhere is docs/faults.md, row 7: what may have been accepted, and
// will be billed then, is only repeated where two answers cost little.
func TestWhoIsRepeatedWhere(t *testing.T) {
	cheap := []upstream.Op{upstream.ChatCompletion, upstream.Messages, upstream.CountTokens, upstream.Embeddings}
	costly := []upstream.Op{upstream.GenerateImage, upstream.EditImage, upstream.Speech, upstream.SubmitVideo}
	timeout := func(sent bool) error { return fault.Wrap(fault.RequestTimeout, "slow", &upstream.Failure{Sent: sent}) }
	for name, row := range map[string]struct {
		err           error
		cheap, costly bool
	}{
		"no connection":             {unsent(), true, true},
		"time-out before sending":   {timeout(false), true, true},
		"time-out after it":         {timeout(true), false, false},
		"429":                       {failed(429), true, true},
		"503":                       {failed(503), true, true},
		"key refused":               {failed(401), true, true},
		"connection lost":           {lost(), true, false},
		"500":                       {failed(500), true, false},
		"502":                       {failed(502), true, false},
		"504":                       {failed(504), true, false},
		"a 200 with an error in it": {fault.Wrap(fault.BadGateway, "bad", &upstream.Failure{Status: 200, Sent: true}), true, false},
		"an error of no kind":       {io.ErrUnexpectedEOF, true, false},
		"405":                       {failed(405), true, false},
		"a vendor's 499":            {failed(499), true, false},
		"a proxy's refusal":         {failed(407), true, true},
		"400":                       {failed(400), false, false},
		"404":                       {failed(404), false, false},
		"422":                       {failed(422), false, false},
	} {
		for _, op := range slices.Concat(cheap, costly) {
			want := row.cheap
			if slices.Contains(costly, op) {
				want = row.costly
			}
			if name == "405" && op == upstream.CountTokens { // it has no counter: an estimate will do
				want = false
			}
			second := plays("ok")
			r := router(t, upstream.RouterOptions{}, every("1", plays(row.err), 1), every("2", second, 2))
			c := call(t, hello)
			c.Op = op
			if _, err := answer(t.Context(), r, c); (second.asked() == 1) != want || (err == nil) != want {
				t.Errorf("%s of %s: asked again %v, %v", name, op, second.asked() == 1, err)
			}
		}
	}
	if len(cheap)+len(costly)+1 != len(upstream.Ops()) { // and the poll, which has one channel
		t.Error("an operation is not in the table")
	}
}

func TestAChannelIsAskedWithItsOtherKeyFirst(t *testing.T) {
	for _, status := range []int{401, 429} {
		for _, op := range []upstream.Op{upstream.ChatCompletion, upstream.GenerateImage} {
			v, spare := plays(keyed(status), "ok"), plays("spare")
			r := router(t, upstream.RouterOptions{}, every("keys", v, 0), every("spare", spare, 1))
			c := call(t, hello)
			c.Op = op
			if got, err := answer(t.Context(), r, c); got != "ok" || err != nil || spare.asked() != 0 {
				t.Errorf("%d: %q, %v", status, got, err)
			}
			if c := r.Channels()[0]; c.Failures != 0 || c.Requests != 2 || c.LastError == "" {
				t.Errorf("%d: %+v", status, c)
			}
			if got, err := answer(t.Context(), upstream.SingleRouter(plays(keyed(status), "ok")), call(t, hello)); got != "ok" || err != nil {
				t.Errorf("%d, alone: %q, %v", status, got, err)
			}
			alone := upstream.SingleRouter(plays(slices.Repeat([]any{keyed(status), keyed(status), "ok"}, 20)...))
			for range 20 { // more than the budget of attempts would pay for
				if got, err := answer(t.Context(), alone, call(t, hello)); got != "ok" || err != nil {
					t.Fatalf("%d, two keys of three: %q, %v", status, got, err)
				}
			}
			all := plays(keyed(status))
			r = router(t, upstream.RouterOptions{}, every("keys", all, 0), every("spare", spare, 1))
			if got, err := answer(t.Context(), r, call(t, hello)); got != "spare" || err != nil || all.asked() != 2 {
				t.Errorf("%d, keys that are all refused: %q, %v, asked %d times", status, got, err, all.asked())
			}
		}
	}
}

func TestAnAttemptTellsWhatTheVendorMayBill(t *testing.T) {
	cut := func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return says(strings.NewReader("error frame")), nil
	}
	silent := fault.Wrap(fault.RequestTimeout, "slow", &upstream.Failure{Sent: true})
	for name, row := range map[string]struct {
		says any
		want upstream.Attempt
	}{
		"an answer":       {"ok", upstream.Attempt{Sent: true, Status: 200}},
		"no connection":   {unsent(), upstream.Attempt{}},
		"connection lost": {lost(), upstream.Attempt{Sent: true}},
		"429":             {failed(429), upstream.Attempt{Sent: true, Refused: true, Status: 429}},
		"500":             {failed(500), upstream.Attempt{Sent: true, Status: 500}},
		"time-out":        {silent, upstream.Attempt{Sent: true}},
		"error frame":     {cut, upstream.Attempt{Sent: true, Status: 529}},
		"of no kind":      {io.EOF, upstream.Attempt{Sent: true}},
		"not asked":       {upstream.NotSent(fault.Invalid("n", "No.")), upstream.Attempt{}},
	} {
		c := call(t, hello)
		var got []upstream.Attempt
		c.Observe = func(a upstream.Attempt) { got = append(got, a) }
		c.Accept = func(_ context.Context, reply *upstream.Reply) (*upstream.Reply, error) {
			if data, _ := io.ReadAll(reply.Body); string(data) == "error frame" {
				return nil, failed(529)
			}
			return reply, nil
		}
		_, err := upstream.SingleRouter(plays(row.says)).Do(t.Context(), c)
		if len(got) == 0 || (got[0].Err == nil) != (err == nil) {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		row.want.Channel, row.want.Model = "default", "m"
		if diff := cmp.Diff(row.want, got[0], cmpopts.IgnoreFields(upstream.Attempt{}, "Started", "Duration", "Err")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
