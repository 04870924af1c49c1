package gateway_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// keyring knows the tokens of some principals.
type keyring map[string]*auth.Principal

func (k keyring) Authenticate(_ context.Context, token string) (*auth.Principal, error) {
	if p := k[token]; p != nil {
		return p, nil
	}
	return nil, fault.New(fault.Unauthorized, "Wrong key.")
}

func TestOnlyACallerWhoIsKnownEnters(t *testing.T) {
	refusal := fault.New(fault.RequestTooLarge, "Too much.")
	for name, row := range map[string]struct {
		caller gateway.Caller
		op     upstream.Op
		enter  fault.Code // the error of Enter
		do     fault.Code // and of Do
	}{
		"a good key":                {gateway.Caller{Token: "sk-1"}, upstream.ChatCompletion, "", ""},
		"a wrong key":               {gateway.Caller{Token: "sk-2"}, upstream.ChatCompletion, fault.Unauthorized, fault.InternalError},
		"refused by its server":     {gateway.Caller{Token: "sk-1", Refused: refusal}, upstream.ChatCompletion, fault.RequestTooLarge, fault.InternalError},
		"an operation that is none": {gateway.Caller{Token: "sk-1"}, "think", "", fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestGateway(t, &scriptedUpstream{text: chatAnswer("")}, "1", func(o *gateway.Options) {
				o.Authenticator = keyring{"sk-1": {Account: "local", Key: "k"}}
			})
			e, err := h.Enter(t.Context(), row.caller)
			if got := codeOf(err); got != row.enter || e.ID == "" || e.Context() == nil || (e.Principal() != nil) != (err == nil) {
				t.Errorf("got %q of %+v, id %q, want %q", got, e.Principal(), e.ID, row.enter)
			}
			slot := errors.Join(e.AcquireSlot(t.Context(), int64(len(askChat))), e.Reserve(1))
			if (slot == nil) != (err == nil) || slot != nil && !fault.Is(slot, fault.Unauthorized) {
				t.Errorf("a slot: %v", slot)
			}
			_, err = e.Do(t.Context(), &gateway.Request{Op: row.op, Body: []byte(askChat)})
			if got := codeOf(err); got != row.do {
				t.Errorf("got %q, want %q", got, row.do)
			}
			e.End(200, err)
			e.End(200, err)
			if l := h.Load(); l != (gateway.Load{}) {
				t.Errorf("after its end it has %+v", l)
			}
		})
	}
}

// codeOf is the code of an error; empty for none.
func codeOf(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}

// Release gives back the slot of a stream that is still read, but not its key's: the
// limiter's lease ends with the stream, when its tokens are known.
func TestAStreamThatIsReleasedKeepsItsKeysSlotUntilItEnds(t *testing.T) {
	in, out := io.Pipe()
	limiter := new(auth.MemoryLimiter)
	h := newTestGateway(t, &scriptedUpstream{body: in}, "1", func(o *gateway.Options) { o.Limiter = limiter })
	caller := &auth.Principal{Account: "local", Key: "one", Limits: auth.Limits{MaxConcurrent: 1}}
	go func() { _, _ = io.WriteString(out, chunk(`{"content":"four"}`)) }()
	e := authenticated(t, auth.NewContext(t.Context(), caller), h.Gateway)
	r, err := e.Do(t.Context(), &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(askChatStream)})
	must(t, err)
	e.Release()
	if _, _, err := limiter.Acquire(t.Context(), caller, "beside", 1); !fault.Is(err, fault.RateLimitExceeded) {
		t.Errorf("beside the stream: %v", err)
	}
	go func() { _, _ = io.WriteString(out, chatStream(usageChunk(20, 30))); _ = out.Close() }()
	drain(t, r.Stream)
	e.End(200, nil)
	if _, _, err := limiter.Acquire(t.Context(), caller, "after", 1); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestAnEntryIsAnsweredOnce(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{text: chatAnswer("")}, "1", nil)
	ask := gateway.Request{Op: upstream.ChatCompletion, Body: []byte(askChat)}
	e := authenticated(t, t.Context(), h.Gateway)
	if r, err := e.Do(t.Context(), &ask); err != nil || r.ID != e.ID {
		t.Fatalf("%v, id %s of %s", err, r.ID, e.ID)
	}
	if _, err := e.Do(t.Context(), &ask); !fault.Is(err, fault.InternalError) || !strings.Contains(err.Error(), "Entry") {
		t.Errorf("a second time: %v", err)
	}
	e.End(200, nil)
	if _, err := e.Estimate(t.Context(), &ask); !fault.Is(err, fault.InternalError) {
		t.Errorf("after the end: %v", err)
	}
	limited := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Key: "slow", Limits: auth.Limits{RPM: 1}})
	_, err := h.Enter(limited, gateway.Caller{})
	over, refused := h.Enter(limited, gateway.Caller{})
	if err != nil || !fault.Is(refused, fault.RateLimitExceeded) {
		t.Fatalf("%v, then %v", err, refused)
	}
	if _, err := over.Do(limited, &ask); !fault.Is(err, fault.InternalError) {
		t.Errorf("over its limit: %v", err)
	}
	if r, err := h.Do(limited, gateway.Caller{}, &ask); !fault.Is(err, fault.RateLimitExceeded) || r.ID == "" || r.Close() != nil {
		t.Errorf("all at once: %v", err)
	}
}
