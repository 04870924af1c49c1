package gateway

import (
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/deliver"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// Stream is a streamed answer on its way to the client. Next, Read and Close are for one
// goroutine at a time; Err and Receipt for any.
type Stream struct{ delivered *deliver.Stream }

// Next returns the events that are ready, framed for the client; it waits for
// the first and for no other. The bytes are valid until the next call. After
// the last event, which is the terminator of a complete stream or one error
// event, it returns io.EOF; by then the call is settled. Where the context of the
// request has ended first, it returns that error, a *fault.Error, in their place.
func (s *Stream) Next() ([]byte, error) { return s.delivered.Next() }

// Read reads the same bytes as Next gives.
func (s *Stream) Read(p []byte) (int, error) { return s.delivered.Read(p) }

// Close ends the stream. Before its end that settles the call as one whose client
// disconnected; a stream that is read on then (docs/reference/billing.md) is first read to its
// end. It is safe to call more than once, and returns nil.
func (s *Stream) Close() error {
	s.delivered.Close()
	return nil
}

// Err is why the stream ended badly; nil after its good end. It waits for a
// settlement that is under way, so that a Meter or an Observer must not ask.
func (s *Stream) Err() error { return s.delivered.Err() }

// Receipt is what the call cost; false until the stream has ended. It waits for a
// settlement that is under way, as Err does.
func (s *Stream) Receipt() (billing.Receipt, bool) { return s.delivered.Receipt() }

// Audio is spoken text on its way to the client. Next, Read and Close are for
// one goroutine at a time; Err and Receipt for any.
type Audio struct{ delivered *deliver.Audio }

// Next returns the bytes that are ready, valid until the next call. The last
// byte leaves when the call is settled, so that io.EOF, which comes after it,
// means that all is well. Any other error is a *fault.Error: the audio is not
// whole, and what was delivered is charged.
func (a *Audio) Next() ([]byte, error) { return a.delivered.Next() }

// Read reads the same bytes as Next gives.
func (a *Audio) Read(p []byte) (int, error) { return a.delivered.Read(p) }

// Close ends the audio. Before its end that settles the call as one whose client
// disconnected. It is safe to call more than once, and returns nil.
func (a *Audio) Close() error {
	a.delivered.Close()
	return nil
}

// Err is why the audio ended badly; nil after its good end. It waits for a
// settlement that is under way, so that a Meter or an Observer must not ask.
func (a *Audio) Err() error { return a.delivered.Err() }

// Receipt is what the call cost; false until the audio has ended. It waits for a
// settlement that is under way, as Err does.
func (a *Audio) Receipt() (billing.Receipt, bool) { return a.delivered.Receipt() }

// handedOver is an Entry whose answer is delivered: the delivery ends it.
type handedOver Entry

// Settle settles the request, whose key may then begin another one.
func (h *handedOver) Settle(used billing.Usage, reason string, o money.Outcome) (*billing.Receipt, error) {
	e := (*Entry)(h)
	defer e.releaseLease()
	err := e.capture(used, reason, o)
	return e.record.receipt, err
}

// Close closes the entry.
func (h *handedOver) Close() { (*Entry)(h).close() }

// handOver is what a delivery needs of the request.
func (e *Entry) handOver() deliver.Options {
	return deliver.Options{
		Request: (*handedOver)(e), ID: e.ID, Spec: e.spec, Context: e.ctx, Cancel: e.cancel, Client: &e.client,
		Hold: &e.hold, Claim: e.claim, Heartbeat: e.heartbeat, Interval: e.g.options.Heartbeat, Now: e.g.options.Now,
	}
}

// answerStream asks for a stream, and responds with it. The stream is prepared before the
// upstream is asked, so that a client gets something while it waits. Once it has begun, it ends
// the request.
func (e *Entry) answerStream(out operation.Outgoing, maxOutput int64) error {
	now := e.g.options.Now()
	e.hold.Stream(maxOutput, now)
	o := e.answerOptions()
	o.Created, o.Heartbeat = now.Unix(), e.g.options.Heartbeat
	if e.turn != nil {
		o.Edit = e.turn.Edit
	}
	s := deliver.NewStream(e.handOver(), e.info.Stream.NewTap(o))
	e.stream.delivered = s
	events, reply, err := e.sendStream(out)
	if err != nil {
		s.Abandon()
		return e.fail(err)
	}
	header := e.answered(reply, maxOutput, out.Omitted)
	header["Content-Type"] = []string{eventStream}
	readOn := e.readOnLimit(reply.Drain)           // before the request is dropped
	if !e.turn.NeedsRequest() && s.DropRequest() { // a stream may live for minutes, and its prompt may have megabytes
		e.dropRequest()
		e.g.admission.ReleaseBody(&e.slot)
	}
	s.Begin(events, header, readOn)
	reply.Header = nil
	e.respond(Response{Header: header, Stream: &e.stream, Dropped: reply.Dropped})
	return nil
}

// readOnLimit is how long a stream is read on after its client has disconnected. drain is the
// limit of the channel that answers. It does not shorten the reading where reasoning may be
// hidden: its count comes at the end. The model is known to hide its reasoning, or the request
// asks for some, which a vendor may show in part only.
func (e *Entry) readOnLimit(drain time.Duration) time.Duration {
	switch {
	case e.spec.Unstoppable:
		return deliver.ToItsEnd
	case e.model.facts.HidesReasoning, e.info.Stream.AsksForReasoning():
		return router.MaxDrain
	}
	return drain
}
