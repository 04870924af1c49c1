package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/quota"
	"github.com/tollhouse-ai/gateway/upstream/router"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// delivery is an answer that reaches the client piece by piece: the part that
// events and audio have in common. It has taken the call over, and ends once: by
// its last piece, by an error, or by the end of the call's context, which ends it
// between two calls of Next too.
type delivery struct {
	c      *call
	header http.Header // what the client was sent, for a duplicate

	mu        sync.Mutex // guards what follows against the end of the call's context
	ended     bool
	busy      bool        // within Next, whose goroutine then owns the answer
	cancelled func()      // settles the answer of a call whose context ended; mu is held
	unwatch   func() bool // ends the watch over the call's context
	err       error       // why it ended badly; nil after its good end

	copied []byte // all that was delivered, if a duplicate may ask for it
	rest   []byte // what Read still owes
}

// watch has cancelled called when the call's context ends; mu is held.
func (d *delivery) watch(cancelled func()) {
	d.cancelled = cancelled
	d.unwatch = context.AfterFunc(d.c.ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.ended && !d.busy {
			d.cancelled()
		}
	})
}

// enter begins a Next; it reports false if the answer has ended.
func (d *delivery) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = !d.ended
	return d.busy
}

// leave ends a Next.
func (d *delivery) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
	if !d.ended && d.c.ctx.Err() != nil {
		d.cancelled()
	}
}

// copyForReplay copies what goes out, up to just over what is kept.
func (d *delivery) copyForReplay(out []byte) {
	if d.c.x.claim != nil && len(d.copied) <= idempotency.MaxAnswer {
		d.copied = append(d.copied, out...)
	}
}

// read gives the bytes of next as an io.Reader does.
func (d *delivery) read(p []byte, next func() ([]byte, error)) (n int, err error) {
	if len(d.rest) == 0 {
		if d.rest, err = next(); err != nil {
			return 0, err
		}
	}
	n = copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// Err is why the answer ended badly; nil after its good end. It waits for a
// settlement that is under way, so that a Meter or an Observer must not ask.
func (d *delivery) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Receipt is what the call cost; false until the answer has ended. It waits for a
// settlement that is under way, as Err does.
func (d *delivery) Receipt() (billing.Receipt, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.c.x.response.Receipt()
}

// Stream is a streamed answer on its way to the client. Next, Await, Read and
// Close are for one goroutine at a time.
type Stream struct {
	delivery // its mutex guards tap and the fields of Stream against the heartbeat
	tap      tap
	events   *events // the accepted stream

	lastSent  time.Time // when the client last got something
	heartbeat *time.Timer

	out       []byte // reused by Next
	copiedOut int    // how much of out is copied for a duplicate
	tail      []byte // the error event of an end between two calls of Next

	lost       error         // another process has ended the hold; nil if none did
	drainLimit time.Duration // how long it is read on after its client left; 0 for not at all
	drainTimer *time.Timer   // ends a drain; nil while the client is there

	coveredTokens int64     // output tokens that the hold covers; 0 means all
	extension     int64     // output tokens of the next extension of the hold
	holdExhausted bool      // the last extension was refused
	saved         int64     // output tokens at the last checkpoint
	savedAt       time.Time // when that was; at first, when the stream began
	meterRetryAt  int64     // output tokens until which a meter that failed is not asked
}

// batch is how many bytes of ready events Next gathers before it returns.
const batch = 32 << 10

// newStream prepares the stream before the upstream is asked, so that a client
// hears something while it waits.
func newStream(c *call) *Stream {
	now := c.x.g.options.Now()
	s := &Stream{delivery: delivery{c: c}, tap: c.op.tap(c.op), lastSent: now, savedAt: now, extension: c.model.HoldTokens}
	c.tap = s.tap
	if c.heartbeat != nil && c.x.g.options.Heartbeat > 0 {
		s.mu.Lock() // the timer's goroutine reads it
		s.heartbeat = time.AfterFunc(c.x.g.options.Heartbeat, s.sendHeartbeat)
		s.mu.Unlock()
	}
	return s
}

// begin watches over the call, and notes how much output the hold covers, if
// that is less than the upstream may produce.
func (s *Stream) begin(accepted *events, maxOutput int64) {
	s.mu.Lock() // what it watches over may end at once
	s.events = accepted
	s.dropRequest()
	s.watch(s.cancel)
	s.mu.Unlock()
	h, e := s.c.hold, s.c.op.bounds.exposure
	if e == nil || h.Price == nil || h.Available == billing.Unlimited {
		return
	}
	allowed := e.outputLimit(s.c.model, maxOutput)
	if covered := pays(h.Price, h.Amount, e.inputHeld(s.c.model, h), allowed); covered < allowed {
		s.coveredTokens = max(covered, 1)
	}
}

// dropRequest releases the request, which nobody sends again: a stream may live
// for minutes, and its prompt may have megabytes.
func (s *Stream) dropRequest() {
	if s.c.op.summarize != nil {
		s.c.op = s.c.op.withoutRequest(s.tap)
		s.c.x.releaseBody()
	}
}

// sendHeartbeat runs on the heartbeat's timer. The timer is not reset for every
// event: it looks how long ago the last one was, and sleeps on.
func (s *Stream) sendHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.isDraining() {
		return
	}
	now, interval := s.c.x.g.options.Now(), s.c.x.g.options.Heartbeat
	if idle := now.Sub(s.lastSent); idle < interval {
		s.heartbeat.Reset(interval - idle)
		return
	}
	s.lastSent = now
	if beat := s.tap.Heartbeat(nil); len(beat) > 0 {
		s.c.heartbeat(beat)
	}
	s.heartbeat.Reset(interval)
}

