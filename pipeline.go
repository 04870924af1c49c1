package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/deliver"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/internal/outage"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// setRequest makes r, of the endpoint of spec, the request of the entry.
func (e *Entry) setRequest(spec *operation.Spec, r operation.Request) {
	e.spec, e.request, e.info = spec, r, r.Info()
}

// dropRequest releases the request, which is not sent again.
func (e *Entry) dropRequest() {
	e.request, e.info = nil, operation.Info{Form: e.info.Form, Status: e.info.Status, Wait: e.info.Wait}
}

// run takes a parsed request from its model to its answer, which is the entry's response. Every
// request passes here, in process or over HTTP. A whole answer is settled when run returns; a
// stream or audio settles itself. The numbers are the HTTP statuses with which a step fails.
func (e *Entry) run(ctx context.Context) (err error) {
	e.record.op, e.record.model, e.record.stream = e.spec.Op, e.info.Model, e.info.Stream != nil
	if !e.slot.Held() { // over HTTP it has one: it was taken before the body was read
		if err := e.AcquireSlot(ctx, 0); err != nil { // 503
			return err
		}
	}
	m, err := e.findModel() // 400, 403, 404
	if err != nil {
		return err
	}
	refers := false // to something that may have been deleted since
	if r, ok := e.request.(*responsesop.Request); ok && r.Refers() {
		refers = true
		if replayed, err := e.replayed(ctx); replayed || err != nil {
			return err
		}
	}
	if err := e.check(ctx, m); err != nil { // 400; the quote
		return err
	}
	if !refers {
		if replayed, err := e.replayed(ctx); replayed || err != nil { // 409, or the first answer
			return err
		}
	}
	e.bind(ctx, m)
	defer func() {
		if p := recover(); p != nil {
			err = fault.FromPanic(p)
		}
		err = e.leave(ctx, err)
	}()
	if err := e.g.calls.add(e); err != nil { // 503
		return err
	}
	if e.maxCost != 0 && e.info.Counter == nil { // counting costs nothing
		if err := e.quote.Limit(e.price, e.maxCost); err != nil { // 402
			return err
		}
	}
	if err := e.acquireLease(e.ctx, e.quote.Expected().Tokens()); err != nil { // 429
		return err
	}
	switch r := e.request.(type) {
	case *speechop.Request:
		return e.speak(r)
	case *videoop.Request:
		return e.submit(r)
	}
	if e.info.Counter != nil {
		return e.count()
	}
	if err := e.reserve(e.order()); err != nil { // 402, 409, 503
		return err
	}
	maxOutput := e.quote.MaxOutput(&e.hold.Hold)
	out := e.request.Outgoing(maxOutput)
	if e.info.Stream != nil {
		return e.answerStream(out, maxOutput) // 502, or the vendor's
	}
	return e.answerWhole(out, maxOutput)
}

// leave closes the entry, unless a delivery does that at its end. A request whose key another
// one has claimed since is answered as that one, if that was.
func (e *Entry) leave(ctx context.Context, err error) error {
	if e.response.Stream != nil || e.response.Audio != nil {
		return nil
	}
	e.close()
	if fault.Is(err, fault.IdempotencyConflict) && e.idempotencyKey != "" {
		if replayed, _ := e.replayed(ctx); replayed {
			return nil
		}
	}
	if err != nil {
		return fault.From(err)
	}
	if e.info.Wait {
		e.waited(ctx)
	}
	e.dropRequest() // an answer may take long to be written
	return nil
}

// passing is what the channels of a model do with members of a request: its routes, as the
// rules of the request ask them.
type passing router.Routes

// Passes reports whether the channels pass a member on as it is, see [operation.Channels].
func (p *passing) Passes(name, spelled string) bool {
	return router.Routes(*p).Passes(name, spelled, true)
}

// findModel finds the model of a request that its key may use. Its order is fixed: unknown
// model, not allowed, wrong endpoint, no price. What is stored is read for such a model alone.
func (e *Entry) findModel() (*Model, error) {
	id := e.info.Model
	if id == "" {
		if err := e.request.Check(new(operation.Facts), nil, (*passing)(&e.routes)); err != nil {
			return nil, err
		}
	}
	e.routes, e.price = e.catalog.router.Routes(e.spec.Op, id), e.catalog.prices.Price(id)
	served := e.routes.Supported()
	var m *Model
	ok := served || e.catalog.router.Serves(id) // for other operations
	if ok {
		m, ok = e.catalog.priced(id, e.price)
	}
	if !ok {
		e.noteUnpriced()
		return m, e.unknownModel()
	}
	if m.withdrawn(e.started) {
		return m, noModel(m.ID)
	}
	if !e.principal.MayUse(m.ID) {
		return m, notAllowed(m.ID).With(func(refusal *fault.Error) {
			refusal.Code, refusal.Status = cmp.Or(e.spec.Forbidden, refusal.Code), refusal.HTTPStatus()
		})
	}
	if m.Kind != "" && !slices.Contains(e.spec.Kinds, string(m.Kind)) || !served && !e.catalog.supports(e.spec, m.ID) {
		return m, e.errWrongEndpoint(m)
	}
	if e.catalog.requirePrice && missingUnits(e.spec, e.price) != "" {
		e.noteUnpriced()
		return m, e.unknownModel()
	}
	return m, nil
}

