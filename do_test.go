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

func TestTheBodyIsReadOnceTheCallerIsKnown(t *testing.T) {
	refusal := fault.New(fault.RequestTooLarge, "Too much.")
	for name, row := range map[string]struct {
		request gateway.Request
		read    bool // the body was read
		err     fault.Code
	}{
		"a good key":                {gateway.Request{Op: upstream.ChatCompletion, Token: "sk-1"}, true, ""},
		"a wrong key":               {gateway.Request{Op: upstream.ChatCompletion, Token: "sk-2"}, false, fault.Unauthorized},
		"refused by its server":     {gateway.Request{Op: upstream.ChatCompletion, Token: "sk-1", Refused: refusal}, false, fault.RequestTooLarge},
		"not an operation":          {gateway.Request{Token: "sk-1"}, true, ""},
		"an operation that is none": {gateway.Request{Op: "think", Token: "sk-1"}, true, fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestGateway(t, &scriptedUpstream{text: chatAnswer("")}, "1", func(o *gateway.Options) {
				o.Authenticator = keyring{"sk-1": {Account: "local", Key: "k"}}
			})
			read, q := false, row.request
			q.Read = func(r *gateway.Response) error {
				read = true
				if p := r.Principal(); p == nil || p.Account != "local" || r.ID == "" {
					t.Errorf("%+v, id %q", p, r.ID)
				}
				q.Body = []byte(askChat)
				return r.Admit(t.Context(), int64(len(askChat)))
			}
			r, err := h.Do(t.Context(), &q)
			if read != row.read || row.err == "" && err != nil || row.err != "" && !fault.Is(err, row.err) || r.ID == "" {
				t.Errorf("read %t, %v", read, err)
			}
			r.End(200, err)
			r.End(200, err)
			if l := h.Load(); l != (gateway.Load{}) {
				t.Errorf("after its end it has %+v", l)
			}
		})
	}
}

// Release gives back the slot of a stream that is still read, but not its key's: the
// limiter's lease ends with the stream, when its tokens are known.
func TestAStreamThatIsReleasedKeepsItsKeysSlotUntilItEnds(t *testing.T) {
	in, out := io.Pipe()
	limiter := new(auth.MemoryLimiter)
	h := newTestGateway(t, &scriptedUpstream{body: in}, "1", func(o *gateway.Options) { o.Limiter = limiter })
	caller := &auth.Principal{Account: "local", Key: "one", Limits: auth.Limits{MaxConcurrent: 1}}
	go func() { _, _ = io.WriteString(out, chunk(`{"content":"four"}`)) }()
	r, err := h.ask(auth.NewContext(t.Context(), caller), askChatStream)
	must(t, err)
	r.Release()
	if _, _, err := limiter.Acquire(t.Context(), caller, "beside", 1); !fault.Is(err, fault.RateLimitExceeded) {
		t.Errorf("beside the stream: %v", err)
	}
	go func() { _, _ = io.WriteString(out, chatStream(usageChunk(20, 30))); _ = out.Close() }()
	drain(t, r.Stream)
	r.End(200, nil)
	if _, _, err := limiter.Acquire(t.Context(), caller, "after", 1); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestARequestFollowsOneThatWaitsForItsOperation(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{text: chatAnswer("")}, "1", nil)
	first, err := h.Do(t.Context(), &gateway.Request{ClientID: "mine"})
	must(t, err)
	ask := gateway.Request{Op: upstream.ChatCompletion, Body: []byte(askChat), Follows: first}
	second, err := h.Do(t.Context(), &ask)
	if err != nil || second.ID != first.ID {
		t.Fatalf("%v, id %s after %s", err, second.ID, first.ID)
	}
	if _, err := h.Do(t.Context(), &ask); !fault.Is(err, fault.InternalError) || !strings.Contains(err.Error(), "Follows") {
		t.Errorf("a second operation: %v", err)
	}
	second.End(200, nil)
	if _, err := h.Do(t.Context(), &gateway.Request{Follows: first}); !fault.Is(err, fault.InternalError) {
		t.Errorf("after the end: %v", err)
	}
	limited := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Key: "slow", Limits: auth.Limits{RPM: 1}})
	_, err = h.Do(limited, new(gateway.Request))
	over, refused := h.Do(limited, new(gateway.Request))
	if err != nil || !fault.Is(refused, fault.RateLimitExceeded) {
		t.Fatalf("%v, then %v", err, refused)
	}
	for name, failed := range map[string]*gateway.Response{"a request over its limit": over, "none": new(gateway.Response)} {
		if _, err := h.Do(limited, &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(askChat), Follows: failed}); !fault.Is(err, fault.InternalError) {
			t.Errorf("%s is followed: %v", name, err)
		}
	}
	unknown, err := h.Do(t.Context(), &gateway.Request{Refused: errors.New("no")})
	if err == nil || unknown.Principal() != nil || unknown.Context() == nil {
		t.Fatal(err)
	}
	if err := errors.Join(unknown.Admit(t.Context(), 0), unknown.ReserveMemory(1)); !fault.Is(err, fault.Unauthorized) {
		t.Error(err)
	}
}