// stopHeartbeat ends the heartbeat of a stream that does not begin.
func (s *Stream) stopHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.heartbeat != nil {
		s.heartbeat.Stop()
	}
}

// Next returns the events that are ready, framed for the client; it waits for
// the first and for no other. The bytes are valid until the next call. After
// the last event, which is the terminator of a complete stream or one error
// event, it returns io.EOF; by then the call is settled.
func (s *Stream) Next() (out []byte, err error) {
	if !s.enter() {
		return s.takeTail()
	}
	defer s.leave()
	s.out, s.copiedOut = s.out[:0], 0
	defer func() {
		if p := recover(); p != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fail(panicked(p))
			out, err = s.out, nil
		}
	}()
	for {
		event, err := s.events.next()
		more := s.take(event.Name, event.Data, err)
		if !s.ended {
			s.copyOut()
		}
		if s.ended || (len(s.out) > 0 && !(more && len(s.out) < batch)) {
			if len(s.out) == 0 {
				return nil, io.EOF
			}
			return s.out, nil
		}
	}
}

// Await waits until Next has something to give, or the end. It needs less stack
// than Next, which may ask the ledger; a goroutine that waits for long can have
// another one call Next.
func (s *Stream) Await() {
	if !s.enter() {
		return
	}
	defer s.leave()
	s.events.await()
}

// takeTail gives the event that says so where the end came between two calls.
func (s *Stream) takeTail() (last []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, s.tail = s.tail, nil; last == nil {
		return nil, io.EOF
	}
	return last, nil
}

// cancel ends the stream between two calls of Next. The caller may still use what
// the last one returned.
func (s *Stream) cancel() {
	s.out, s.copiedOut = nil, 0
	s.receive()
	s.fail(context.Cause(s.c.ctx))
	s.tail = s.out
}

// receive counts an event that was awaited and not taken: the upstream has made
// it.
func (s *Stream) receive() {
	h := s.events.pending
	if h == nil || h.err != nil {
		return
	}
	s.events.pending = nil
	if out, _, err := s.tap.event(s.out, h.event.Name, h.event.Data); err == nil {
		s.out = out
	}
}

// take handles one event, or the error instead of it. It reports whether
// another event is ready.
func (s *Stream) take(name string, data []byte, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	done, before := false, len(s.out)
	if err == nil {
		s.out, done, err = s.tap.event(s.out, name, data)
	}
	if before == 0 && len(s.out) > 0 { // once for what leaves together; what is kept back breaks no silence
		s.lastSent = s.c.x.g.options.Now()
		s.c.x.markFirstByte(s.lastSent)
	}
	switch {
	case err != nil:
		s.fail(err)
	case done:
		s.finish(billing.ReasonComplete)
	case !s.extendHold() && s.lost == nil:
		s.out = s.tap.CutShort(s.out)
		s.finish(billing.ReasonBalanceEnded)
	case s.lost != nil:
		s.fail(s.lost)
	case s.isDraining(): // nobody takes it
		s.copyOut()
		s.out, s.copiedOut = s.out[:0], 0
		return true
	default:
		return s.events.buffered()
	}
	return false
}

