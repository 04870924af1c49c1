package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/operation"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/outage"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
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

// What a request may bring in by reference.
const (
	maxRecalled      = 1_000    // responses
	maxRecalledBytes = 32 << 20 // of their items
)

// sealedResponses is the purpose for which responses are encrypted.
const sealedResponses = "responses"

// responseState is what a request for a response has to do with those that are kept.
type responseState struct {
	call     *call
	stores   bool     // its own response is to be kept
	previous string   // the response that it goes on from
	input    [][]byte // its own items, those that it refers to included, within its bytes

	// Its own response, once that is whole and is to be kept: the settlement stores it (row),
	// or it is stored and the settlement decides whether it stays (put).
	row, put *state.Response

	// Where a vendor keeps what it goes on from, or, once there is one, its own response.
	channel, key string
	most         int64 // tokens of the input, with what such a vendor adds to it
}

// expandState puts the items that a request refers to into its input, so that bounds,
// price and hold are of what is sent. Where vendors keep responses it finds out at which
// of them these are. What the account does not have is refused by the check that follows.
func (c *call) expandState(ctx context.Context, r *responsesop.Request, m *Model) error {
	mode := c.g.options.Responses.Mode
	if mode == ResponsesOff {
		r.RefuseState()
	}
	if r.Problem.Found() {
		return nil
	}
	if mode == ResponsesOff {
		own := c.sharedNames(r)
		if len(own) > 0 {
			r.RefuseShared(own[0])
		}
		return nil
	}
	c.state = &responseState{
		call: c, previous: r.PreviousResponseID, stores: !r.CountOnly && (r.Store == nil || *r.Store),
	}
	if mode == ResponsesNative && r.Refers() || r.RefersHere() {
		done, err := c.admitReading(ctx, r, m)
		if err != nil {
			return err
		}
		defer done()
	}
	if mode == ResponsesNative {
		r.VendorState, r.DropIDs = true, true
		return c.state.locate(ctx, r, c.sharedNames(r))
	}
	if err := c.state.expand(ctx, r); err != nil || r.Problem.Found() {
		return err
	}
	return c.state.checkOwn(ctx, r, c.sharedNames(r)) // those in what is stored too
}

// sharedNames are the names in the request of what lies in the vendor's account that must be
// the caller's own: those of tools and items that reach a vendor whose channel does not pass
// them. What the input's text cites is only left out.
func (c *call) sharedNames(r *responsesop.Request) (own []responsesop.Reference) {
	r.DropCitations = r.Cites() && !(c.passing.Passes("file_id", "input") && c.passing.Passes("container_id", "input"))
	if !r.DeclaresHosted() || c.catalog.requirePrice && !c.passing.Passes("tools", "tools") {
		return nil // no tool of the vendor's uses them
	}
	for _, ref := range r.Shared {
		if !c.passing.Passes(ref.Kind, "tools") {
			own = append(own, ref)
		}
	}
	if c.g.options.Responses.Mode != ResponsesNative && !c.passing.Passes("container_id", "input") { // which looks up all links
		for _, link := range r.Links {
			if link.Member == "container_id" {
				own = append(own, link)
			}
		}
	}
	return own
}

// checkOwn has the request refused unless its account has stored a response that made what
// it names. No body is read for that.
func (s *responseState) checkOwn(ctx context.Context, r *responsesop.Request, names []responsesop.Reference) error {
	for i, ref := range distinct(names) {
		if i == maxRecalled {
			r.RefuseShared(ref)
			return nil
		}
		if found, err := s.call.g.hasResponse(ctx, s.call.principal.Account, ref.ID); err != nil || !found {
			r.RefuseShared(ref)
			return err
		}
	}
	return nil
}

// distinct are the references without those to an id that an earlier one refers to.
func distinct(refs []responsesop.Reference) []responsesop.Reference {
	seen := make(map[string]bool, len(refs))
	return slices.DeleteFunc(slices.Clone(refs), func(ref responsesop.Reference) bool {
		again := seen[ref.ID]
		seen[ref.ID] = true
		return again
	})
}

// admitReading admits a request that has what is stored read, which may be much more than
// the request itself. Its key has a slot and tokens meanwhile, until done is called, and its
// account can pay for the request as it came: what it becomes is paid by its hold.
func (c *call) admitReading(ctx context.Context, r *responsesop.Request, m *Model) (done func(), err error) {
	own := r.Quote(&m.facts, c.price, false)
	if err := c.acquireLease(ctx, own.Expected().Tokens()); err != nil {
		return nil, err
	}
	least := own.Least
	if least.IsZero() { // a count, of what a request must pay for
		least.Input = 1
	}
	p := c.principal
	if err := c.g.money.Check(ctx, money.Payer{Account: p.Account, Key: p.Key, Name: p.Name}, c.price, least); err != nil {
		c.releaseLease()
		return nil, err
	}
	return c.releaseLease, nil
}