// unknownModel is the refusal of a model that does not exist, in the words of the endpoint.
func (e *Entry) unknownModel() error {
	if e.spec.Unknown != nil {
		return e.spec.Unknown(e.info.Model)
	}
	return noModel(e.info.Model)
}

// check checks the request: what it refers to, the rules of its endpoint, fields without a
// price. Then it is known what the request may cost.
func (e *Entry) check(ctx context.Context, m *Model) (err error) {
	if r, ok := e.request.(*responsesop.Request); ok {
		if err := e.expand(ctx, r, m); err != nil {
			return err
		}
	}
	if err := e.request.Check(&m.facts, e.price, (*passing)(&e.routes)); err != nil {
		return err
	}
	passed, err := e.checkUnpriced()
	if err != nil {
		return err
	}
	e.quote = e.request.Quote(&m.facts, e.price, passed)
	if e.turn != nil {
		e.turn.Quoted(e.quote.Least.Input + e.quote.Least.CacheWrite)
	}
	return nil
}

// checkUnpriced refuses, where billing is prepaid, what costs money without a
// price or chooses another model or account, unless the model's channels take it. A field
// that the gateway does not know is left out, unless the channels take or rename it. passed
// says that some such field may reach the vendor.
func (e *Entry) checkUnpriced() (passed bool, err error) {
	if e.catalog.requirePrice {
		if err := e.checkRenamed(); err != nil {
			return false, err
		}
	}
	if e.request.Unpriced(e.header, nil) == nil { // as nearly all are
		return false, nil
	}
	if !e.catalog.requirePrice {
		return true, nil
	}
	return e.checkPassed()
}

// checkPassed is checkUnpriced of a request that has such a field.
func (e *Entry) checkPassed() (passed bool, err error) {
	err = e.request.Unpriced(e.header, func(name, spelled string) bool {
		passes := e.routes.Passes(name, spelled, !slices.Contains(e.spec.Translated, name)) ||
			!rule.Unpriced(name) && e.routes.Renames(spelled)
		passed = passed || passes
		return passes
	})
	return passed, err
}

// checkRenamed is checkUnpriced of the fields that some channel renames to one
// that has no price, by their new names.
func (e *Entry) checkRenamed() error {
	return e.routes.EachRename(func(from, to string) error {
		if !rule.Unpriced(to) { // as nearly all are not
			return nil
		}
		var raw []byte
		if e.info.Form != nil {
			sent := func(p upstream.Part) bool { return p.Name == from && p.Size > 0 }
			if !slices.ContainsFunc(e.info.Form.Parts, sent) {
				return nil
			}
		} else {
			o, err := rawjson.Index(e.info.Source, nil, nil)
			if err != nil {
				return rule.Unacceptable(err)
			}
			if raw = o.Raw(from); raw == nil {
				return nil
			}
		}
		return rule.CheckRenamed(from, to, raw, e.spec.Scope)
	})
}

// errWrongEndpoint is the refusal of a model that serves another endpoint, which it names
// where the kind of the model says it.
func (e *Entry) errWrongEndpoint(m *Model) error {
	refusal := fault.Invalid("model", fmt.Sprintf("The model %q does not serve %s.", m.ID, e.spec.Path))
	for _, served := range all.Specs() {
		if served != e.spec && slices.Contains(served.Kinds, string(m.Kind)) && e.catalog.router.Supports(served.Op, m.ID) {
			refusal.Message = fmt.Sprintf("The model %q is of kind %s: call %s, not %s.", m.ID, m.Kind, served.Path, e.spec.Path)
			break
		}
	}
	refusal.Code = cmp.Or(e.spec.Mismatch, refusal.Code)
	return refusal
}