// finish ends a stream well: it settles, and only then lets the terminator out.
func (s *Stream) finish(reason string) {
	usage := s.tap.Usage()
	if s.isDraining() {
		reason = billing.ReasonClientGone
		s.markClientGone()
	}
	before := len(s.out)
	s.out = append(s.out, s.tap.Terminator()...)
	if err := s.c.settle(usage, reason, s.answer()); err != nil {
		s.out = s.out[:before]
		s.appendError(err)
	}
	s.stop()
	if reason != billing.ReasonComplete {
		s.release()
		return
	}
	s.c.releaseLease()
	s.c.detach()
	go s.finishTransfer()
}

// finishTransfer releases a complete stream when the upstream has ended the transfer too,
// so that its connection can be used again. The client does not wait for that.
func (s *Stream) finishTransfer() {
	const patience = time.Second
	timer := time.AfterFunc(patience, func() { s.c.cancel(nil) })
	defer timer.Stop()
	defer s.release()
	s.events.discardRest()
}

// fail ends a stream badly: what was delivered is charged, and the client gets
// one error event, unless it is the client that went away.
func (s *Stream) fail(err error) {
	if errors.Is(err, io.EOF) {
		err = badGateway("The upstream's stream ended before it was complete.", err)
	}
	reason, err := s.c.failure(err)
	if s.isDraining() || reason == billing.ReasonClientGone {
		s.settleClientGone()
		return
	}
	if errors.Is(err, billing.ErrHoldEnded) {
		reason = billing.ReasonInternal
	}
	var used billing.Usage
	if s.tap.Output() > 0 && s.tap.Delivered() {
		used = s.tap.Usage()
	}
	before := len(s.out)
	s.appendError(truncatedError(err))
	if err := s.c.settle(used, reason, s.answer()); err != nil {
		s.out = s.out[:before]
		s.appendError(err)
	}
	s.end()
}

// appendError appends the error event.
func (s *Stream) appendError(err error) {
	s.err = err
	s.out = s.c.x.appendError(s.out, err)
}

// settleClientGone settles for a client that disconnected: the input and what was
// delivered, or the units that the vendor was asked for.
func (s *Stream) settleClientGone() {
	s.markClientGone()
	if s.c.x.claim != nil { // a duplicate must not take what was received for the whole
		s.out = s.c.x.appendError(s.out, s.err)
	}
	if err := s.c.settle(s.c.op.withOrderedUnits(s.tap.Usage()), billing.ReasonClientGone, s.answer()); err != nil {
		s.err = err
	}
	s.end()
}

// answer is what duplicates of the request get: all events until the end.
func (s *Stream) answer() *idempotency.Record {
	if s.c.x.claim == nil {
		return nil
	}
	s.copyOut()
	return s.c.x.answerRecord(s.header, s.copied)
}

// copyOut copies the events that go out and are not copied yet.
func (s *Stream) copyOut() {
	s.copyForReplay(s.out[min(s.copiedOut, len(s.out)):])
	s.copiedOut = len(s.out)
}

// end releases everything at once.
func (s *Stream) end() {
	s.stop()
	s.release()
}

// stop ends the heartbeat, and a claim that no settlement ended.
func (s *Stream) stop() {
	s.ended = true
	s.endDrain()
	s.unwatch()
	if s.heartbeat != nil {
		s.heartbeat.Stop()
	}
	s.c.x.free(s.c.ctx)
}

// release ends the call to the upstream and gives everything back.
func (s *Stream) release() {
	s.c.cancel(nil)
	s.c.releaseLease() // before the vendor's connection, which may take its time to close
	s.events.close()
	s.c.close()
}

