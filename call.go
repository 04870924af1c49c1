package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/admission"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/operation"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/internal/outage"
	"github.com/tollhouse-ai/gateway/internal/replay"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/internal/stored"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// call is one request from its id to its log line. It owns all that the request takes,
// and gives it back in two steps, each of which does nothing when it is repeated. close
// ends the work: the hold, the idempotency key, the limiter's lease, the context, the form
// and the entry among the running calls; a Stream or an Audio, which takes the call over,
// does that at its own end. release gives back the rest when the answer is written: the
// slot and the memory of request and answer.
type call struct {
	g         *Gateway
	id        string
	catalog   *catalog // of the moment when it began
	started   time.Time
	outer     context.Context // of the request, as the Observer made it; nil before it knows
	observing callContext     // what outer is where there is an Observer
	observed  bool            // there is one, for whom more is measured
	begun     bool            // its caller was let in
	ended     bool            // its log line is written

	// Of the request.
	clientID       string
	idempotencyKey string
	header         http.Header // that travels on
	query          string      // likewise
	sessionName    string      // as the caller names it beside the body; never to be logged
	trail          *via.Trail  // the gateways that it has passed, with this one
	principal      *auth.Principal
	limits         auth.State        // what is left of the principal's
	spec           *operation.Spec   // of its endpoint; nil until the request is parsed
	request        operation.Request // nil once it is not needed any more: it may have megabytes
	info           operation.Info    // of the request
	model          *Model            // of the catalog, and not to be changed
	passing        passing           // what its channels do with the request
	price          *billing.Price    // of the model; nil if it costs nothing
	quote          operation.Quote   // of the request by the model and its price

	// While it runs.
	client    via.Context // the client's, of which ctx is made; its end ends ctx where the call follows it
	ctx       context.Context
	cancel    context.CancelCauseFunc
	unfollow  func() bool // stops following the client's context; nil where the call does not
	heartbeat func([]byte)
	only      string        // the channel that is asked; empty for any that serves the model
	key       string        // and its key; empty for any
	channel   string        // that answered
	routes    router.Routes // the channels that may answer, as the catalog had them

	// What it has taken.
	slot  admission.Slot // among the running calls, with the memory of its body and answers
	lease auth.Lease     // nil when it is released
	claim *replay.Claim  // to the idempotency key, which the hold makes; nil for none
	hold  money.Hold
	body  io.Closer // of the upstream's answer, where it reaches the client piece by piece; else nil

	// What came of it.
	failed []billing.Attempt // that the operator pays for
	turn   *stored.Turn      // of a request for a response; nil where none are kept
	tap    operation.Tap     // of a stream; nil for any other
	parts  *parts            // of a request that was split

	entry    logEntry
	response Response
}

// logEntry is what the log line has besides the call itself.
type logEntry struct {
	op          upstream.Op
	model       string
	stream      bool
	attempts    []upstream.Attempt
	receipt     *billing.Receipt // nil until it is settled
	charge      string           // of the receipt
	clientGone  bool             // the client disconnected
	replayed    bool             // the answer is an earlier request's
	affinity    string           // what became of its session; empty where no upstream answered
	firstByteAt time.Duration    // until the first of a stream or of audio was there
	phases      Phases
}

// newEntry begins a request. It pins the models, channels and prices of this moment.
func (g *Gateway) newEntry() *Entry {
	id := g.options.NewID("req_")
	e := &Entry{ID: id, call: call{id: id, g: g, trail: g.trail, catalog: g.catalog.Load(), started: g.options.Now(), observed: len(g.observers.all) > 0}}
	e.response.ID, e.response.call = id, &e.call
	return e
}

// setRequest makes r, of the endpoint's, the call's request.
func (c *call) setRequest(spec *operation.Spec, r operation.Request) {
	c.spec, c.request, c.info = spec, r, r.Info()
}

// dropRequest releases the request, which is not sent again.
func (c *call) dropRequest() {
	c.request, c.info = nil, operation.Info{Form: c.info.Form, Status: c.info.Status, Wait: c.info.Wait}
}

