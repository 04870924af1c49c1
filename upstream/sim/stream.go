package sim

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// stream is an answer as server-sent events, made one by one as they are read.
// Read is for one goroutine; Close may come from another and ends a Read that
// waits.
type stream struct {
	ctx    context.Context
	answer *answer
	script [][]byte // the events where they are not made of an answer
	fault  Fault
	o      Options

	head   []byte // every chunk's beginning
	step   int64  // 0 is the role, then the tokens, then the finish reason
	index  int    // the candidate that is next at this step
	events int    // how many were made
	usage  int    // how many usage chunks are left
	ended  bool   // the terminator was made

	buf  []byte // one event
	rest []byte // what Read still owes of it

	closed chan struct{}
	once   sync.Once
}

func newStream(ctx context.Context, a *answer, f Fault, o Options) *stream {
	s := &stream{ctx: ctx, answer: a, fault: f, o: o, closed: make(chan struct{})}
	s.head = append(s.head, `data: {"id":`...)
	s.head = rawjson.Quote(s.head, a.id)
	s.head = append(s.head, `,"object":"chat.completion.chunk","created":`...)
	s.head = strconv.AppendInt(s.head, a.created, 10)
	s.head = append(s.head, `,"model":`...)
	s.head = rawjson.Quote(s.head, a.model)
	s.head = append(s.head, `,"system_fingerprint":"sim","choices":[`...)
	if a.askedUsage {
		s.usage = f.Usage.times()
	}
	return s
}

// Read gives at most one event, after the delay that the options ask for.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends the stream. It is safe to call more than once.
func (s *stream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// next makes the next event, or the fault instead of it.
func (s *stream) next() error {
	select {
	case <-s.closed:
		return io.ErrClosedPipe
	default:
	}
	delay := s.o.Pace
	if s.events == 0 {
		delay = s.o.FirstDelay
	}
	if s.ended {
		return io.EOF
	}
	if err := wait(s.ctx, s.closed, max(delay, 0)); err != nil {
		return err
	}
	if s.fault.Break != Whole && s.events >= s.fault.After {
		return s.breakOff()
	}
	s.buf = s.event(s.buf[:0])
	s.rest = s.buf
	s.events++
	return nil
}

// breakOff makes what comes in the place of the rest of the stream.
func (s *stream) breakOff() error {
	if s.fault.Break == Stall {
		return wait(s.ctx, s.closed, forever)
	}
	b := breaks[s.fault.Break]
	if b.text == "" {
		return cmp.Or(b.err, io.EOF)
	}
	s.rest, s.ended = []byte("data: "+b.text+"\n\n"), true
	return nil
}

// event appends the next event: the candidates take turns.
func (s *stream) event(dst []byte) []byte {
	if len(s.script) > 0 {
		dst = append(dst, s.script[0]...)
		s.script = s.script[1:]
		s.ended = len(s.script) == 0
		return dst
	}
	for s.speaking() {
		for s.index < len(s.answer.candidates) {
			i := s.index
			s.index++
			if s.step <= s.answer.candidates[i].total+1 {
				return s.chunk(dst, i)
			}
		}
		s.index = 0
		s.step++
	}
	if s.usage > 0 {
		s.usage--
		return s.usageChunk(dst)
	}
	s.ended = true
	return append(dst, sse.Done...)
}

// speaking reports whether a candidate has not had its last turn.
func (s *stream) speaking() bool {
	for i := range s.answer.candidates {
		if s.step <= s.answer.candidates[i].total+1 {
			return true
		}
	}
	return false
}

// chunk appends the candidate's chunk of this step.
func (s *stream) chunk(dst []byte, i int) []byte {
	c := &s.answer.candidates[i]
	dst = append(append(dst, s.head...), `{"index":`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	dst = append(dst, `,"delta":{`...)
	finish := "null"
	switch s.step {
	case 0:
		dst = append(dst, `"role":"assistant","content":""`...)
	case c.total + 1:
		finish = strconv.Quote(c.finish)
	default:
		p := c.at(s.step - 1)
		dst = p.append(dst)
	}
	dst = append(dst, `},"logprobs":null,"finish_reason":`...)
	dst = append(append(dst, finish...), `}]`...)
	if s.answer.askedUsage {
		dst = append(dst, `,"usage":null`...)
	}
	return append(dst, "}\n\n"...)
}

// append appends the members of the piece's delta.
func (p *piece) append(dst []byte) []byte {
	switch p.kind {
	case reasoning:
		return rawjson.Quote(append(dst, `"reasoning_content":`...), p.text)
	case content:
		return rawjson.Quote(append(dst, `"content":`...), p.text)
	}
	dst = append(dst, `"tool_calls":[{"index":`...)
	dst = strconv.AppendInt(dst, p.call, 10)
	if p.kind == callBegin {
		dst = rawjson.Quote(append(dst, `,"id":`...), p.id)
		dst = rawjson.Quote(append(dst, `,"type":"function","function":{"name":`...), p.text)
		return append(dst, `,"arguments":""}}]`...)
	}
	dst = rawjson.Quote(append(dst, `,"function":{"arguments":`...), p.text)
	return append(dst, "}}]"...)
}

func (s *stream) usageChunk(dst []byte) []byte {
	usage, err := json.Marshal(s.answer.report(s.fault.Usage))
	if err != nil {
		return dst // integers marshal
	}
	dst = append(append(dst, s.head...), `],"usage":`...)
	return append(append(dst, usage...), "}\n\n"...)
}
