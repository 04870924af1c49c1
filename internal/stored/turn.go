package stored

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/responses/state"
)

// Turn is the part of one request for a response that concerns stored responses. A request
// without such a part has a nil Turn, on which only Reads, NeedsRequest and Discard are
// called. Its methods are for one goroutine at a time.
type Turn struct {
	responses *Responses
	who       Caller
	model     string   // public id
	stores    bool     // the response is to be kept
	previous  string   // the response that the request goes on from
	input     [][]byte // its own items, those that it refers to included, within its bytes

	// Where a vendor keeps what it goes on from, or, once there is one, its own response.
	channel, key string
	most         int64           // tokens of the input, with what such a vendor adds to it
	ctx          context.Context // of the answer: its values are those of what is stored

	// Its own response, once that is whole and is to be kept. The settlement stores row. put
	// is already stored, and the settlement decides whether it stays.
	row, put *state.Response
}

// Caller is whose request it is.
type Caller struct {
	Account, RequestID string
	Memory             Memory // of what is read for the request
}

// Begin returns the Turn of a request; nil if nothing is kept, or if the request breaks a rule.
func (s *Responses) Begin(r *responsesop.Request, who Caller) *Turn {
	if s.options.Mode == Off {
		r.RefuseState()
	}
	if s.options.Mode == Off || r.Problem.Found() {
		return nil
	}
	return &Turn{responses: s, who: who, model: r.Model, previous: r.PreviousResponseID, stores: !r.CountOnly && (r.Store == nil || *r.Store)}
}

// Reads reports whether what the request refers to has to be read, which may be much more
// than the request itself.
func (t *Turn) Reads(r *responsesop.Request) bool {
	return t != nil && (t.responses.options.Mode == AtVendors && r.Refers() || r.RefersHere())
}

// Routes are the channels that may answer a request.
type Routes struct {
	operation.Channels
	Prepaid bool // what has no price is refused, unless the channels pass it on
	// Only says that the channel and its key answer every request of the model. An empty key
	// means that it is not known.
	Only         bool
	Channel, Key string
}

// Expand puts the items that a request refers to into its input, so that bounds, price and
// hold are of what is sent. Where vendors keep responses it finds out at which of them these
// are. What the account does not have is refused by the check that follows. t is the Turn of
// the request. The error is a 503.
func (s *Responses) Expand(ctx context.Context, t *Turn, r *responsesop.Request, routes Routes) error {
	if r.Problem.Found() {
		return nil
	}
	switch s.options.Mode {
	case Off:
		if own := s.sharedNames(r, routes); len(own) > 0 {
			r.RefuseShared(own[0])
		}
		return nil
	case AtVendors:
		r.VendorState, r.DropIDs = true, true
		return t.locate(ctx, r, s.sharedNames(r, routes))
	}
	if err := t.expand(ctx, r, routes); err != nil || r.Problem.Found() {
		return err
	}
	return t.checkOwn(ctx, r, s.sharedNames(r, routes)) // those in what is stored too
}

