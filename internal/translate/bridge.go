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
// every channel, and a messagesapi.Tap above: a translated stream of a message can
// hold events that are for the Tap alone. now dates the completions that are made of
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

// translation is a call on the other wire, and the way back of its answer.
type translation struct {
	body    upstream.Body
	view    any      // the request, as its package parses it
	dropped []string // fields that could not be carried

	read          func(to writer) reader
	stream, whole func(created int64) writer // of the caller's wire; created is in Unix seconds
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
	case native || !known:
		if strip := ownThoughts[call.Op]; strip != nil {
			call = strip(call)
		}
		return b.up.Do(ctx, call)
	}
	t, err := other.translate(call)
	if err != nil {
		return nil, notSent(err)
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
	r, err := serve.Request(call, func(data []byte) (*messages.Request, error) {
		r, err := messagesapi.Parse(data)
		if err != nil {
			return nil, err
		}
		return r.Request, nil
	})
	if err != nil {
		return nil, err
	}
	c, dropped, err := messagesToChat(r)
	if err != nil {
		return nil, err
	}
	shown := messageOut{model: r.Model, thinks: r.Thinking != nil && (r.Thinking.Type == "enabled" || r.Thinking.Type == "adaptive")}
	return &translation{
		body: c.Prepared(0), view: c.Request, dropped: dropped,
		read:   func(to writer) reader { return &chatReader{to: to} },
		stream: func(int64) writer { return &eventWriter{messageOut: shown} },
		whole:  func(int64) writer { return &messageWriter{messageOut: shown} },
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
	r, dropped, err := chatToMessages(c, call.MaxOutput)
	if err != nil {
		return nil, err
	}
	return &translation{
		body: r.Prepared(0), view: r.Request, dropped: dropped,
		read:   func(to writer) reader { return &messageReader{to: to} },
		stream: func(created int64) writer { return &chunkWriter{model: c.Model, created: created} },
		whole:  func(created int64) writer { return &completionWriter{model: c.Model, created: created} },
	}, nil
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
		reply.Body = newStream(from.Body, t.read, t.stream(created))
	} else {
		reply.Body = newWhole(from.Body, t.read, t.whole(created))
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
