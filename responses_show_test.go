package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// keeper is a vendor that keeps responses, and shows them with a text of some length.
type keeper struct {
	*responsesVendor
	shows int // bytes
}

func (v keeper) Supports(upstream.Op, string) bool { return true }

func (v keeper) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	text := `"x":"` + strings.Repeat("x", v.shows) + `"}`
	switch call.Op {
	case upstream.ShowResponse:
		text = `{"id":"` + call.TaskID + `","object":"response","output":[],` + text
	case upstream.ListInput:
		text = `{"object":"list","data":[],"has_more":false,` + text
	case upstream.DeleteResponse:
		text = `{` + text
	default:
		return v.responsesVendor.Do(ctx, call)
	}
	return jsonReply(text), nil
}

// storedOperations are those on a response by its id, as a part of a request and in process.
var storedOperations = map[string]struct {
	of      func(r *gateway.Entry, id string) error
	process func(ctx context.Context, g *gateway.Gateway, id string) error
}{
	"show": {
		func(r *gateway.Entry, id string) error { _, err := r.StoredResponse(id); return err },
		func(ctx context.Context, g *gateway.Gateway, id string) error {
			_, err := g.StoredResponse(ctx, id)
			return err
		},
	},
	"input": {
		func(r *gateway.Entry, id string) error {
			_, err := r.ResponseInputItems(id, gateway.InputItemsOptions{Limit: 1, Ascending: true})
			return err
		},
		func(ctx context.Context, g *gateway.Gateway, id string) error {
			_, err := g.ResponseInputItems(ctx, id, gateway.InputItemsOptions{})
			return err
		},
	},
	"delete": {
		func(r *gateway.Entry, id string) error { return r.DeleteResponse(id) },
		func(ctx context.Context, g *gateway.Gateway, id string) error { return g.DeleteResponse(ctx, id) },
	},
}

// TestWhatIsStoredIsReadWithASlotOfItsKey is docs/reference/faults.md, row 127: what costs nothing is
// bounded by the limits of the key all the same.
func TestWhatIsStoredIsReadWithASlotOfItsKey(t *testing.T) {
	for name, op := range storedOperations {
		for _, mode := range []gateway.ResponsesMode{gateway.ResponsesNative, gateway.ResponsesOn} {
			kept := newCountedStore()
			v := keeper{&responsesVendor{store: "true"}, 0}
			k := newStateGateway(t, v.responsesVendor, func(o *gateway.Options) {
				o.Upstream, o.Responses.Mode, o.Responses.Store, o.Limiter = v, mode, kept, new(auth.MemoryLimiter)
			})
			k.must(t, upstream.Responses, askResponse).Close()
			caller := func(l auth.Limits) context.Context {
				return auth.NewContext(t.Context(), &auth.Principal{Account: "local", Key: "k", Limits: l})
			}
			ctx := caller(auth.Limits{MaxConcurrent: 1})
			first, second := authenticated(t, ctx, k.Gateway), authenticated(t, ctx, k.Gateway)
			if err := op.of(first, "resp_9"); !fault.Is(err, fault.NotFound) || k.Load().Running != 1 {
				t.Errorf("%s, %q: %v, %+v", name, mode, err, k.Load())
			}
			reads := kept.reads
			for _, err := range []error{op.of(second, "resp_1"), op.process(ctx, k.Gateway, "resp_1")} {
				if !fault.Is(err, fault.RateLimitExceeded) || kept.reads != reads {
					t.Errorf("%s, %q: the key has two slots: %v, %d reads", name, mode, err, kept.reads-reads)
				}
			}
			second.End(429, nil)
			if err := op.of(first, "resp_1"); err != nil { // with the slot that it has
				t.Errorf("%s, %q: %v", name, mode, err)
			}
			first.End(200, nil)
			if err := op.process(ctx, k.Gateway, "resp_9"); !fault.Is(err, fault.NotFound) || k.Load().Running != 0 {
				t.Errorf("%s, %q, after its end: %v, %+v", name, mode, err, k.Load())
			}
			ctx = caller(auth.Limits{RPM: 6}) // of the key, which has sent three
			for range 3 {
				_ = op.process(ctx, k.Gateway, "resp_9")
			}
			if err := op.process(ctx, k.Gateway, "resp_9"); !fault.Is(err, fault.RateLimitExceeded) {
				t.Errorf("%s, %q: one more than its requests per minute: %v", name, mode, err)
			}
		}
	}
}

// The memory of what is stored is its request's until the answer is written.
func TestWhatIsStoredIsMemoryOfItsRequest(t *testing.T) {
	const size = 1<<20 + 1<<10 // what is smaller is not counted
	for name, op := range storedOperations {
		for _, mode := range []gateway.ResponsesMode{gateway.ResponsesNative, gateway.ResponsesOn} {
			v := keeper{&responsesVendor{store: "true", filler: size}, size}
			k := newStateGateway(t, v.responsesVendor, func(o *gateway.Options) {
				o.Upstream, o.Responses.Mode = v, mode
				o.Admission.Memory, o.Admission.InUse = 8<<30, func() int64 { return 0 }
			})
			must(t, k.ledger.Credit(t.Context(), "local", 10*billing.One, "paid in"))
			k.must(t, upstream.Responses, askResponse).Close()
			k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","input":"x"}`).Close()
			held := func() int64 { return k.Load().Bodies + k.Load().Answers }
			most := int64(size)
			if mode == gateway.ResponsesOn && name == "input" { // of both
				most *= 2
			}
			r := authenticated(t, asAccount(t, "local"), k.Gateway)
			if err := op.of(r, "resp_2"); err != nil || held() < most {
				t.Errorf("%s, %q: %v, %d bytes are held, want %d", name, mode, err, held(), most)
			}
			r.End(200, nil)
			if err := op.process(asAccount(t, "local"), k.Gateway, "resp_1"); err != nil || held() != 0 {
				t.Errorf("%s, %q: %v, %d bytes are left", name, mode, err, held())
			}
		}
	}
	k := newStateGateway(t, &responsesVendor{filler: size}, func(o *gateway.Options) {
		o.Admission.Memory, o.Admission.InUse = 64<<20, func() int64 { return 0 }
	})
	k.must(t, upstream.Responses, askResponse).Close()
	x := authenticated(t, asAccount(t, "local"), k.Gateway)
	if err := errors.Join(x.AcquireSlot(t.Context(), 0), x.Reserve(48<<20-size/2)); err != nil { // of the 48 MiB that one account may have
		t.Fatal(err)
	}
	for name, op := range storedOperations {
		if err := op.process(asAccount(t, "local"), k.Gateway, "resp_1"); !fault.Is(err, fault.ServiceUnavailable) {
			t.Errorf("%s without memory: %v", name, err)
		}
	}
	x.End(200, nil)
	if _, err := k.StoredResponse(asAccount(t, "local"), "resp_1"); err != nil || k.Load().Bodies != 0 {
		t.Error(err, fmt.Sprintf("%+v", k.Load()))
	}
}
