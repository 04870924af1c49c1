package gateway

import (
	"context"
	"math"
	"time"

	"github.com/tollhouse-ai/gateway/upstream/router"
)

// toItsEnd is the limit of a stream that is read to its end.
const toItsEnd = time.Duration(math.MaxInt64)

// readOnLimit is how long the call's stream is read on after its client has disconnected:
// only its last event says what it costs. 0 means that it is cancelled, which ends its
// vendor's work and bill. drain is the limit of the channel that answers. It does not shorten
// the reading where reasoning may be hidden: its count comes at the end.
func (e *Entry) readOnLimit(drain time.Duration) time.Duration {
	switch {
	case e.spec.Unstoppable:
		return toItsEnd
	case e.mayHideReasoning():
		return router.MaxDrain
	}
	return drain
}

// mayHideReasoning reports whether the model may reason without showing it: it is known to
// hide its reasoning, or the request asks for some, which a vendor may show in part only.
func (e *Entry) mayHideReasoning() bool {
	return e.model.facts.HidesReasoning || e.info.Stream.AsksForReasoning()
}

// follow has the stream end with its client, from now on, or be read on for at most limit.
func (s *Stream) follow(limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.readOn = limit
	s.e.follow(s.clientLeft)
}

// clientLeft runs when the client has disconnected: the stream is cancelled, or read on
// while its call keeps its hold and its slot.
func (s *Stream) clientLeft(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended || s.gone:
		return
	case s.readOn == 0:
		s.e.cancel(cause)
		return
	}
	if s.heartbeat != nil {
		s.heartbeat.Stop()
	}
	s.gone = true
	s.readOnTimer = time.AfterFunc(s.readOn, func() { s.e.cancel(cause) })
}

// Close ends the stream. Before its end that settles the call as one whose client
// disconnected; a stream that is read on then (docs/reference/billing.md) is first read to its
// end. It is safe to call more than once.
func (s *Stream) Close() error {
	s.clientLeft(context.Canceled)
	for s.readsOn() {
		_, _ = s.Next()
	}
	return s.delivery.Close()
}

// readsOn reports whether the stream is read on after its client disconnected.
func (s *Stream) readsOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone && !s.ended
}
