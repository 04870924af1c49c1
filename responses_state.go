package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/internal/money"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/seal"
	"github.com/tollhouse-ai/gateway/internal/stored"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
)

// ResponsesMode says where responses are kept that later requests go on from, by
// previous_response_id or by references to items.
type ResponsesMode string

// The modes. In each a request that refers to something that is not kept is refused.
const (
	ResponsesOff    ResponsesMode = "off"    // nowhere: vendors are asked to store nothing; the default
	ResponsesNative ResponsesMode = "native" // at vendors of responses that store them; the gateway keeps whose they are
	ResponsesOn     ResponsesMode = "on"     // in the gateway's store, encrypted; vendors are asked to store nothing
)

// ResponsesModes are all modes, as the configuration file spells them.
func ResponsesModes() []string {
	return []string{string(ResponsesOff), string(ResponsesNative), string(ResponsesOn)}
}

// ResponsesOptions say what is kept of responses. The zero value keeps nothing.
type ResponsesOptions struct {
	Mode ResponsesMode // empty means ResponsesOff
	// Store keeps them; nil means in memory. Of a store.DB give Responses(). With
	// ResponsesOn a Store that is not in memory needs Options.Secrets.
	Store state.Store
	// Retention is how long a response is kept; zero means 30 days.
	Retention time.Duration
}

func (o *ResponsesOptions) setDefaults(now func() time.Time) {
	o.Mode = cmp.Or(o.Mode, ResponsesOff)
	if o.Store == nil {
		o.Store = &memory.Responses{Now: now}
	}
	if o.Retention <= 0 {
		o.Retention = 30 * 24 * time.Hour
	}
}

// checkResponses refuses an unknown mode, and a store that remembers where the secret is
// random: after a restart nothing in it could be read.
func (o *Options) checkResponses() error {
	kept := &o.Responses
	if !slices.Contains(ResponsesModes(), string(kept.Mode)) {
		return fmt.Errorf("gateway: Options.Responses.Mode is %q; it is one of %s", kept.Mode, strings.Join(ResponsesModes(), ", "))
	}
	if _, forgets := kept.Store.(*memory.Responses); kept.Mode == ResponsesOn && !forgets && len(o.Secrets) == 0 {
		return errors.New("gateway: Options.Responses.Store is durable, but Options.Secrets is empty: the responses would be encrypted with a random secret, and could not be read after a restart; " +
			"give the Secret() of the store.DB, or secrets of your own")
	}
	return nil
}

// modes are those of package stored.
var modes = map[ResponsesMode]stored.Mode{ResponsesOff: stored.Off, ResponsesNative: stored.AtVendors, ResponsesOn: stored.Here}

func newStored(o *Options, secrets *seal.Secrets) *stored.Responses {
	kept := &o.Responses
	return stored.New(stored.Options{
		Mode: modes[kept.Mode], Store: kept.Store, Retention: kept.Retention, Meter: o.Meter,
		Timeout: o.SettleTimeout, Secrets: secrets, Now: o.Now, Logger: o.Logger,
	})
}

// expand has a request for a response go on from what is stored, before it is checked.
func (e *Entry) expand(ctx context.Context, r *responsesop.Request, m *Model) error {
	turn := e.g.stored.Begin(r, stored.Caller{Account: e.principal.Account, RequestID: e.ID, Memory: e})
	e.turn = turn
	routes := stored.Routes{Channels: (*passing)(&e.routes), Prepaid: e.catalog.requirePrice}
	if turn.Reads(r) {
		done, err := e.admitReading(ctx, r, m)
		if err != nil {
			return err
		}
		defer done()
		routes.Channel, routes.Key, routes.Only = e.catalog.router.Routes(upstream.Responses, r.Model).Only()
	}
	return e.g.stored.Expand(ctx, turn, r, routes)
}

// admitReading admits a request that has what is stored read, which may be much more than
// the request itself. Its key has a slot and tokens meanwhile, until done is called, and its
// account can pay for the request as it came: what it becomes is paid by its hold.
func (e *Entry) admitReading(ctx context.Context, r *responsesop.Request, m *Model) (done func(), err error) {
	own := r.Quote(&m.facts, e.price, false)
	if err := e.acquireLease(ctx, own.Expected().Tokens()); err != nil {
		return nil, err
	}
	least := own.Least
	if least.IsZero() { // a count, of what a request must pay for
		least.Input = 1
	}
	p := e.principal
	if err := e.g.money.Check(ctx, money.Payer{Account: p.Account, Key: p.Key, Name: p.Name}, e.price, least); err != nil {
		e.releaseLease()
		return nil, err
	}
	return e.releaseLease, nil
}