// locate finds the channel and the key at which a vendor keeps what a request refers to.
// Items that only name something are looked up too: where all that is missing is one of
// those, the request is sent as to a vendor that stores nothing, without them.
func (s *responseState) locate(ctx context.Context, r *responsesop.Request, shared []responsesop.Reference) error {
	seen, count := map[string]bool{}, 0
	for ref := range r.AllReferences(shared) {
		if count++; count > maxRecalled {
			r.Problem.Refuse(ref.Param(), fmt.Sprintf("The request refers to more than %d stored items. Send the items themselves instead.", maxRecalled))
			return nil
		}
		found, err := s.call.g.findResponse(ctx, s.call.principal.Account, ref.ID)
		switch missing := found == nil || found.Channel == "" || len(found.Body) > 0 || ref.Response && found.ID != ref.ID; {
		case err != nil:
			return err
		case missing && ref.Named && s.channel == "":
			r.VendorState = false
			return nil
		case missing && ref.Kind != "":
			r.RefuseShared(ref)
			return nil
		case missing:
			r.RefuseMissing(ref)
			return nil
		case s.channel != "" && (s.channel != found.Channel || s.key != found.Key):
			r.Problem.Refuse(ref.Param(), fmt.Sprintf("%q is kept by another vendor than what else the request refers to. Send the whole conversation instead.", clip(ref.ID)))
			return nil
		}
		s.channel, s.key, r.Added.AtVendor = found.Channel, found.Key, true
		if !seen[found.ID] {
			r.Added.Tokens = min(r.Added.Tokens+min(max(found.Tokens, 0), operation.MaxContext), operation.MaxContext)
		}
		seen[found.ID] = true
	}
	return nil
}

// expand makes the request that a client would have sent who keeps its own conversation.
func (s *responseState) expand(ctx context.Context, r *responsesop.Request) error {
	s.input = r.InputItems()
	for i, ref := range distinct(r.OpenApprovals()) {
		if i == maxRecalled {
			r.Problem.Refuse(ref.Param(), fmt.Sprintf("The request approves more than %d calls.", maxRecalled))
			return nil
		}
		if found, err := s.call.g.hasResponse(ctx, s.call.principal.Account, ref.ID); err != nil || !found {
			r.RefuseMissing(ref)
			return err
		}
	}
	e := responsesop.Expansion{Own: s.input}
	if s.previous != "" || len(r.References) > 0 {
		q := recall{call: s.call, r: r}
		var err error
		if e.Before, err = q.conversation(ctx); err == nil {
			err = q.resolve(ctx, e.Own)
		}
		if err != nil || r.Problem.Found() {
			return err
		}
	}
	if s.stores {
		e.Include = r.EncryptedReasoning()
	}
	own, err := r.Expand(e)
	if s.input = own; !s.stores {
		s.input = nil // they are not kept
	}
	return err
}

// recall reads what a request refers to, within the bounds of one request.
type recall struct {
	call     *call
	r        *responsesop.Request
	count    int               // responses
	read     int               // bytes of them
	inserted int               // bytes of their items in the request, each as often as it stands there
	reserved int               // bytes for which memory is reserved
	items    map[string][]byte // by their ids, of the responses that were read
}

// open reads a response, by its id or an item's. It is nil if the account does not have
// it, and if that is too much; the request then has the problem.
func (q *recall) open(ctx context.Context, ref responsesop.Reference) (*state.Response, *responsesop.Stored, error) {
	if q.count++; q.count > maxRecalled {
		q.r.Problem.Refuse(ref.Param(), fmt.Sprintf("The request goes on from more than %d responses. Send the conversation itself instead.", maxRecalled))
		return nil, nil, nil
	}
	row, err := q.call.g.findResponse(ctx, q.call.principal.Account, ref.ID)
	if err != nil {
		return nil, nil, err
	}
	opened := q.call.g.openResponse(row)
	if opened == nil || ref.Response && row.ID != ref.ID {
		q.r.RefuseMissing(ref)
		return nil, nil, nil
	}
	q.read += len(row.Body)
	if ok, err := q.reserve(ref, q.read); err != nil || !ok {
		return nil, nil, err
	}
	return row, opened, nil
}

// insert counts an item that the request becomes larger by. One that a request names many
// times counts each time.
func (q *recall) insert(ref responsesop.Reference, item []byte) (ok bool, err error) {
	q.inserted += len(item)
	return q.reserve(ref, q.inserted)
}