// Close ends the stream. Before its end that settles the call as one whose
// client went away; where the channel's Drain says so, or the model reasons without
// showing it, it first reads on for as long as that may take (half a minute at the
// most). It is safe to call more than once.
func (s *Stream) Close() error {
	if s.drainLimit > 0 {
		s.startDrain(context.Canceled)
	}
	for s.draining() {
		_, _ = s.Next()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.c.cancel(context.Canceled)
		s.receive()
		s.settleClientGone()
	}
	return nil
}

// draining reports whether the stream is read on after its client left.
func (s *Stream) draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isDraining() && !s.ended
}

// Read reads the same bytes as Next gives.
func (s *Stream) Read(p []byte) (int, error) { return s.read(p, s.Next) }

// events is an accepted stream: the events that were read ahead, then the rest.
type events struct {
	readAhead []sse.Event
	pending   *pendingEvent // what await found
	reader    *sse.Reader
	body      io.ReadCloser
}

// pendingEvent is an event, or the error in its place, that await has read and
// next has not returned.
type pendingEvent struct {
	event sse.Event
	err   error
}

// acceptStream reads ahead until an event carries content, so that an upstream
// that fails at once can be replaced. It never waits for a second read: a chunk
// leaves when it arrives.
func (c *call) acceptStream(r *upstream.Reply) (*events, error) {
	if t := r.Header.Get("Content-Type"); t != "" && !strings.HasPrefix(t, "text/event-stream") {
		return nil, errors.Join(badGateway("The upstream answered a stream with "+clip(t)+".", nil), r.Body.Close())
	}
	e := &events{reader: sse.NewReader(r.Body, 0), body: r.Body}
	for {
		event, err := e.reader.Next()
		if err == nil {
			var content bool
			e.keep(event)
			if content, err = c.op.opening(event.Name, event.Data); err == nil {
				if content || !e.reader.Buffered() {
					return e, nil
				}
				continue
			}
		}
		e.close()
		if errors.Is(err, io.EOF) {
			return nil, badGateway("The upstream's stream is empty.", err)
		}
		return nil, truncatedError(err)
	}
}

func (e *events) keep(event sse.Event) {
	e.readAhead = append(e.readAhead, sse.Event{Name: event.Name, Data: bytes.Clone(event.Data)})
}

// next gives the next event; its data is valid until the next call.
func (e *events) next() (sse.Event, error) {
	if len(e.readAhead) > 0 {
		event := e.readAhead[0]
		if e.readAhead[0], e.readAhead = (sse.Event{}), e.readAhead[1:]; len(e.readAhead) == 0 {
			e.readAhead = nil
		}
		return event, nil
	}
	if h := e.pending; h != nil {
		e.pending = nil
		return h.event, h.err
	}
	return e.reader.Next()
}

// await waits until next would not block.
func (e *events) await() {
	if len(e.readAhead) > 0 || e.pending != nil {
		return
	}
	h := new(pendingEvent)
	defer func() {
		if p := recover(); p != nil {
			h.err = panicked(p)
		}
		e.pending = h
	}()
	h.event, h.err = e.reader.Next()
}

// buffered reports whether next would not block.
func (e *events) buffered() bool { return len(e.readAhead) > 0 || e.reader.Buffered() }

// discardRest reads what follows the terminator, so that the upstream's connection
// can be used again: the end of the transfer, unless the upstream misbehaves.
func (e *events) discardRest() {
	const most = 64 << 10
	_, _ = io.CopyN(io.Discard, e.body, most)
}

func (e *events) close() {
	_ = e.body.Close() // the stream is over; its end was judged before
	e.reader.Release()
}

// drains are the streams that are read to their end after their clients
// disconnected. That is done for channels whose vendor bills a cancelled stream in
// full, and for models that reason without showing it, since only the last usage
// tells what they cost. Their number is limited, and no account has all of it; a
// stream above the limit is cancelled and its usage estimated.
type drains struct {
	most  int64
	slots quota.Fair // by account

	mu      sync.RWMutex
	running map[*Stream]struct{}
	stopped bool                // the gateway shuts down
	hidden  map[string]struct{} // public ids of models that reason without showing it
}

// mostHidden bounds the models that are remembered.
const mostHidden = 1024

