package gateway

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/admission"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Stream is a streamed answer on its way to the client. Next, Await, Read and
// Close are for one goroutine at a time.
type Stream struct {
	delivery // its mutex guards tap and the fields of Stream against the heartbeat
	tap      operation.Tap
	events   *events // the accepted stream

	lastSent  time.Time // when the client last got something
	heartbeat *time.Timer

	out        []byte // reused by Next
	copiedOut  int    // how much of out is copied for a duplicate
	beforeLast int    // how much of out comes before the last event of a stream that ends
	untaken    bool   // it ended between two calls of Next, which gives out then

	readOn      time.Duration // how long it is read on after its client disconnected; 0 for not at all
	readOnTimer *time.Timer   // ends that; nil before it
}

// batch is how many bytes of ready events Next gathers before it returns.
const batch = 32 << 10

// newStream prepares the stream before the upstream is asked, so that a client
// gets something while it waits.
func newStream(e *Entry, maxOutput int64) *Stream {
	now := e.g.options.Now()
	e.hold.Stream(maxOutput, now)
	o := e.answerOptions()
	o.Created, o.Heartbeat = now.Unix(), e.g.options.Heartbeat
	if e.turn != nil {
		o.Edit = e.turn.Edit
	}
	s := &Stream{delivery: delivery{e: e}, tap: e.info.Stream.NewTap(o), lastSent: now}
	s.pieces, e.tap = s, s.tap
	if e.heartbeat != nil && e.g.options.Heartbeat > 0 {
		s.mu.Lock() // the timer's goroutine reads it
		s.heartbeat = time.AfterFunc(e.g.options.Heartbeat, s.sendHeartbeat)
		s.mu.Unlock()
	}
	return s
}

// begin watches over the call.
func (s *Stream) begin(accepted *events) {
	s.mu.Lock() // what it watches over may end at once
	defer s.mu.Unlock()
	s.events, s.e.body = accepted, accepted
	s.dropRequest()
	s.watch()
}

// dropRequest releases the request, which is not sent again: a stream may live
// for minutes, and its prompt may have megabytes.
func (s *Stream) dropRequest() {
	if !s.e.turn.NeedsRequest() && s.tap.DropRequest() {
		s.e.dropRequest()
		s.e.g.admission.ReleaseBody(&s.e.slot)
	}
}

// sendHeartbeat runs on the heartbeat's timer. The timer is not reset for every
// event: it checks how long ago the last one was, and waits on.
func (s *Stream) sendHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.gone {
		return
	}
	now, interval := s.e.g.options.Now(), s.e.g.options.Heartbeat
	if idle := now.Sub(s.lastSent); idle < interval {
		s.heartbeat.Reset(interval - idle)
		return
	}
	s.lastSent = now
	if beat := s.tap.Heartbeat(nil); len(beat) > 0 {
		if s.e.spec.Numbered && beat[0] != ':' {
			s.copyForReplay(beat)
		}
		s.e.heartbeat(beat)
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
// event, it returns io.EOF; by then the call is settled. Where the context of the
// request has ended first, it returns that error, a *fault.Error, in their place.
func (s *Stream) Next() (out []byte, err error) {
	if !s.enter() {
		return s.takeTail()
	}
	defer s.leave()
	if s.out == nil {
		s.out = sse.GetOutput()
	}
	if s.copiedOut = 0; cap(s.out) > minBudgeted {
		s.out = sse.GetOutput() // a large event has gone out
	}
	s.out = s.out[:0]
	defer func() {
		if p := recover(); p != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			_ = s.fail(fault.FromPanic(p))
			out, err = s.out, nil
		}
	}()
	for {
		event, err := s.events.next()
		more := s.take(event.Name, event.Data, err)
		switch {
		case s.ended && s.gone:
			return nil, s.goneError()
		case s.ended && len(s.out) == 0:
			return nil, io.EOF
		case s.ended || len(s.out) > 0 && !(more && len(s.out) < batch):
			return s.out, nil
		}
	}
}

// Await waits until Next has something to give, or the end. It needs less stack
// than Next, which may ask the ledger: a goroutine that waits here for most of its time
// keeps half of the stack.
func (s *Stream) Await() {
	if s.enter() {
		defer s.endAwait()
		s.events.await()
	}
}