// reserve reserves memory for this many bytes in all. It is false if that is too much; the
// request then has the problem.
func (q *recall) reserve(ref responsesop.Reference, bytes int) (ok bool, err error) {
	if bytes > maxRecalledBytes {
		q.r.Problem.Refuse(ref.Param(), fmt.Sprintf("The stored items that the request refers to have more than %d MiB. Send what is needed of them instead.", maxRecalledBytes>>20))
		return false, nil
	}
	if bytes > q.reserved {
		more := bytes - q.reserved
		q.reserved = bytes
		err = q.call.Reserve(int64(more))
	}
	return err == nil, err
}

// conversation are the items of the response that the request goes on from, and of those
// before it.
func (q *recall) conversation(ctx context.Context) ([][]byte, error) {
	var turns [][][]byte // the last one first
	for id := q.r.PreviousResponseID; id != ""; {
		ref := responsesop.PreviousResponse(id)
		row, opened, err := q.open(ctx, ref)
		if err != nil || opened == nil {
			return nil, err
		}
		turn := opened.Input
		for _, item := range opened.Output() {
			if again := q.again(row, item); again != nil {
				turn = append(turn, again)
			}
		}
		for _, item := range turn {
			if ok, err := q.insert(ref, item); err != nil || !ok {
				return nil, err
			}
		}
		turns, id = append(turns, turn), row.Previous
	}
	slices.Reverse(turns)
	return slices.Concat(turns...), nil
}

// again is an item of a response that is stored as part of the input. Only the vendor that
// has encrypted a thought can read it, by the same account: one that gets another's refuses
// the request, and so no vendor gets it where it is not certain which of them is asked.
func (q *recall) again(row *state.Response, item []byte) []byte {
	channel, key, only := q.call.catalog.router.Routes(upstream.Responses, q.r.Model).Only()
	return responsesop.Again(item, row.Model == q.r.Model, only && row.Channel == channel && (key == "" || row.Key == key))
}

// resolve replaces the references among the request's own items. Thoughts that cannot be
// read again become nil.
func (q *recall) resolve(ctx context.Context, input [][]byte) error {
	q.items = map[string][]byte{}
	for _, ref := range q.r.References {
		if _, known := q.items[ref.ID]; !known {
			row, opened, err := q.open(ctx, ref)
			if err != nil || opened == nil {
				return err
			}
			for id, item := range opened.Items() {
				q.items[id] = q.again(row, item)
			}
			if _, known := q.items[ref.ID]; !known { // it is the id of the response itself
				q.r.RefuseMissing(ref)
				return nil
			}
		}
		item := q.items[ref.ID]
		if ok, err := q.insert(ref, item); err != nil || !ok {
			return err
		}
		input[ref.Index] = item
	}
	return nil
}

// findResponse is the account's response by its id or an item's; nil if it has none.
func (g *Gateway) findResponse(ctx context.Context, account, id string) (_ *state.Response, err error) {
	if !responsesop.IsID(id) {
		return nil, nil
	}
	defer fault.Recover(&err)
	found, err := g.options.Responses.Store.Get(ctx, account, id)
	return found, outage.Error(err)
}

// hasResponse reports whether findResponse would find one.
func (g *Gateway) hasResponse(ctx context.Context, account, id string) (found bool, err error) {
	if !responsesop.IsID(id) {
		return false, nil
	}
	defer fault.Recover(&err)
	found, err = g.options.Responses.Store.Has(ctx, account, id)
	return found, outage.Error(err)
}

// openResponse decrypts a response. It is nil if there is nothing of it here, and if it
// was encrypted with a secret that the deployment no longer has.
func (g *Gateway) openResponse(row *state.Response) *responsesop.Stored {
	if row == nil || len(row.Body) == 0 {
		return nil
	}
	data, ok := g.secrets.Open(sealedResponses, row.Account, row.Body)
	opened, whole := responsesop.ReadStored(data)
	if !ok || !whole {
		g.options.Logger.Error("a stored response cannot be read: it was encrypted with another secret, or is damaged", "response", row.ID, "account", row.Account)
		return nil
	}
	return &opened
}

// editor is editAndStore; nil where the mode is ResponsesOff.
func (s *responseState) editor() func(response []byte, ended bool) []byte {
	if s == nil {
		return nil
	}
	return s.editAndStore
}

// needsRequest reports whether the bytes of the request are needed until its end.
func (s *responseState) needsRequest() bool { return s != nil && len(s.input) > 0 }

