// Package translate carries chat completions to upstreams that speak only messages,
// and messages to those that speak only chat completions.
//
// Requests are translated for each pair of wires, since what is dropped or refused
// depends on both. Answers go through pieces (answer.go), so that each wire is read
// in one file and written in one file. A third wire, such as /v1/responses, gets a
// reader and two writers of its own beside those of chat and messages, a file for
// each direction of its requests with a table of fields, and rows in translations.
package translate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Bridge makes an upstream that speaks only one of chat completions and messages
// answer both. What it speaks itself passes untouched. A gateway puts it around
// every channel, and a [Tap] above: a translated stream of a message can hold
// events that are for the Tap alone. now dates the completions that are made of
// messages; nil means time.Now.
func Bridge(now func() time.Time) upstream.Middleware {
	if now == nil {
		now = time.Now
	}
	return func(up upstream.Upstream) upstream.Upstream { return &bridge{up, now} }
}

type bridge struct {
	up  upstream.Upstream
	now func() time.Time
}

// translation is a call in the other dialect, and the way back of its answer.
type translation struct {
	body    upstream.Body
	view    any                                              // the request, as its package parses it
	dropped []string                                         // fields that could not be carried
	answer  func(data []byte, created int64) ([]byte, error) // created is in Unix seconds
	stream  func(body io.ReadCloser, created int64) io.ReadCloser
}

// translations lead from the operation of a call to the one that can stand in for
// it.
var translations = map[upstream.Op]struct {
	by        upstream.Op
	translate func(call *upstream.Call) (*translation, error)
}{
	upstream.Messages:       {upstream.ChatCompletion, callToChat},
	upstream.ChatCompletion: {upstream.Messages, callToMessages},
}

// Supports adds to what the upstream speaks what can be translated into it.
func (b *bridge) Supports(op upstream.Op, model string) bool {
	t, translated := translations[op]
	return upstream.Supports(b.up, op, model) || translated && upstream.Supports(b.up, t.by, model)
}

// Do hands the call on, translated where the upstream does not speak it.
func (b *bridge) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	other, known := translations[call.Op]
	switch native := upstream.Supports(b.up, call.Op, call.Model); {
	case native && call.Op == upstream.Messages:
		return b.up.Do(ctx, stripSyntheticThinking(call))
	case native, !known:
		return b.up.Do(ctx, call)
	}
	t, err := other.translate(call)
	if err != nil {
		return nil, err
	}
	translated := *call
	translated.Op, translated.Body, translated.Request = other.by, t.body, t.view
	translated.Header, translated.Query = nil, "" // the client's are of its own dialect
	reply, err := b.up.Do(ctx, &translated)
	if err != nil {
		return nil, translatedError(err)
	}
	return t.reply(reply, call.Stream, b.now().Unix()), nil
}

// callToChat translates a call for a message into one for a chat completion.
func callToChat(call *upstream.Call) (*translation, error) {
	r, err := serve.Request(call, func(data []byte) (*messages.Request, error) { return view(messagesapi.Parse(data)) })
	if err != nil {
		return nil, err
	}
	typed, dropped, err := messagesToChat(r)
	if err != nil {
		return nil, notSent(err)
	}
	c, err := checked(typed, chatapi.Encode)
	if err != nil {
		return nil, notSent(err)
	}
	return &translation{
		body: c.Prepared(0), view: c.Request, dropped: dropped,
		answer: func(data []byte, _ int64) ([]byte, error) { return fromChatAnswer(r, data) },
		stream: func(body io.ReadCloser, _ int64) io.ReadCloser { return fromChatStream(r, body) },
	}, nil
}

// callToMessages translates a call for a chat completion into one for a message.
func callToMessages(call *upstream.Call) (*translation, error) {
	c, err := serve.Request(call, func(data []byte) (*chat.Request, error) {
		c, err := chatapi.Parse(data)
		if err != nil {
			return nil, err
		}
		return c.Request, nil
	})
	if err != nil {
		return nil, err
	}
	typed, dropped, err := chatToMessages(c, call.MaxOutput)
	if err != nil {
		return nil, notSent(err)
	}
	translated, err := checked(typed, messagesapi.Encode)
	if err != nil {
		return nil, notSent(err)
	}
	return &translation{
		body: translated.Prepared(0), view: translated.Request, dropped: dropped,
		answer: func(data []byte, created int64) ([]byte, error) { return toChatAnswer(c, data, created) },
		stream: func(body io.ReadCloser, created int64) io.ReadCloser { return toChatStream(c, body, created) },
	}, nil
}

// view is the typed view of a parsed request.
func view(r *messagesapi.Request, err error) (*messages.Request, error) {
	if err != nil {
		return nil, err
	}
	return r.Request, nil
}

// checked is a translated request as its package parses it, if it obeys the rules.
func checked[T any, R interface{ Validate() error }](typed T, encode func(T) (R, error)) (R, error) {
	r, err := encode(typed)
	if err == nil {
		err = r.Validate()
	}
	return r, err
}

// reply is the upstream's reply with a translated body.
func (t *translation) reply(from *upstream.Reply, stream bool, created int64) *upstream.Reply {
	reply := *from
	if stream {
		reply.Body = t.stream(from.Body, created)
	} else {
		reply.Body = &wholeBody{body: from.Body, translate: func(data []byte) ([]byte, error) { return t.answer(data, created) }}
	}
	if len(t.dropped) > 0 {
		reply.Dropped = slices.Concat(t.dropped, from.Dropped)
	}
	reply.Header = nil
	if kind := from.Header.Get("Content-Type"); kind != "" {
		reply.Header = http.Header{"Content-Type": {kind}}
	}
	return &reply
}

// notSent is the error of a request that cannot be translated: no upstream got it.
func notSent(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return upstream.NotSent(f)
	}
	return err
}

// translatedError is an upstream's error without its body, which is in the format
// that the client does not speak.
func translatedError(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Body == nil {
		return err
	}
	return f.With(func(e *fault.Error) { e.Body = nil })
}

// fromChatAnswer translates a whole chat completion, which answers the request as
// [messagesToChat] made it, into a message. A body that is no completion, or that is an error,
// is a fault.BadGateway.
func fromChatAnswer(r *messages.Request, data []byte) ([]byte, error) {
	w := &messageWriter{model: r.Model, thinks: showsThinking(r)}
	return whole(data, (&chatReader{to: w}).whole, &w.written)
}

// fromChatStream does the same with a stream.
func fromChatStream(r *messages.Request, body io.ReadCloser) io.ReadCloser {
	w := &eventWriter{model: r.Model, thinks: showsThinking(r)}
	return newStream(body, &chatReader{to: w}, &w.written)
}

// toChatAnswer translates a whole message, the answer to the chat request c. created
// is in Unix seconds. It fails with a fault.BadGateway if data is no message.
func toChatAnswer(c *chat.Request, data []byte, created int64) ([]byte, error) {
	w := &completionWriter{model: c.Model, created: created}
	return whole(data, (&messageReader{to: w}).whole, &w.written)
}

// toChatStream does the same with a stream.
func toChatStream(c *chat.Request, body io.ReadCloser, created int64) io.ReadCloser {
	w := &chunkWriter{model: c.Model, created: created}
	return newStream(body, &messageReader{to: w}, &w.written)
}

// showsThinking reports whether the caller wants to see what the model thought.
func showsThinking(r *messages.Request) bool {
	return r.Thinking != nil && (r.Thinking.Type == "enabled" || r.Thinking.Type == "adaptive")
}
