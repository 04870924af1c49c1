package messages

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// fromChatStream translates the stream of a chat completion, which answers the
// request as [toChat] made it, into the stream of a message. Each Read hands on
// what one read of body gave, and waits for no more. Thoughts that the caller
// does not ask for pass as a [hiddenEvent], which a [Tap] takes out.
//
// The stream is complete at [DONE], or at the usage that follows a finish
// reason. One that ends before, an error frame and an event that is no chunk end
// it with a fault.BadGateway, an error of body with that error, after the events
// that came before. Closing it closes body, which a Read may be waiting for.
func fromChatStream(r *Request, body io.ReadCloser) io.ReadCloser {
	return &backStream{model: r.Model, thinks: r.showsThinking(), body: body, events: sse.NewReader(body, 0)}
}

// backStream is a message made of chunks. Read is for one goroutine.
type backStream struct {
	model  string // as the client named it
	thinks bool   // the client gets to see thoughts
	body   io.ReadCloser
	events *sse.Reader

	out  []byte // reused for what one Read gives
	sent int    // of out
	err  error  // what follows out; final

	id       string // empty before the first chunk
	content  script
	report   chat.Report
	reason   string // the finish reason; empty before it came
	refused  bool
	complete bool // message_stop was written
}

// Read gives the events that are ready.
func (s *backStream) Read(p []byte) (int, error) {
	for s.sent == len(s.out) {
		if s.err != nil {
			return 0, s.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		s.fill()
	}
	n := copy(p, s.out[s.sent:])
	s.sent += n
	return n, nil
}

// Close lets go of the upstream's stream.
func (s *backStream) Close() error { return s.body.Close() }

// fill waits for one event and takes those that came with it.
func (s *backStream) fill() {
	s.out, s.sent = s.out[:0], 0
	if s.complete {
		s.drain()
	} else {
		s.gather()
	}
	if s.err != nil {
		s.events.Release()
	}
}

func (s *backStream) gather() {
	const batch = 32 << 10 // beyond which no further event is gathered
	for {
		event, err := s.events.Next()
		if err != nil {
			s.err = ended(err)
			return
		}
		s.err = s.take(event)
		if s.err != nil || s.complete || len(s.out) >= batch || !s.events.Buffered() {
			return
		}
	}
}

// ended is the error of a stream that is not complete.
func ended(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return answer.Bad("The upstream's stream ended before it was complete.", io.ErrUnexpectedEOF)
	case errors.Is(err, sse.ErrTooLarge):
		return answer.Bad("The upstream sent an event that is larger than the gateway allows.", err)
	}
	return err
}

// drain reads what follows a complete stream, so that the upstream's connection
// can be used again.
func (s *backStream) drain() {
	const most = 64 << 10
	_, _ = io.CopyN(io.Discard, s.body, most) // the message is complete: how the transfer ends changes nothing
	s.err = io.EOF
}

// take translates one event.
func (s *backStream) take(event sse.Event) error {
	data := bytes.TrimSpace(event.Data)
	switch {
	case string(data) == "[DONE]" && s.id == "":
		return answer.Bad("The upstream's stream is empty.", nil)
	case string(data) == "[DONE]":
		return s.finish()
	case event.Name == "error":
		return answer.ErrorFrame(data)
	}
	var c completion
	if err := c.decode(data); err != nil {
		return answer.Bad("The upstream sent an event that is not a chunk of a chat completion.", err)
	}
	if !rawjson.IsNull(c.Error) {
		return answer.ErrorFrame(c.Error)
	}
	return s.chunk(&c, data)
}

// chunk translates one chunk. The first one begins the message, whatever it
// holds, so that the client hears as early as the upstream speaks.
func (s *backStream) chunk(c *completion, data []byte) error {
	if s.id == "" {
		s.begin(messageID(c, data))
	}
	c.report(&s.report)
	if first := c.first(); first != nil {
		if err := s.piece(&first.Delta); err != nil {
			return err
		}
		if first.FinishReason != "" {
			s.reason = first.FinishReason
			return s.content.end(&s.out)
		}
	}
	if s.reason != "" && len(c.Choices) == 0 && !rawjson.IsNull(c.Usage) {
		return s.finish()
	}
	return nil
}

// piece writes what one delta adds.
func (s *backStream) piece(d *spoken) error {
	w := &s.content
	switch thought := d.thought(); {
	case thought == "":
	case !s.thinks:
		s.out = appendHidden(s.out, thought)
	default:
		if err := w.write(&s.out, thinkingBlock, thought); err != nil {
			return err
		}
	}
	refusal := d.text("refusal")
	s.refused = s.refused || refusal != ""
	for _, text := range [...]string{d.Content.String(), refusal} {
		if text == "" {
			continue
		}
		if err := w.write(&s.out, textBlock, text); err != nil {
			return err
		}
	}
	calls := d.toolCalls()
	for i := range calls {
		if err := w.call(&s.out, &calls[i]); err != nil {
			return err
		}
	}
	return nil
}

// begin opens the message.
func (s *backStream) begin(id string) {
	s.id, s.content.message = id, id
	unknown := new(int64) // a beginning's counts are 0 where the upstream counts at the end
	start := struct {
		Type    string `json:"type"`
		Message *made  `json:"message"`
	}{"message_start", &made{
		ID: id, Type: "message", Role: "assistant", Model: s.model,
		Usage: madeUsage{Input: unknown, CacheWrite: unknown, CacheRead: unknown, Output: unknown},
	}}
	s.event(start.Type, &start)
}

// finish ends the message.
func (s *backStream) finish() error {
	if err := s.content.end(&s.out); err != nil {
		return err
	}
	type delta struct {
		StopReason   string  `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
	end := struct {
		Type  string    `json:"type"`
		Delta delta     `json:"delta"`
		Usage madeUsage `json:"usage"`
	}{"message_delta", delta{StopReason: stopReason(s.reason, len(s.content.calls) > 0, s.refused)}, usageOf(&s.report)}
	s.event(end.Type, &end)
	s.out = sse.AppendEvent(s.out, "message_stop", []byte(`{"type":"message_stop"}`))
	s.complete = true
	return nil
}

// event appends an event whose parts are strings and counts.
func (s *backStream) event(name string, v any) {
	if data, err := json.Marshal(v); err == nil { // strings that were decoded and counts can be encoded
		s.out = sse.AppendEvent(s.out, name, data)
	}
}