// acquire takes a slot for a stream; false if there is none. The stream's lock is
// held.
func (d *drains) acquire(s *Stream) bool {
	if !d.slots.Take(s.c.hold.Account, 1, d.most) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		d.slots.Give(s.c.hold.Account, 1)
		return false
	}
	if d.running == nil {
		d.running = make(map[*Stream]struct{})
	}
	d.running[s] = struct{}{}
	return true
}

// release gives a slot back.
func (d *drains) release(s *Stream) {
	d.mu.Lock()
	delete(d.running, s)
	d.mu.Unlock()
	d.slots.Give(s.c.hold.Account, 1)
}

// stop ends all drains and prevents new ones.
func (d *drains) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for s := range d.running {
		s.c.cancel(errShuttingDown)
	}
}

// hides reports whether a model is known to reason without showing it.
func (d *drains) hides(model string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	_, ok := d.hidden[model]
	return ok
}

// limit is how long a stream of a model is drained whose channel has the limit
// own; 0 for not at all.
func (d *drains) limit(own time.Duration, model string) time.Duration {
	if own <= 0 && d.most > 0 && d.hides(model) {
		return router.MaxDrain
	}
	return own
}

// set records whether a model reasons without showing it.
func (d *drains) set(model string, hides bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !hides:
		delete(d.hidden, model)
	case d.hidden == nil:
		d.hidden = map[string]struct{}{model: {}}
	case len(d.hidden) < mostHidden:
		d.hidden[model] = struct{}{}
	}
}

// A model hides its reasoning if it reports hiddenFactor times as many tokens as
// its text is estimated at, and muchHidden more: no text is estimated so badly.
const (
	hiddenFactor = 3
	muchHidden   = 512
)

// learnHidden records what the usage u, as the vendor reported it, says of a chat
// model: one that reports far more output than its text hides its reasoning; one
// that reports much reasoning and shows it does not.
func (c *call) learnHidden(u billing.Usage) {
	if c.op.bounds.exposure == nil || u.Estimated || u.Anomaly || u.Output <= muchHidden {
		return
	}
	if c.tap == nil && u.Reasoning <= muchHidden && c.answer != nil && u.Output <= int64(len(c.answer.body))/4 {
		return // so many bytes have so many tokens
	}
	hides := u.Output > hiddenFactor*c.textOutput()+muchHidden
	if hides != c.x.g.drains.hides(c.model.ID) && (hides || u.Reasoning > muchHidden) {
		c.x.g.drains.set(c.model.ID, hides)
	}
}

// allowDrain lets the stream be read on for at most limit after its client has
// disconnected: the end of the client's context does not end the upstream's any
// more.
func (s *Stream) allowDrain(limit time.Duration) {
	if limit <= 0 {
		return
	}
	s.mu.Lock() // it may be ended at once
	defer s.mu.Unlock()
	if s.ended || !s.c.detach() {
		return
	}
	s.drainLimit = limit
	s.c.detach = context.AfterFunc(s.c.client, func() { s.startDrain(context.Cause(s.c.client)) })
}

// startDrain runs when the client has disconnected: the stream is read on if there
// is a slot for it, else it is cancelled.
func (s *Stream) startDrain(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.drainTimer != nil {
		return
	}
	if !s.c.x.g.drains.acquire(s) {
		s.c.cancel(cause)
		return
	}
	if s.heartbeat != nil {
		s.heartbeat.Stop()
	}
	s.drainTimer = time.AfterFunc(s.drainLimit, func() { s.c.cancel(cause) })
}

// isDraining reports whether the stream is read on without its client.
func (s *Stream) isDraining() bool { return s.drainTimer != nil }

// endDrain releases the slot and the timer of a drain.
func (s *Stream) endDrain() {
	if s.drainTimer != nil {
		s.drainTimer.Stop()
		s.c.x.g.drains.release(s)
	}
}

// markClientGone makes the end of a drained stream that of a client that
// disconnected.
func (s *Stream) markClientGone() {
	s.c.x.record.clientGone = true
	s.err = errClientGone()
}

func errClientGone() error {
	return fault.New(fault.ClientGone, "The client closed the connection before the answer was complete.")
}
