package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// playFloor is the cheapest proxy that the standard library has: it looks at
// nothing. The arguments are the vendor's origin and whether copy buffers are
// pooled.
func playFloor(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	to, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 1024, DisableCompression: true, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true,
		},
	}
	if args[1] == "true" {
		proxy.BufferPool = &buffers{}
	}
	return serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this the server closes the request's body with the first flush. The
		// transport can still be reading that body, and then cuts the answer off.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	}), nil, "", in, out)
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
// ledger, and one log line per request. The arguments are the vendor's origin,
// a file for a CPU profile, which may be empty, whether the ledger is durable,
// and how many calls run at once, 0 for the usual.
func playGateway(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	keys, key, err := oneKey(ctx)
	if err != nil {
		return err
	}
	o, err := gatewayOptions(args[0])
	if err != nil {
		return err
	}
	shut, err := openLedger(ctx, &o, args[2] == "true")
	if err != nil {
		return err
	}
	defer shut()
	o.Authenticator = &auth.Keys{Store: keys}
	if o.Admission.MaxCalls, err = strconv.Atoi(args[3]); err != nil {
		return err
	}
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
	return serve(ctx, server.New(g, server.Options{}), nil, key.Reveal(), in, out)
}

const plenty = 1 << 50 // a limit that is counted and never reached

func oneKey(ctx context.Context) (*memory.Keys, secret.String, error) {
	k, token, err := auth.NewKey(auth.KeyOptions{
		Account: "acme", Name: "bench",
		Limits: auth.Limits{RPM: plenty, TPM: plenty, MaxConcurrent: plenty},
	})
	if err != nil {
		return nil, token, err
	}
	keys := &memory.Keys{}
	return keys, token, keys.Add(ctx, k)
}

// openLedger gives the gateway a ledger with one account: in memory, or in a
// SQLite file that shut removes.
func openLedger(ctx context.Context, o *gateway.Options, durable bool) (shut func(), err error) {
	const credit = 1_000_000_000 * billing.One
	if !durable {
		ledger := memory.NewLedger(memory.LedgerOptions{})
		o.Meter = ledger
		return func() {}, ledger.CreateAccount(ctx, "acme", credit)
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	db, err := sqlite.Open(ctx, filepath.Join(dir, "ledger.db"), sqlite.Options{})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ledger := db.Ledger()
	o.Meter, o.Idempotency, o.Tasks = ledger, ledger, ledger
	return func() { _, _ = db.Close(), os.RemoveAll(dir) }, ledger.CreateAccount(ctx, "acme", credit)
}

// gatewayOptions is everything but keys and ledger, in front of the vendor at an origin.
func gatewayOptions(vendor string) (o gateway.Options, err error) {
	keys := []secret.String{secret.New("vendor-key")}
	driver, err := openai.New(upstream.DriverOptions{BaseURL: vendor + "/v1", Keys: keys})
	if err != nil {
		return o, err
	}
	native, err := anthropic.New(upstream.DriverOptions{BaseURL: vendor, Keys: keys})
	if err != nil {
		return o, err
	}
	both, err := openai.New(upstream.DriverOptions{BaseURL: vendor + "/v1", Keys: keys, Wire: []upstream.Op{upstream.ChatCompletion, upstream.Responses}})
	if err != nil {
		return o, err
	}
	routing, err := router.New([]router.Channel{
		{Name: "vendor", Upstream: driver, Models: map[string]string{"gate-1": "vendor-model"}},
		{Name: "native", Upstream: native, Models: map[string]string{"gate-2": "vendor-model"}},
		{Name: "both", Upstream: both, Models: map[string]string{"gate-3": "vendor-model"}},
	}, router.Options{})
	if err != nil {
		return o, err
	}
	price, err := billing.NewPrice(
		billing.Rate{Unit: billing.Input, Amount: "2.5"}, billing.Rate{Unit: billing.Output, Amount: "10"})
	if err != nil {
		return o, err
	}
	return gateway.Options{
		Upstream: routing,
		Prices:   billing.NewPriceList(map[string]*billing.Price{"gate-1": price, "gate-2": price, "gate-3": price}),
		Logger:   slog.New(slog.NewJSONHandler(io.Discard, nil)),
	}, nil
}