// replayed answers a request that repeats an earlier one with its idempotency key, and reports
// whether it is one. Else the entry has a claim to the key, if it has a key.
func (e *Entry) replayed(ctx context.Context) (bool, error) {
	if e.idempotencyKey == "" {
		return false, nil
	}
	content, err := contentOf(&e.info)
	if err != nil {
		return false, fault.Wrap(fault.InternalError, "The gateway cannot read the request any more.", err)
	}
	key := idempotency.Key{Account: e.principal.Account, Operation: string(e.spec.Op), Key: e.idempotencyKey}
	claim, first, err := e.g.replay.Claim(ctx, key, content, e.ID)
	if err != nil || first == nil {
		e.claim = claim
		return false, err
	}
	e.record.replayed, e.record.receipt = true, &first.Receipt
	h := first.Header.Clone()
	if h == nil {
		h = make(http.Header)
	}
	h["X-Request-Id"] = []string{first.Receipt.ID}
	h["Idempotent-Replayed"] = []string{"true"}
	if first.Receipt.PriceVersion != "" && h.Get("Content-Type") != eventStream {
		h[chargeHeader] = []string{first.Receipt.Charge.String()}
	}
	e.respond(Response{Status: e.info.Status, Header: h, Body: first.Body, Replayed: true})
	e.dropRequest()
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

// answerRecord is what a settlement keeps for a repeated request; nil if the request has no key.
func (e *Entry) answerRecord(header http.Header, body []byte) *idempotency.Record {
	if e.claim == nil {
		return nil
	}
	return e.claim.Answer(header, body, cmp.Or(e.spec.MostKept, idempotency.MaxAnswer))
}

// bind gives the request a context of its own, which does not end with the client's: a vendor
// makes and bills an answer whether or not somebody waits for it. A shutdown ends it, and the
// delivery of an answer that a client can leave.
func (e *Entry) bind(client context.Context, m *Model) {
	e.model, e.client = m, via.Context{Context: client, Trail: e.trail}
	if e.turn != nil {
		e.only, e.key = e.turn.At()
	}
	e.ctx, e.cancel = context.WithCancelCause((*via.Lasting)(&e.client))
}

// acquireLease takes the limiter's lease: a concurrency slot of the key, and the tokens
// that the request may consume.
func (e *Entry) acquireLease(ctx context.Context, tokens int64) (err error) {
	defer fault.Recover(&err)
	if e.observed {
		defer e.spent(&e.record.phases.Admit, e.g.options.Now())
	}
	lease, limits, err := e.g.options.Limiter.Acquire(ctx, e.principal, e.ID, tokens)
	if limits.Requests.Limit == 0 { // the request was counted before
		limits.Requests = e.limits.Requests
	}
	e.limits = limits
	if err != nil {
		return outage.Error(err)
	}
	e.lease = lease
	return nil
}

// order says what the request's hold is for.
func (e *Entry) order() money.Order {
	return money.Order{
		Payer: money.Payer{Account: e.principal.Account, Key: e.principal.Key, Name: e.principal.Name},
		Wanted: billing.HoldRequest{
			RequestID: e.ID, Operation: string(e.spec.Op), Model: e.model.ID, Price: e.price,
			Bound: e.quote.Bound, Usual: e.quote.Usual, Least: e.quote.Least, Firm: e.quote.Firm,
		},
		Quote: &e.quote, Claim: e.claim, Step: e.model.HoldTokens,
	}
}

// reserve makes the request's hold, and with it the claim to its idempotency key, before any
// upstream is asked. See [money.Money.Hold] for its errors.
func (e *Entry) reserve(o money.Order) error {
	if e.observed {
		defer e.spent(&e.record.phases.Hold, e.g.options.Now())
	}
	return e.g.money.Hold(e.ctx, o, &e.hold)
}

// capture ends the request's hold; see [money.Hold.Capture] for its error. Later calls do
// nothing.
func (e *Entry) capture(u billing.Usage, reason string, o money.Outcome) error {
	if e.observed {
		defer e.spent(&e.record.phases.Settle, e.g.options.Now())
	}
	o.Reason, o.Channel, o.Failed = reason, e.channel, e.failed
	var with []billing.Record
	if e.turn != nil {
		with = e.turn.Settled(reason)
	}
	receipt, err := e.hold.Capture(e.ctx, u, o, with...)
	if err != nil {
		e.turn.Discard()
	}
	if receipt != nil {
		e.record.receipt, e.record.charge = receipt, receipt.Charge.String()
	}
	return err
}

// answerWhole asks for a whole answer, of at most maxOutput output tokens where that is not 0,
// settles it, and responds with it.
func (e *Entry) answerWhole(out operation.Outgoing, maxOutput int64) error {
	answer, reply, err := e.send(out)
	if err != nil {
		return e.fail(err)
	}
	header := e.answered(reply, maxOutput, out.Omitted)
	if e.turn != nil {
		answer.Body = e.turn.Edit(answer.Body, true)
	}
	values := []string{"application/json", ""} // of two headers, in one allocation
	header["Content-Type"] = values[:1:1]
	end := money.Outcome{Answer: e.answerRecord(header, answer.Body), Said: answer.Said, Whole: new(billing.Attempt)}
	if n := len(e.record.attempts); n > 0 {
		last := &e.record.attempts[n-1]
		end.Whole.Model, end.Whole.StartedAt, end.Whole.Duration = last.Model, last.Started, last.Duration
	}
	if err := e.capture(answer.Usage, billing.ReasonComplete, end); err != nil {
		return err
	}
	if e.hold.Price != nil {
		values[1] = e.record.charge
		header[chargeHeader] = values[1:]
	}
	e.respond(Response{Header: header, Body: answer.Body, Dropped: reply.Dropped})
	return nil
}

const (
	eventStream  = "text/event-stream"
	chargeHeader = "X-Gateway-Charge"
)

// answered records who answered, and makes the headers of the answer. The vendor was limited to
// maxOutput output tokens, 0 for no limit. omitted was not sent; drivers name more such fields
// in reply.Dropped, which has all of them then, bounded.
func (e *Entry) answered(reply *upstream.Reply, maxOutput int64, omitted []string) http.Header {
	e.channel = reply.Channel
	if e.turn != nil {
		e.turn.Answered(e.ctx, reply.Channel, reply.Key)
	}
	if len(omitted) > 0 {
		reply.Dropped = slices.Concat(omitted, reply.Dropped)
	}
	h := make(http.Header, 4)
	if maxOutput > 0 {
		h.Set("X-Gateway-Max-Tokens", strconv.FormatInt(maxOutput, 10))
	}
	if reply.Dropped = dropped.Bounded(reply.Dropped); len(reply.Dropped) > 0 {
		h.Set("X-Gateway-Dropped", strings.Join(reply.Dropped, ", "))
	}
	e.model.announce(h)
	return h
}

// respond makes r, which has no ID, the response of the entry.
func (e *Entry) respond(r Response) {
	to := &e.response // a heartbeat may read its ID and its limits meanwhile
	to.Header, to.Status, to.Body, to.Stream, to.Audio = r.Header, r.Status, r.Body, r.Stream, r.Audio
	to.Dropped, to.Replayed, to.task = r.Dropped, r.Replayed, r.task
}

// fail settles a request that has no answer, and returns the client's error. It costs
// nothing, unless the caller's own part of it was refused: then the parts that were answered
// are charged, or others could be had for nothing. Its key is kept without an answer, so that
// a duplicate is not charged.
func (e *Entry) fail(err error) error {
	end := deliver.EndOf(e.ctx, &e.client, err)
	e.record.clientGone = end.Gone
	var used billing.Usage
	if deliver.CallersOwn(err) {
		if used = e.parts.answered(); !used.IsZero() {
			e.channel = e.lastChannel()
		}
	}
	_ = e.capture(used, end.Reason, money.Outcome{}) // retried if it fails; the client gets why the call failed
	return end.Err
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
func (e *Entry) recordAttempts(r operation.Request, reply *upstream.Reply) {
	if reply == nil { // a panic
		return
	}
	if e.record.attempts == nil {
		e.record.attempts = reply.Attempts
	} else {
		e.record.attempts = append(e.record.attempts, reply.Attempts...)
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
			t.Used = r.Ordered(&e.model.facts, e.hold.Price)
		}
		e.failed = append(e.failed, t)
	}
}

// lastChannel is the channel that was asked last; empty if none was.
func (e *Entry) lastChannel() string {
	if n := len(e.record.attempts); n > 0 {
		return e.record.attempts[n-1].Channel
	}
	return ""
}

// close gives back whatever the entry still has; a hold that nothing has settled is
// released without a charge. At last the gateway forgets it: once no entry runs,
// a shutdown is complete. Later calls do nothing.
func (e *Entry) close() {
	if e.hold.Open() {
		_ = e.capture(billing.Usage{}, billing.ReasonInternal, money.Outcome{}) // retried if it fails
	}
	e.releaseLease()
	e.cancel(nil)
	if e.info.Form != nil {
		e.g.closeForm(e, e.info.Form)
	}
	e.g.calls.remove(e)
}

// release gives back the slot, the memory of body and answer, and the lease of an operation
// on what is stored, for which nothing runs: any other ends with the work, in close. Later
// calls do nothing.
func (e *Entry) release() {
	if e.ctx == nil {
		e.releaseLease()
	}
	e.g.admission.Leave(&e.slot)
}

// releaseLease ends the limiter's lease, if there is one, with the tokens that were settled.
func (e *Entry) releaseLease() {
	lease := e.lease
	if lease == nil {
		return
	}
	e.lease = nil
	var err error
	defer func() {
		if err != nil {
			e.g.options.Logger.Error("releasing rate-limit lease failed", "request_id", e.ID, "error", err)
		}
	}()
	defer fault.Recover(&err)
	lease.Release(e.hold.Tokens())
}
