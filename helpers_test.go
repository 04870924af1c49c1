package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// scriptedUpstream is an upstream that answers every call with the same bytes, and
// remembers what it got.
type scriptedUpstream struct {
	body  io.Reader // wins over text; read once
	text  string
	err   error
	mu    sync.Mutex
	calls []*upstream.Call
	gone  chan struct{} // closed when a reply's body was closed
}

func (s *scriptedUpstream) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	if s.err != nil {
		return nil, s.err
	}
	r := s.body
	if r == nil {
		r = strings.NewReader(s.text)
	}
	if p, ok := r.(*io.PipeReader); ok { // the port's rule: what ends ctx ends the body
		context.AfterFunc(ctx, func() { _ = p.CloseWithError(context.Cause(ctx)) })
	}
	kind := "application/json"
	if call.Stream {
		kind = "text/event-stream"
	}
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {kind}}, Body: &closing{Reader: r, gone: s.gone}}, nil
}

// sent is the body of the last call.
func (s *scriptedUpstream) sent(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) == 0 {
		t.Fatal("the upstream was not called")
	}
	data, err := s.calls[len(s.calls)-1].Body.Bytes()
	must(t, err)
	return string(data)
}

func (s *scriptedUpstream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

type closing struct {
	io.Reader
	once sync.Once
	gone chan struct{}
}

func (c *closing) Close() error {
	c.once.Do(func() {
		if c.gone != nil {
			close(c.gone)
		}
		if p, ok := c.Reader.(io.Closer); ok {
			_ = p.Close()
		}
	})
	return nil
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// jsonReply is a vendor's answer.
func jsonReply(text string) *upstream.Reply {
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}
}

// newRouter chooses among channels.
func newRouter(t testing.TB, channels ...router.Channel) *router.Router {
	t.Helper()
	r, err := router.New(channels, router.Options{})
	must(t, err)
	return r
}

// testGateway is a gateway over one upstream with one funded account.
type testGateway struct {
	*gateway.Gateway
	ledger memory.Ledger
	credit billing.Money // of the account at the beginning
}

// newTestGateway builds a gateway whose model "m" costs 1 micro-unit a token both
// ways, and whose account "local" has the credit.
func newTestGateway(t testing.TB, up upstream.Upstream, credit string, edit func(*gateway.Options)) *testGateway {
	t.Helper()
	ledger := memory.NewLedger(memory.LedgerOptions{})
	amount, err := billing.ParseMoney(credit)
	must(t, err)
	must(t, ledger.CreateAccount(context.Background(), "local", amount))
	o := gateway.Options{
		Upstream: up, Meter: ledger,
		Prices: pricedAt("m", price(t, "1", "1")),
		Models: []gateway.Model{{ID: "m", MaxOutput: 10_000}},
	}
	if edit != nil {
		edit(&o)
	}
	g, err := gateway.New(o)
	must(t, err)
	h := &testGateway{g, ledger, amount}
	t.Cleanup(func() { h.check(t) })
	return h
}

// rates is a price of units and amounts in turn.
func rates(t testing.TB, pairs ...string) *billing.Price {
	t.Helper()
	var rates []billing.Rate
	for i := 0; i < len(pairs); i += 2 {
		rates = append(rates, billing.Rate{Unit: billing.Unit(pairs[i]), Amount: pairs[i+1]})
	}
	return newPrice(t, rates...)
}

func newPrice(t testing.TB, rates ...billing.Rate) *billing.Price {
	t.Helper()
	p, err := billing.NewPrice(rates...)
	must(t, err)
	return p
}

// price is one of tokens, a million each.
func price(t testing.TB, input, output string) *billing.Price {
	t.Helper()
	return rates(t, "input", input, "output", output)
}

// pricedAt is a list of one model.
func pricedAt(model string, p *billing.Price) *billing.PriceList {
	return billing.NewPriceList(map[string]*billing.Price{model: p})
}

// newPricedGateway is a gateway with one model and its price.
func newPricedGateway(t testing.TB, up upstream.Upstream, credit, model string, price *billing.Price) *testGateway {
	t.Helper()
	return newTestGateway(t, up, credit, func(o *gateway.Options) {
		o.Models, o.Prices = nil, pricedAt(model, price)
	})
}

// check asserts the ledger's invariants, and that nothing is held any more.
func (h *testGateway) check(t testing.TB) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := h.ledger.Verify(context.Background()); err != nil {
		t.Errorf("the ledger does not add up: %v", err)
	}
	if b := h.balance(t); b.Held != 0 {
		t.Errorf("%s is still held", b.Held)
	}
}

// run has the gateway do its background work until the returned function is called.
func (h *testGateway) run(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func (h *testGateway) balance(t testing.TB) billing.Balance {
	t.Helper()
	b, err := h.ledger.Balance(context.Background(), "local")
	must(t, err)
	return b
}

// spent is what the account has paid of its credit.
func (h *testGateway) spent(t testing.TB) billing.Money {
	t.Helper()
	return h.credit - h.balance(t).Posted
}

// authenticated is a request that was counted, and has not asked for anything yet.
func authenticated(t testing.TB, ctx context.Context, g *gateway.Gateway) *gateway.Entry {
	t.Helper()
	e, err := g.Enter(ctx, gateway.Caller{})
	must(t, err)
	return e
}

// do sends one raw request, with an idempotency key if one is given.
func (h *testGateway) do(ctx context.Context, op upstream.Op, body string, key ...string) (*gateway.Response, error) {
	return h.Do(ctx, gateway.Caller{}, &gateway.Request{Op: op, Body: []byte(body), IdempotencyKey: strings.Join(key, "")})
}

// ask sends a chat completion.
func (h *testGateway) ask(ctx context.Context, body string, key ...string) (*gateway.Response, error) {
	return h.do(ctx, upstream.ChatCompletion, body, key...)
}

// must sends a request that must not fail.
func (h *testGateway) must(t testing.TB, op upstream.Op, body string, key ...string) *gateway.Response {
	t.Helper()
	r, err := h.do(t.Context(), op, body, key...)
	must(t, err)
	return r
}

// complete sends a request that must not fail, and reads its answer to the end if
// it is a stream.
func (h *testGateway) complete(t testing.TB, op upstream.Op, body string, key ...string) (*gateway.Response, string) {
	t.Helper()
	r := h.must(t, op, body, key...)
	if r.Stream == nil {
		return r, string(r.Body)
	}
	return r, drain(t, r.Stream)
}

// drain reads a stream to its end.
func drain(t testing.TB, s *gateway.Stream) string {
	t.Helper()
	var all strings.Builder
	for {
		b, err := s.Next()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		all.Write(b)
	}
}

// finish reads an answer to its end, and returns what was delivered and how it ended.
func finish(r *gateway.Response, err error) (text string, _ error) {
	var next func() ([]byte, error)
	switch {
	case r.Stream != nil:
		next = r.Stream.Next
	case r.Audio != nil:
		next = r.Audio.Next
	}
	for next != nil && err == nil {
		var data []byte
		if data, err = next(); err == nil {
			text += string(data)
		}
	}
	switch {
	case r.Stream != nil:
		return text, r.Stream.Err()
	case r.Audio != nil:
		return text, r.Audio.Err()
	}
	return string(r.Body), err
}

// micro is n millionths of a unit: the price of n tokens of "m".
func micro(n int64) billing.Money { return billing.Money(n) * 1000 }

const wait = time.Minute // how long a test waits for what must come
