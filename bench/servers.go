package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// playFloor is the cheapest proxy that the standard library has: it looks at
// nothing. The arguments are the vendor's address and whether copy buffers are
// pooled.
func playFloor(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	to := &url.URL{Scheme: "http", Host: args[0]}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 1024, DisableCompression: true, IdleConnTimeout: 30 * time.Second,
		},
	}
	if args[1] == "true" {
		proxy.BufferPool = &buffers{}
	}
	return serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this the server closes the request's body with the first
		// flush, which the transport may still be reading to its end: then
		// it cuts the answer off.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	}), "", in, out)
}

// buffers is a pool of the size that ReverseProxy would allocate.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// playGateway is the gateway with everything on: a key with limits, prices, a
// ledger, and one log line per request. The arguments are the vendor's address
// and a file for a CPU profile, which may be empty.
func playGateway(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	keys, key, err := oneKey(ctx)
	if err != nil {
		return err
	}
	o, err := house(ctx, args[0])
	if err != nil {
		return err
	}
	o.Authenticator = &auth.Keys{Store: keys}
	g, err := gateway.New(o)
	if err != nil {
		return err
	}
	if args[1] != "" {
		f, err := os.Create(args[1])
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return serve(ctx, server.New(g, server.Options{}), key.Reveal(), in, out)
}

const plenty = 1 << 50 // a limit that is counted and never reached

func oneKey(ctx context.Context) (*auth.MemoryKeys, secret.String, error) {
	k, token, err := auth.NewKey(auth.KeyOptions{
		Account: "acme", Name: "bench",
		Limits: auth.Limits{RPM: plenty, TPM: plenty, MaxConcurrent: plenty},
	})
	if err != nil {
		return nil, token, err
	}
	keys := &auth.MemoryKeys{}
	return keys, token, keys.Add(ctx, k)
}

// house is the gateway's other rooms, in front of the vendor.
func house(ctx context.Context, vendor string) (o gateway.Options, err error) {
	driver, err := openai.New(openai.Options{
		BaseURL: "http://" + vendor + "/v1", Keys: []secret.String{secret.New("vendor-key")},
	})
	if err != nil {
		return o, err
	}
	router, err := upstream.NewRouter([]upstream.Channel{{
		Name: "vendor", Upstream: driver, Models: map[string]string{"gate-1": "vendor-model"},
	}}, upstream.RouterOptions{})
	if err != nil {
		return o, err
	}
	price, err := billing.NewPrice(
		billing.Rate{Unit: billing.Input, Amount: "2.5"}, billing.Rate{Unit: billing.Output, Amount: "10"})
	if err != nil {
		return o, err
	}
	ledger := billing.NewLedger(billing.LedgerOptions{})
	err = ledger.CreateAccount(ctx, "acme", 1_000_000_000*billing.One)
	return gateway.Options{
		Upstream: router, Meter: ledger,
		Prices: billing.NewPriceList(map[string]*billing.Price{"gate-1": price}),
		Logger: slog.New(slog.NewJSONHandler(io.Discard, nil)),
	}, err
}