// run takes a parsed request through the pipeline: admission, check, idempotency,
// call. Every request passes here, in process or over HTTP. The answer is the
// call's response.
func (c *call) run(ctx context.Context) error {
	c.entry.op, c.entry.model, c.entry.stream = c.spec.Op, c.info.Model, c.info.Stream != nil
	if !c.slot.Held() { // over HTTP it has one: it was taken before the body was read
		if err := c.AcquireSlot(ctx, 0); err != nil {
			return err
		}
	}
	m, err := c.findModel()
	if err != nil {
		return err
	}
	r, ok := c.request.(*responsesop.Request)
	first := ok && r.Refers() // what it refers to may have been deleted since
	if first {
		if replayed, err := c.replayed(ctx); replayed || err != nil {
			return err
		}
	}
	if err := c.check(ctx, m); err != nil {
		return err
	}
	if !first {
		if replayed, err := c.replayed(ctx); replayed || err != nil {
			return err
		}
	}
	c.bind(ctx, m)
	_, err = c.start()
	if fault.Is(err, fault.IdempotencyConflict) && c.idempotencyKey != "" { // another request may have claimed the key since, and been answered
		if replayed, _ := c.replayed(ctx); replayed {
			return nil
		}
	}
	if err != nil {
		return fault.From(err)
	}
	if c.info.Wait {
		c.waited(ctx)
	}
	if c.response.Stream == nil && c.response.Audio == nil {
		c.dropRequest() // an answer may take long to be written
	}
	return nil
}

// replayed answers a request that repeats an earlier one with its idempotency key, and reports
// whether it is one. Else the call has a claim to the key, if it has a key.
func (c *call) replayed(ctx context.Context) (bool, error) {
	if c.idempotencyKey == "" {
		return false, nil
	}
	content, err := contentOf(&c.info)
	if err != nil {
		return false, fault.Wrap(fault.InternalError, "The gateway cannot read the request any more.", err)
	}
	key := idempotency.Key{Account: c.principal.Account, Operation: string(c.spec.Op), Key: c.idempotencyKey}
	claim, first, err := c.g.replay.Claim(ctx, key, content, c.id)
	if err != nil || first == nil {
		c.claim = claim
		return false, err
	}
	c.entry.replayed, c.entry.receipt = true, &first.Receipt
	h := first.Header.Clone()
	if h == nil {
		h = make(http.Header)
	}
	h["X-Request-Id"] = []string{first.Receipt.ID}
	h["Idempotent-Replayed"] = []string{"true"}
	if first.Receipt.PriceVersion != "" && h.Get("Content-Type") != eventStream {
		h[chargeHeader] = []string{first.Receipt.Charge.String()}
	}
	c.respond(Response{Status: c.info.Status, Header: h, Body: first.Body, Replayed: true})
	c.dropRequest()
	return true, nil
}

// contentOf is what tells two requests with the same key apart: their bytes, or of
// forms the names, file names and contents of the parts.
func contentOf(r *operation.Info) (idempotency.Content, error) {
	if r.Form != nil {
		return r.Form.Sum()
	}
	return sha256.Sum256(r.Source), nil
}

// answerRecord is what a settlement keeps for a repeated request; nil if the call has no key.
func (c *call) answerRecord(header http.Header, body []byte) *idempotency.Record {
	if c.claim == nil {
		return nil
	}
	return c.claim.Answer(header, body, cmp.Or(c.spec.MostKept, idempotency.MaxAnswer))
}

// bind gives the call a context of its own, which does not end with the client's: a vendor
// makes and bills an answer whether or not somebody waits for it. A shutdown ends it. See
// follow for answers that a client can leave.
func (c *call) bind(client context.Context, m *Model) {
	c.model, c.client = m, via.Context{Context: client, Trail: c.trail}
	if c.turn != nil {
		c.only, c.key = c.turn.At()
	}
	c.ctx, c.cancel = context.WithCancelCause((*via.Lasting)(&c.client))
}

