package messages

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Bridge makes an upstream that speaks only one of chat completions and
// messages answer both. What it speaks itself passes untouched. A gateway puts
// it around every channel, and a [Tap] above: a translated stream of a message
// can hold events that are for the Tap alone. now dates the completions that are made of messages;
// nil means time.Now.
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

// translations lead from the operation of a call to the one that can stand in
// for it.
var translations = map[upstream.Op]struct {
	by upstream.Op
	do func(b *bridge, ctx context.Context, call *upstream.Call) (*upstream.Reply, error)
}{
	upstream.Messages:       {upstream.ChatCompletion, (*bridge).byChat},
	upstream.ChatCompletion: {upstream.Messages, (*bridge).byMessages},
}

// Supports adds to what the upstream speaks what can be translated into it.
func (b *bridge) Supports(op upstream.Op, model string) bool {
	t, translated := translations[op]
	return upstream.Supports(b.up, op, model) || translated && upstream.Supports(b.up, t.by, model)
}

// Do hands the call on, translated where the upstream does not speak it.
func (b *bridge) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	t, known := translations[call.Op]
	switch native := upstream.Supports(b.up, call.Op, call.Model); {
	case native && call.Op == upstream.Messages:
		return b.up.Do(ctx, stripSyntheticThinking(call))
	case native, !known:
		return b.up.Do(ctx, call)
	}
	return t.do(b, ctx, call)
}

// byChat answers a call for a message by a chat completion.
func (b *bridge) byChat(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	r, err := serve.Request(call, Parse)
	if err != nil {
		return nil, err
	}
	typed, dropped, err := toChat(r)
	if err != nil {
		return nil, notSent(err)
	}
	c, err := chat.Encode(typed)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return nil, notSent(err)
	}
	reply, err := b.up.Do(ctx, translatedCall(call, upstream.ChatCompletion, c.Prepared(0), c))
	if err != nil {
		return nil, translatedError(err)
	}
	if call.Stream {
		return translatedReply(reply, fromChatStream(r, reply.Body), dropped), nil
	}
	back := func(data []byte) ([]byte, error) { return fromChatAnswer(r, data) }
	return translatedReply(reply, &lazyBody{src: reply.Body, translate: back}, dropped), nil
}

// byMessages answers a call for a chat completion by a message.
func (b *bridge) byMessages(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	c, err := serve.Request(call, chat.Parse)
	if err != nil {
		return nil, err
	}
	typed, dropped, err := fromChat(c, call.MaxOutput)
	if err != nil {
		return nil, notSent(err)
	}
	r, err := Encode(typed)
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return nil, notSent(err)
	}
	reply, err := b.up.Do(ctx, translatedCall(call, upstream.Messages, r.Prepared(0), r))
	if err != nil {
		return nil, translatedError(err)
	}
	created := b.now().Unix()
	if call.Stream {
		return translatedReply(reply, toChatStream(c, reply.Body, created), dropped), nil
	}
	back := func(data []byte) ([]byte, error) { return toChatAnswer(c, data, created) }
	return translatedReply(reply, &lazyBody{src: reply.Body, translate: back}, dropped), nil
}

// translatedCall is the call in the other dialect. Headers of the client's are of its
// own.
func translatedCall(call *upstream.Call, op upstream.Op, body upstream.Body, view any) *upstream.Call {
	f := *call
	f.Op, f.Body, f.Request, f.Header, f.Query = op, body, view, nil, ""
	return &f
}

// notSent is a request that the other dialect has no words for.
func notSent(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return upstream.NotSent(f)
	}
	return err
}

// translatedError is an upstream's error without its body, which is in words of
// the other dialect.
func translatedError(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Body == nil {
		return err
	}
	return f.With(func(e *fault.Error) { e.Body = nil })
}

// translatedReply is the reply with a translatedReply body.
func translatedReply(reply *upstream.Reply, body io.ReadCloser, dropped []string) *upstream.Reply {
	t := *reply
	t.Body = body
	if len(dropped) > 0 {
		t.Dropped = slices.Concat(dropped, reply.Dropped)
	}
	t.Header = nil
	if kind := reply.Header.Get("Content-Type"); kind != "" {
		t.Header = http.Header{"Content-Type": {kind}}
	}
	return &t
}