// endAwait ends an Await; a panic of it ends the stream. It must be deferred itself.
func (s *Stream) endAwait() {
	p := recover()
	defer s.leave()
	if p != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy = false // nothing of it is in what the last Next returned
		_ = s.fail(fault.FromPanic(p))
	}
}

// takeTail gives the event that says so where the end came between two calls.
func (s *Stream) takeTail() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.gone || !s.untaken || len(s.out) == 0 {
		sse.PutOutput(s.out)
		s.out = nil
		return nil, s.goneError()
	}
	s.untaken = false
	return s.out, nil
}

// goneError is what Next returns once the stream has ended: to a client that has
// disconnected why it did, so that what it got is not taken for the whole.
func (s *Stream) goneError() error {
	if s.gone && !s.closed && s.err != nil {
		return s.err
	}
	return io.EOF
}

// take handles one event, or the error instead of it. It reports whether
// another event is ready.
func (s *Stream) take(name string, data []byte, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	done, before := false, len(s.out)
	if err == nil {
		s.out, done, err = s.tap.Event(s.out, name, data)
	}
	if before == 0 && len(s.out) > 0 { // once for what leaves together; what is kept back breaks no silence
		s.lastSent = s.e.g.options.Now()
		s.e.markFirstByte(s.lastSent)
	}
	paid, lost := true, error(nil)
	if err == nil && !done {
		paid, lost = s.e.hold.Covers(s.e.ctx, s.tap, s.lastSent)
	}
	switch {
	case errors.Is(err, io.EOF):
		_ = s.fail(upstream.BadAnswer("The upstream's stream ended before it was complete.", err))
	case err != nil:
		_ = s.fail(s.events.key.Masked(err))
	case done:
		s.finish(billing.ReasonComplete)
	case lost != nil:
		_ = s.fail(lost)
	case !paid:
		s.out = s.tap.CutShort(s.out)
		s.finish(billing.ReasonBalanceEnded)
	case s.gone: // it is read on without its client
		s.copyOut()
		s.out, s.copiedOut = s.out[:0], 0
		return true
	default:
		s.copyOut() // before a heartbeat is copied that follows it
		return s.events.buffered()
	}
	return false
}

// finish ends a stream well: it settles, and only then lets the terminator out.
func (s *Stream) finish(reason string) {
	var err error
	if s.gone {
		reason, err = billing.ReasonClientGone, s.e.clientError()
	}
	s.beforeLast = len(s.out)
	s.out = append(s.out, s.tap.Terminator()...)
	s.stop()
	_ = s.end(s.tap.Usage(), reason, s.keptAnswer(), err)
	if reason != billing.ReasonComplete || s.events.reader.Ended() { // most transfers end with the terminator
		s.e.close()
		return
	}
	s.e.releaseLease()
	s.e.unfollow()
	go s.finishTransfer()
}

// finishTransfer closes the call of a complete stream when the upstream has ended the
// transfer too, so that its connection can be used again. The client does not wait
// for that.
func (s *Stream) finishTransfer() {
	const timeout = time.Second
	timer := time.AfterFunc(timeout, func() { s.e.cancel(nil) })
	defer timer.Stop()
	defer s.e.close()
	s.events.discardRest()
}

// breakOff appends the error event, unless the client that would get it has gone. A
// duplicate gets all events, and that one in any case: it must not take what was
// received for the whole.
func (s *Stream) breakOff(err error) *idempotency.Record {
	s.stop()
	if !s.busy { // the caller may still use what the last Next returned
		s.out, s.copiedOut, s.untaken = nil, 0, true
		s.receive()
	}
	s.beforeLast = len(s.out)
	if !s.gone || s.e.claim != nil {
		s.out = s.e.AppendError(s.out, err)
	}
	return s.keptAnswer()
}