// follow has left called when the client's context ends.
func (c *call) follow(left func(cause error)) {
	c.unfollow = context.AfterFunc(&c.client, func() { left(context.Cause(&c.client)) })
}

// start runs the call to its answer: limits, hold, upstream, settlement. A whole
// answer is settled when start returns it; a stream settles itself.
func (c *call) start() (result *Response, err error) {
	defer func() {
		if result == nil || result.Stream == nil && result.Audio == nil {
			c.close()
		}
	}()
	defer fault.Recover(&err)
	if err := c.g.calls.add(c); err != nil {
		return nil, err
	}
	if err := c.acquireLease(c.ctx, c.quote.Expected().Tokens()); err != nil {
		return nil, err
	}
	switch r := c.request.(type) {
	case *speechop.Request:
		return c.speak(r)
	case *videoop.Request:
		return c.submit(r)
	}
	if c.info.Counter != nil {
		return c.count()
	}
	if err := c.reserve(c.order()); err != nil {
		return nil, err
	}
	maxOutput := c.quote.MaxOutput(&c.hold.Hold)
	out := c.request.Outgoing(maxOutput)
	var s *Stream
	var first *events
	var answer *operation.Answer
	var reply *upstream.Reply
	if c.info.Stream != nil {
		s = newStream(c, maxOutput)
		first, reply, err = c.sendStream(out)
	} else {
		answer, reply, err = c.send(out)
	}
	if err != nil {
		if s != nil {
			s.stopHeartbeat()
		}
		return nil, c.fail(err)
	}
	c.channel = reply.Channel
	if c.turn != nil {
		c.turn.Answered(c.ctx, reply.Channel, reply.Key)
	}
	if len(out.Omitted) > 0 {
		reply.Dropped = slices.Concat(out.Omitted, reply.Dropped)
	}
	header := resultHeader(reply, maxOutput)
	c.model.announce(header)
	if s != nil {
		return c.respondStream(s, first, reply, header), nil
	}
	return c.respondWhole(answer, reply, header)
}

// acquireLease takes the limiter's lease: a concurrency slot of the key, and the tokens
// that the request may consume.
func (c *call) acquireLease(ctx context.Context, tokens int64) (err error) {
	defer fault.Recover(&err)
	if c.observed {
		defer c.spent(&c.entry.phases.Admit, c.g.options.Now())
	}
	lease, limits, err := c.g.options.Limiter.Acquire(ctx, c.principal, c.id, tokens)
	if limits.Requests.Limit == 0 { // the request was counted before
		limits.Requests = c.limits.Requests
	}
	c.limits = limits
	if err != nil {
		return outage.Error(err)
	}
	c.lease = lease
	return nil
}

// order says what the call's hold is for.
func (c *call) order() money.Order {
	return money.Order{
		Payer: money.Payer{Account: c.principal.Account, Key: c.principal.Key, Name: c.principal.Name},
		Wanted: billing.HoldRequest{
			RequestID: c.id, Operation: string(c.spec.Op), Model: c.model.ID, Price: c.price,
			Bound: c.quote.Bound, Usual: c.quote.Usual, Least: c.quote.Least, Firm: c.quote.Firm,
		},
		Quote: &c.quote, Claim: c.claim, Step: c.model.HoldTokens,
	}
}

// reserve makes the call's hold, and with it the claim to its idempotency key, before any
// upstream is asked. See [money.Money.Hold] for its errors.
func (c *call) reserve(o money.Order) error {
	if c.observed {
		defer c.spent(&c.entry.phases.Hold, c.g.options.Now())
	}
	return c.g.money.Hold(c.ctx, o, &c.hold)
}

// capture ends the call's hold; see [money.Hold.Capture] for its error. Later calls do
// nothing.
func (c *call) capture(u billing.Usage, reason string, o money.Outcome) error {
	if c.observed {
		defer c.spent(&c.entry.phases.Settle, c.g.options.Now())
	}
	if c.tap != nil {
		o.Said = c.tap.Said()
	}
	o.Reason, o.Channel, o.Failed = reason, c.channel, c.failed
	var with []billing.Record
	if c.turn != nil {
		with = c.turn.Settled(reason)
	}
	receipt, err := c.hold.Capture(c.ctx, u, o, with...)
	if err != nil {
		c.turn.Discard()
	}
	if receipt != nil {
		c.entry.receipt, c.entry.charge = receipt, receipt.Charge.String()
	}
	return err
}