// sharedNames are the names in the request of what lies in the vendor's account and must be
// the caller's own. They are in tools and items that reach a vendor whose channel does not
// pass them. What the input's text cites is only left out.
func (s *Responses) sharedNames(r *responsesop.Request, routes Routes) (own []responsesop.Reference) {
	r.DropCitations = r.Cites() && !(routes.Passes("file_id", "input") && routes.Passes("container_id", "input"))
	if !r.DeclaresHosted() || routes.Prepaid && !routes.Passes("tools", "tools") {
		return nil // no tool of the vendor's uses them
	}
	for _, ref := range r.Shared {
		if !routes.Passes(ref.Kind, "tools") {
			own = append(own, ref)
		}
	}
	if s.options.Mode != AtVendors && !routes.Passes("container_id", "input") { // which looks up all links
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
func (t *Turn) checkOwn(ctx context.Context, r *responsesop.Request, names []responsesop.Reference) error {
	for i, ref := range distinct(names) {
		if i == mostResponses {
			r.RefuseShared(ref)
			return nil
		}
		if found, err := t.responses.has(ctx, t.who.Account, ref.ID); err != nil || !found {
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

// locate finds the channel and the key at which a vendor keeps what a request refers to. Items
// that only name something are looked up too. If only one of those is missing, the request is
// sent without them, as to a vendor that stores nothing.
func (t *Turn) locate(ctx context.Context, r *responsesop.Request, shared []responsesop.Reference) error {
	seen, count := map[string]bool{}, 0
	for ref := range r.AllReferences(shared) {
		if count++; count > mostResponses {
			r.Problem.Refuse(ref.Param(), fmt.Sprintf("The request refers to more than %d stored items. Send the items themselves instead.", mostResponses))
			return nil
		}
		found, err := t.responses.Find(ctx, t.who.Account, ref.ID)
		switch missing := found == nil || found.Channel == "" || len(found.Body) > 0 || ref.Response && found.ID != ref.ID; {
		case err != nil:
			return err
		case missing && ref.Named && t.channel == "":
			r.VendorState = false
			return nil
		case missing && ref.Kind != "":
			r.RefuseShared(ref)
			return nil
		case missing:
			r.RefuseMissing(ref)
			return nil
		case t.channel != "" && (t.channel != found.Channel || t.key != found.Key):
			r.Problem.Refuse(ref.Param(), fmt.Sprintf("%q is kept by another vendor than what else the request refers to. Send the whole conversation instead.", clip(ref.ID)))
			return nil
		}
		t.channel, t.key, r.Added.AtVendor = found.Channel, found.Key, true
		if !seen[found.ID] {
			r.Added.Tokens = min(r.Added.Tokens+min(max(found.Tokens, 0), operation.MaxContext), operation.MaxContext)
		}
		seen[found.ID] = true
	}
	return nil
}

// expand inserts the stored conversation into the request, as if the client had sent it in
// full.
func (t *Turn) expand(ctx context.Context, r *responsesop.Request, routes Routes) error {
	t.input = r.InputItems()
	for i, ref := range distinct(r.OpenApprovals()) {
		if i == mostResponses {
			r.Problem.Refuse(ref.Param(), fmt.Sprintf("The request approves more than %d calls.", mostResponses))
			return nil
		}
		if found, err := t.responses.has(ctx, t.who.Account, ref.ID); err != nil || !found {
			r.RefuseMissing(ref)
			return err
		}
	}
	e := responsesop.Expansion{Own: t.input}
	if t.previous != "" || len(r.References) > 0 {
		q := recall{turn: t, r: r, routes: routes}
		var err error
		if e.Before, err = q.conversation(ctx); err == nil {
			err = q.resolve(ctx, e.Own)
		}
		if err != nil || r.Problem.Found() {
			return err
		}
	}
	if t.stores {
		e.Include = r.EncryptedReasoning()
	}
	own, err := r.Expand(e)
	if t.input = own; !t.stores {
		t.input = nil // they are not kept
	}
	return err
}

// recall reads what a request refers to, within the bounds of one request.
type recall struct {
	turn     *Turn
	r        *responsesop.Request
	routes   Routes
	count    int               // responses
	read     int               // bytes of them
	inserted int               // bytes of their items in the request, each as often as it stands there
	reserved int               // bytes for which memory is reserved
	items    map[string][]byte // by their ids, of the responses that were read
}

// open reads a response, by its id or an item's. It is nil if the account does not have
// it, and if that is too much; the request then has the problem.
func (q *recall) open(ctx context.Context, ref responsesop.Reference) (*state.Response, *responsesop.Stored, error) {
	if q.count++; q.count > mostResponses {
		q.r.Problem.Refuse(ref.Param(), fmt.Sprintf("The request goes on from more than %d responses. Send the conversation itself instead.", mostResponses))
		return nil, nil, nil
	}
	row, err := q.turn.responses.Find(ctx, q.turn.who.Account, ref.ID)
	if err != nil {
		return nil, nil, err
	}
	opened := q.turn.responses.Open(row)
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
	if bytes > MostBytes {
		q.r.Problem.Refuse(ref.Param(), fmt.Sprintf("The stored items that the request refers to have more than %d MiB. Send what is needed of them instead.", MostBytes>>20))
		return false, nil
	}
	if bytes > q.reserved {
		more := bytes - q.reserved
		q.reserved = bytes
		err = q.turn.who.Memory.Reserve(int64(more))
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

// again is an item of a response that is stored as part of the input. Only the vendor that has
// encrypted reasoning can read it, by the same account. Another refuses the request. So no
// vendor gets it if it is not certain which vendor is asked.
func (q *recall) again(row *state.Response, item []byte) []byte {
	sameVendor := q.routes.Only && row.Channel == q.routes.Channel && (q.routes.Key == "" || row.Key == q.routes.Key)
	return responsesop.Again(item, row.Model == q.r.Model, sameVendor)
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

// At is the channel at which a vendor keeps what the request goes on from, and the id of its
// key; empty for any.
func (t *Turn) At() (channel, key string) {
	return t.channel, t.key
}

// Quoted notes how many tokens the input of the request can have.
func (t *Turn) Quoted(most int64) { t.most = most }

// Answered notes which channel answers, and by which key. ctx has the values of the request.
func (t *Turn) Answered(ctx context.Context, channel, key string) {
	t.ctx, t.channel, t.key = ctx, channel, key
}

// NeedsRequest reports whether the bytes of the request are needed until its end.
func (t *Turn) NeedsRequest() bool { return t != nil && len(t.input) > 0 }

// Edit makes of a response what the client gets: one that says what it goes on from and
// whether it is stored. If ended says that the response is whole, Edit prepares what the
// settlement stores. So a client that has the end can go on from it.
func (t *Turn) Edit(response []byte, ended bool) []byte {
	o, err := rawjson.Index(response, nil, nil)
	if err != nil {
		return response
	}
	stored := t.stores
	if t.responses.options.Mode == AtVendors {
		stored = string(o.Raw("store")) == "true" // by the word of the vendor: of a bridge it is false
	}
	if status, _ := rawjson.String(o.Raw("status")); ended && status != "completed" && status != "incomplete" {
		stored = false // there is nothing to go on from
	}
	edits := append(make([]rawjson.Edit, 0, 2), rawjson.Set("store", strconv.AppendBool(nil, stored)))
	if t.previous != "" {
		edits = append(edits, rawjson.Set("previous_response_id", rawjson.Quote(nil, t.previous)))
	}
	edited := o.Apply(nil, edits...)
	if stored && ended {
		if err := t.prepare(&o, edited); err != nil {
			t.logUnstored(err)
			edited = o.Apply(nil, append(edits, rawjson.Set("store", []byte("false")))...)
		}
	}
	return edited
}

// logUnstored logs that a response was not stored. An account that keeps all that it may
// can have that of every request, and is in the log once a minute.
func (t *Turn) logUnstored(err error) {
	s := t.responses
	level := slog.LevelError
	if fault.Is(err, fault.InvalidRequest) {
		now, before := s.options.Now().UnixNano(), s.quotaLogged.Load()
		if before != 0 && now-before < int64(time.Minute) || !s.quotaLogged.CompareAndSwap(before, now) {
			return
		}
		level = slog.LevelWarn
	}
	s.options.Logger.Log(t.ctx, level, "storing a response failed", "request_id", t.who.RequestID, "account", t.who.Account, "error", err)
}

// prepare prepares the storing of a response that has ended well, which the client gets as
// it is edited. Where the meter stores responses, it does so with the settlement. Elsewhere
// the response is stored here, so that one that the store does not take says so.
func (t *Turn) prepare(o *rawjson.Object, edited []byte) (err error) {
	defer fault.Recover(&err)
	s := t.responses
	id, _ := rawjson.String(o.Raw("id"))
	if !responsesop.IsID(id) || id == t.previous { // or it would go on from itself
		return fmt.Errorf("its id is %q", clip(id))
	}
	now := s.options.Now()
	row := state.Response{
		ID: id, Account: t.who.Account, Created: now, Expires: now.Add(s.options.Retention),
		Previous: t.previous, Model: t.model, Channel: t.channel, Key: t.key, Items: responsesop.ItemIDs(o.Src),
	}
	if s.options.Mode == AtVendors {
		row.Tokens = responsesop.TokensOf(o, t.most, operation.MaxContext)
	} else {
		whole := responsesop.Stored{Input: t.input, Response: edited}.Encode()
		if len(whole) > MostBytes {
			return fmt.Errorf("with its input it has %d bytes, which no request can go on from", len(whole))
		}
		row.Body = s.options.Secrets.Seal(purpose, row.Account, whole)
	}
	if err := s.options.Store.Admit(row.Account, len(row.Body)); err != nil {
		return err
	}
	if s.options.Store.KeptBy(s.options.Meter) {
		t.row = &row
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), s.options.Timeout)
	defer cancel()
	if err := s.options.Store.Put(ctx, row); err != nil {
		return err
	}
	t.put = &row
	return nil
}

// Settled is the response that a settlement for a reason stores; none if it stores none. One
// that has ended well is kept, also if its client has not waited for the last event.
func (t *Turn) Settled(reason string) []billing.Record {
	if t.row == nil || reason != billing.ReasonComplete && reason != billing.ReasonClientGone {
		return nil
	}
	return []billing.Record{*t.row}
}

// Discard deletes the response that was stored before its settlement, which failed.
func (t *Turn) Discard() {
	if t == nil || t.put == nil {
		return
	}
	row, s := t.put, t.responses
	t.put = nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), s.options.Timeout)
	defer cancel()
	if _, err := s.Delete(ctx, row.Account, row.ID); err != nil {
		s.options.Logger.Error("deleting a response that was not settled failed", "request_id", t.who.RequestID, "account", row.Account, "response", row.ID, "error", err)
	}
}

// clip is a name from outside as a message repeats it.
func clip(name string) string {
	const most = 256 // bytes
	return safetext.Clean(safetext.Truncate(name, most))
}