// receive counts what has come and was not taken, as the upstream has made it: an event that
// was awaited, and the first events of a stream whose client left before them.
func (s *Stream) receive() {
	for s.gone && len(s.events.readAhead) > 0 {
		event, _ := s.events.next()
		if out, _, err := s.tap.Event(s.out, event.Name, event.Data); err == nil {
			s.out = out
		}
	}
	if len(s.events.readAhead) > 0 || !s.events.reader.Buffered() {
		return
	}
	if t, ok := s.tap.(interface{ BreakOff() }); ok {
		t.BreakOff()
	}
	event, _ := s.events.reader.Next()
	if out, _, err := s.tap.Event(s.out, event.Name, event.Data); err == nil {
		s.out = out
	}
}

// used is what the tap has counted, if the client has left, or any of it can have been
// delivered.
func (s *Stream) used(error) billing.Usage {
	if s.gone || s.tap.Output() > 0 && s.tap.Delivered() {
		return s.tap.Usage()
	}
	return billing.Usage{}
}

// withhold replaces the last event by the error's.
func (s *Stream) withhold(err error) {
	if !s.gone {
		s.out = s.e.AppendError(s.out[:s.beforeLast], err)
	}
}

// keptAnswer is what duplicates of the request get: all events until the end.
func (s *Stream) keptAnswer() *idempotency.Record {
	if s.e.claim == nil {
		return nil
	}
	s.copyOut()
	return s.e.answerRecord(s.header, s.copied)
}

// copyOut copies the events that go out and are not copied yet.
func (s *Stream) copyOut() {
	s.copyForReplay(s.out[min(s.copiedOut, len(s.out)):])
	s.copiedOut = len(s.out)
}

// stop ends the timers.
func (s *Stream) stop() {
	if s.readOnTimer != nil {
		s.readOnTimer.Stop()
	}
	if s.heartbeat != nil {
		s.heartbeat.Stop()
	}
}

// Read reads the same bytes as Next gives.
func (s *Stream) Read(p []byte) (int, error) { return s.read(p, s.Next) }

// events is an accepted stream: the events that were read ahead, then the rest.
type events struct {
	readAhead []sse.Event
	reader    *sse.Reader
	body      io.ReadCloser
	key       *upstream.Key   // the vendor's, which errors in the stream must not show
	memory    admission.Event // of a large event
}

// readEvents reads ahead until an event carries content, so that an upstream that fails at
// once can be replaced. It never waits for a second read: a chunk leaves when it arrives. A
// whole answer in the place of a stream becomes its events.
func (e *Entry) readEvents(_ context.Context, r *upstream.Reply) (_ *events, err error) {
	defer fault.Recover(&err)
	first := &events{memory: e.g.admission.Answers().Event(e.ctx), reader: sse.NewReader(r.Body, int(e.g.options.MaxAnswer)), body: r.Body, key: r.Used}
	first.reader.SetBudget(&first.memory)
	for {
		event, err := first.reader.Next()
		if err == nil && event.Whole {
			if first.readAhead, err = e.info.Stream.Unfold(event.Data); err == nil {
				return first, nil
			}
		} else if err == nil {
			var content bool
			first.readAhead = append(first.readAhead, event) // whose data nothing overwrites before the next read
			if content, err = e.info.Stream.Opening(event.Name, event.Data); err == nil {
				if content || !first.reader.Buffered() {
					return first, nil
				}
				continue
			}
		}
		_ = first.Close()
		if errors.Is(err, io.EOF) {
			return nil, upstream.BadAnswer("The upstream's stream is empty.", err)
		}
		return nil, truncatedError(err)
	}
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
	return e.reader.Next()
}

// await waits until next would not block.
func (e *events) await() {
	if len(e.readAhead) == 0 {
		e.reader.Await()
	}
}

// buffered reports whether next would not block.
func (e *events) buffered() bool { return len(e.readAhead) > 0 || e.reader.Buffered() }

// discardRest reads what follows the terminator, so that the upstream's connection
// can be used again: the end of the transfer, unless the upstream misbehaves.
func (e *events) discardRest() {
	const most = 64 << 10
	_, _ = io.CopyN(io.Discard, e.body, most)
}

// Close ends the transfer.
func (e *events) Close() error {
	_ = e.body.Close() // the stream is over; its end was judged before
	e.reader.Release()
	return nil
}