// editAndStore makes of a response what the client gets: one that says what it goes on
// from and whether it is stored. With ended, which says that it is whole, it prepares what
// the settlement stores, so that a client that has the end can go on from it.
func (s *responseState) editAndStore(response []byte, ended bool) []byte {
	o, err := rawjson.Index(response, nil, nil)
	if err != nil {
		return response
	}
	stored := s.stores
	if s.call.g.options.Responses.Mode == ResponsesNative {
		stored = string(o.Raw("store")) == "true" // by the word of the vendor: of a bridge it is false
	}
	if status, _ := rawjson.String(o.Raw("status")); ended && status != "completed" && status != "incomplete" {
		stored = false // there is nothing to go on from
	}
	edits := append(make([]rawjson.Edit, 0, 2), rawjson.Set("store", strconv.AppendBool(nil, stored)))
	if s.previous != "" {
		edits = append(edits, rawjson.Set("previous_response_id", rawjson.Quote(nil, s.previous)))
	}
	edited := o.Apply(nil, edits...)
	if stored && ended {
		if err := s.prepare(&o, edited); err != nil {
			s.call.g.logUnstored(s.call, err)
			edited = o.Apply(nil, append(edits, rawjson.Set("store", []byte("false")))...)
		}
	}
	return edited
}

// logUnstored logs that a response was not stored. An account that keeps all that it may
// can have that of every request, and is in the log once a minute.
func (g *Gateway) logUnstored(c *call, err error) {
	level := slog.LevelError
	if fault.Is(err, fault.InvalidRequest) {
		now, before := g.options.Now().UnixNano(), g.quotaLogged.Load()
		if before != 0 && now-before < int64(time.Minute) || !g.quotaLogged.CompareAndSwap(before, now) {
			return
		}
		level = slog.LevelWarn
	}
	g.options.Logger.Log(c.ctx, level, "storing a response failed", "request_id", c.id, "account", c.principal.Account, "error", err)
}

// prepare prepares the storing of a response that has ended well, which the client gets as
// it is edited. Where the meter stores responses, it does so with the settlement. Elsewhere
// the response is stored here, so that one that the store does not take says so.
func (s *responseState) prepare(o *rawjson.Object, edited []byte) (err error) {
	defer fault.Recover(&err)
	g := s.call.g
	id, _ := rawjson.String(o.Raw("id"))
	if !responsesop.IsID(id) || id == s.previous { // or it would go on from itself
		return fmt.Errorf("its id is %q", clip(id))
	}
	now := g.options.Now()
	row := state.Response{
		ID: id, Account: s.call.principal.Account, Created: now, Expires: now.Add(g.options.Responses.Retention),
		Previous: s.previous, Model: s.call.entry.model, Channel: s.channel, Key: s.key, Items: responsesop.ItemIDs(o.Src),
	}
	if g.options.Responses.Mode == ResponsesNative {
		row.Tokens = responsesop.TokensOf(o, s.most, operation.MaxContext)
	} else {
		whole := responsesop.Stored{Input: s.input, Response: edited}.Encode()
		if len(whole) > maxRecalledBytes {
			return fmt.Errorf("with its input it has %d bytes, which no request can go on from", len(whole))
		}
		row.Body = g.secrets.Seal(sealedResponses, row.Account, whole)
	}
	kept := g.options.Responses.Store
	if err := kept.Admit(row.Account, len(row.Body)); err != nil {
		return err
	}
	if kept.KeptBy(g.options.Meter) {
		s.row = &row
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.call.ctx), g.options.SettleTimeout)
	defer cancel()
	if err := kept.Put(ctx, row); err != nil {
		return err
	}
	s.put = &row
	return nil
}

// settled is the response that a settlement for a reason stores; none if it stores none. One
// that has ended well is kept, also if its client has not waited for the last event.
func (s *responseState) settled(reason string) []billing.Record {
	if s == nil || s.row == nil || reason != billing.ReasonComplete && reason != billing.ReasonClientGone {
		return nil
	}
	return []billing.Record{*s.row}
}

// discard deletes the response that was stored before its settlement, which failed.
func (s *responseState) discard() {
	if s == nil || s.put == nil {
		return
	}
	row, g := s.put, s.call.g
	s.put = nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.call.ctx), g.options.SettleTimeout)
	defer cancel()
	err := func() (err error) {
		defer fault.Recover(&err)
		_, err = g.options.Responses.Store.Delete(ctx, row.Account, row.ID)
		return err
	}()
	if err != nil {
		g.options.Logger.Error("deleting a response that was not settled failed", "request_id", s.call.id, "account", row.Account, "response", row.ID, "error", err)
	}
}