// respondStream responds with the stream that begins with first.
func (c *call) respondStream(s *Stream, first *events, reply *upstream.Reply, header http.Header) *Response {
	header["Content-Type"] = []string{eventStream}
	if c.claim != nil {
		s.header = header
	}
	readOn := c.readOnLimit(reply.Drain) // before the request is dropped
	s.begin(first)
	s.follow(readOn)
	reply.Header = nil
	return c.respond(Response{Header: header, Stream: s, Dropped: reply.Dropped})
}

// respondWhole settles an answer that does not stream, and responds with it.
func (c *call) respondWhole(answer *operation.Answer, reply *upstream.Reply, header http.Header) (*Response, error) {
	if c.turn != nil {
		answer.Body = c.turn.Edit(answer.Body, true)
	}
	values := []string{"application/json", ""} // of two headers, in one allocation
	header["Content-Type"] = values[:1:1]
	end := money.Outcome{Answer: c.answerRecord(header, answer.Body), Said: answer.Said, Whole: new(billing.Attempt)}
	if n := len(c.entry.attempts); n > 0 {
		last := &c.entry.attempts[n-1]
		end.Whole.Model, end.Whole.StartedAt, end.Whole.Duration = last.Model, last.Started, last.Duration
	}
	if err := c.capture(answer.Usage, billing.ReasonComplete, end); err != nil {
		return nil, err
	}
	if c.hold.Price != nil {
		values[1] = c.entry.charge
		header[chargeHeader] = values[1:]
	}
	return c.respond(Response{Header: header, Body: answer.Body, Dropped: reply.Dropped}), nil
}

const (
	eventStream  = "text/event-stream"
	chargeHeader = "X-Gateway-Charge"
)

// resultHeader makes the headers of a result. Drivers name fields of the caller's in
// reply.Dropped, which it bounds.
func resultHeader(reply *upstream.Reply, maxOutput int64) http.Header {
	h := make(http.Header, 4)
	if maxOutput > 0 {
		h.Set("X-Gateway-Max-Tokens", strconv.FormatInt(maxOutput, 10))
	}
	if reply.Dropped = dropped.Bounded(reply.Dropped); len(reply.Dropped) > 0 {
		h.Set("X-Gateway-Dropped", strings.Join(reply.Dropped, ", "))
	}
	return h
}

// respond makes r, which has no ID, the response of the call.
func (c *call) respond(r Response) *Response {
	to := &c.response // a heartbeat may read its ID and its limits meanwhile
	to.Header, to.Status, to.Body, to.Stream, to.Audio = r.Header, r.Status, r.Body, r.Stream, r.Audio
	to.Dropped, to.Replayed, to.task = r.Dropped, r.Replayed, r.task
	return to
}

// fail settles a call that has no answer, and returns the client's error. It costs
// nothing, unless the caller's own part of it was refused: then the parts that were answered
// are charged, or others could be had for nothing. Its key is kept without an answer, so that
// a duplicate is not charged.
func (c *call) fail(err error) error {
	reason, clientErr := c.endReason(err)
	var used billing.Usage
	if callersOwn(err) {
		if used = c.parts.answered(); !used.IsZero() {
			c.channel = c.lastChannel()
		}
	}
	_ = c.capture(used, reason, money.Outcome{}) // retried if it fails; the client gets why the call failed
	return clientErr
}

// endReason is why a call ends whose answer failed with err, and the error that its client
// gets. If its context has ended, that is the reason, and err only what followed.
func (c *call) endReason(err error) (reason string, clientErr error) {
	cause := context.Cause(c.ctx)
	switch {
	case errors.Is(cause, errShuttingDown):
		reason, clientErr = billing.ReasonShutdown, errShuttingDown
	case cause != nil, fault.Is(err, fault.ClientGone):
		c.entry.clientGone = true
		return billing.ReasonClientGone, c.clientError()
	default:
		reason, clientErr = billing.ReasonUpstreamFailed, err
	}
	if fault.Is(clientErr, fault.InternalError) {
		reason = billing.ReasonInternal
	}
	return reason, clientErr
}

// clientError is the error of a call whose client has disconnected.
func (c *call) clientError() *fault.Error { return contextError(&c.client) }

// contextError is the error of a client's context, which wraps why it ended; that of a client
// which closed its answer, where it has not.
func contextError(ctx context.Context) *fault.Error {
	err, cause := ctx.Err(), context.Cause(ctx)
	var own *fault.Error
	switch {
	case errors.As(cause, &own):
		return own
	case cause != nil && !errors.Is(cause, err):
		err = errors.Join(err, cause)
	}
	return fault.From(cmp.Or(err, context.Canceled))
}

// failureOf is what an error says of the vendor; nil if it says nothing.
func failureOf(err error) (f *upstream.Failure) {
	errors.As(err, &f)
	return f
}

// recordAttempts records the attempts of one call to the router, made for r: the request
// or a part of it. The failed ones are kept with the receipt, together with what their
// vendors may bill: the operator bears that. A channel that could not say the request has
// failed at nothing.
func (c *call) recordAttempts(r operation.Request, reply *upstream.Reply) {
	if reply == nil { // a panic
		return
	}
	if c.entry.attempts == nil {
		c.entry.attempts = reply.Attempts
	} else {
		c.entry.attempts = append(c.entry.attempts, reply.Attempts...)
	}
	for _, a := range reply.Attempts {
		if a.Err == nil {
			continue
		}
		if f := failureOf(a.Err); f != nil && f.Unasked { // it was passed over
			continue
		}
		t := billing.Attempt{
			Channel: a.Channel, Model: a.Model, StartedAt: a.Started, Duration: a.Duration,
			Code: string(safetext.Code(fault.From(a.Err).Code)), Status: a.Status, Billable: a.Sent && !a.Refused && a.Status < 400,
		}
		if t.Billable {
			t.Used = r.Ordered(&c.model.facts, c.hold.Price)
		}
		c.failed = append(c.failed, t)
	}
}

// lastChannel is the channel that was asked last; empty if none was.
func (c *call) lastChannel() string {
	if n := len(c.entry.attempts); n > 0 {
		return c.entry.attempts[n-1].Channel
	}
	return ""
}

// close gives back whatever the call still has; a hold that nothing has settled is
// released without a charge. At last the gateway forgets the call: once it has none,
// a shutdown is complete. Later calls do nothing.
func (c *call) close() {
	if c.hold.Open() {
		_ = c.capture(billing.Usage{}, billing.ReasonInternal, money.Outcome{}) // retried if it fails
	}
	c.releaseLease()
	if c.unfollow != nil {
		c.unfollow()
	}
	c.cancel(nil)
	if c.body != nil {
		_ = c.body.Close() // its end was judged before
	}
	if c.info.Form != nil {
		c.g.closeForm(c, c.info.Form)
	}
	c.g.calls.remove(c)
}

// release gives back the slot, the memory of body and answer, and the lease of an operation
// on what is stored, for which nothing runs: any other ends with the work, in close. Later
// calls do nothing.
func (c *call) release() {
	if c.ctx == nil {
		c.releaseLease()
	}
	c.g.admission.Leave(&c.slot)
}

// releaseLease ends the limiter's lease, if there is one, with the tokens that were settled.
func (c *call) releaseLease() {
	lease := c.lease
	if lease == nil {
		return
	}
	c.lease = nil
	var err error
	defer func() {
		if err != nil {
			c.g.options.Logger.Error("releasing rate-limit lease failed", "request_id", c.id, "error", err)
		}
	}()
	defer fault.Recover(&err)
	lease.Release(c.hold.Tokens())
}
