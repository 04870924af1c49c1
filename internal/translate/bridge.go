// Package translate carries a conversation to an upstream that speaks another wire than
// its caller: chat completions, messages and responses, each to the other two.
//
// A request first becomes one for a chat completion, in which all wires meet
// (messages_to_chat.go, responses_to_chat*.go). Then it becomes one of the upstream's wire
// (chat_to_messages.go, chat_to_responses.go). Each has a table of fields (fields.go), which
// says what is carried, dropped or refused. A further field is a row of them, with the method
// that carries it and a pair of requests in testdata. Custom tools of chat are in
// chat_custom.go.
//
// Answers go through pieces (answer.go), so each wire is read in one file (*_read.go) and
// written in one (*_write*.go). blocks.go puts pieces that come in any order into that of
// blocks or items. ending.go has what an answer ends with. A further wire is a row of wires,
// with the two steps of its requests, a reader and a writer.
package translate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/seal"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Options are what the bridge needs for its answers, and for conversations that continue one.
// The zero Options seal no reasoning.
type Options struct {
	Now     func() time.Time           // dates answers; nil means time.Now
	NewID   func(prefix string) string // makes the ids of responses; nil means random ones
	Secrets *seal.Secrets              // seal the reasoning of a response for its client

	// MaxEvent is the most bytes of an upstream's event; 0 means sse.DefaultLimit. Memory
	// returns the budget for large events of the call with that context; nil means no bound.
	MaxEvent int64
	Memory   func(ctx context.Context) sse.Budget
}

// Bridge makes an upstream that speaks one of chat completions, messages and responses answer
// all three. What it speaks itself passes untouched. A gateway puts it around every channel,
// and the Tap of the caller's wire above it. A translated stream of a message can hold events
// that are for the Tap alone.
func Bridge(o Options) upstream.Middleware {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = func(prefix string) string { return prefix + rand.Text() }
	}
	return func(up upstream.Upstream) upstream.Upstream { return &bridge{up, o} }
}

type bridge struct {
	up upstream.Upstream
	Options
}

// bridgedCall is a call in the words of chat, and the way back of its answer.
type bridgedCall struct {
	chat    *chatop.Request
	dropped []string          // fields of the caller's that chat has no words for
	thinks  bool              // the client asks to see reasoning
	asking  []string          // the caller's fields that ask so, which are dropped where the upstream cannot be asked
	fields  map[string]string // the caller's, by those of chat; nil where they are the same
	keeper  *keeper           // of what the upstream's vendor wants back

	// writer writes the answer on the caller's wire: a stream, or a whole answer. created
	// is in Unix seconds.
	writer func(created int64, stream bool) writer
}

// wire is one of the wires that conversations have.
type wire struct {
	standIns []upstream.Op // operations that can stand in for it, the one that loses least first

	// read puts a caller's call into chat's words.
	read func(b *bridge, call *upstream.Call) (*bridgedCall, error)
	// request puts a conversation into the words of an upstream. It returns the body, as its
	// package parses it, and the fields of chat that could not be carried.
	request func(v *bridgedCall, call *upstream.Call) (body upstream.Body, view any, dropped []string, err error)
	// reader reads an upstream's answer.
	reader func(v *bridgedCall, to writer) reader
}

var wires = map[upstream.Op]wire{
	upstream.ChatCompletion: {
		[]upstream.Op{upstream.Messages, upstream.Responses},
		(*bridge).chatCall, toChat, func(v *bridgedCall, to writer) reader {
			return &chatReader{to: to, wanted: wantedReader{keeper: v.keeper}}
		},
	},
	upstream.Messages: {
		[]upstream.Op{upstream.ChatCompletion, upstream.Responses},
		(*bridge).messageCall, toMessages, func(_ *bridgedCall, to writer) reader { return &messageReader{to: to} },
	},
	upstream.Responses: {
		[]upstream.Op{upstream.ChatCompletion, upstream.Messages},
		(*bridge).responseCall, toResponses, func(_ *bridgedCall, to writer) reader { return &responsesReader{to: to} },
	},
}

// Supports adds to what the upstream speaks what can be translated into it.
func (b *bridge) Supports(op upstream.Op, model string) bool { return b.spoken(op, model) != "" }

// spoken returns the operation by which the upstream answers a call of op: op itself, or one
// that can stand in for it. It is empty if there is none.
func (b *bridge) spoken(op upstream.Op, model string) upstream.Op {
	if upstream.Supports(b.up, op, model) {
		return op
	}
	for _, other := range wires[op].standIns {
		if upstream.Supports(b.up, other, model) {
			return other
		}
	}
	return ""
}

// Do hands the call on, translated where the upstream does not speak it.
func (b *bridge) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	op := b.spoken(call.Op, call.Model)
	if op == "" || op == call.Op {
		if strip := ownThoughts[call.Op]; strip != nil {
			call = strip(call)
		}
		return b.up.Do(ctx, call)
	}
	v, err := wires[call.Op].read(b, call)
	if err != nil {
		return nil, notSent(err)
	}
	v.keeper = b.keeper(call)
	body, view, dropped, err := wires[op].request(v, call)
	if err != nil {
		return nil, notSent(v.inOwnWords(err))
	}
	translated := *call
	translated.Op, translated.Body, translated.Request = op, body, view
	translated.Header, translated.Query = nil, "" // the client's are of its own dialect
	reply, err := b.up.Do(ctx, &translated)
	if err != nil {
		return nil, translatedError(err, op)
	}
	translatedReply := *reply
	read := func(to writer) reader { return wires[op].reader(v, to) }
	translatedReply.Body = newAnswerBody(ctx, reply.Body, read, v.writer(b.Now().Unix(), call.Stream), call.Stream, &b.Options)
	if dropped := slices.Concat(v.dropped, v.inOwnNames(dropped)); len(dropped) > 0 {
		translatedReply.Dropped = slices.Concat(dropped, reply.Dropped)
	}
	translatedReply.Header = nil
	if kind := reply.Header.Get("Content-Type"); kind != "" {
		translatedReply.Header = http.Header{"Content-Type": {kind}}
	}
	return &translatedReply, nil
}

// chatCall reads a call for a chat completion.
func (b *bridge) chatCall(call *upstream.Call) (*bridgedCall, error) {
	c, err := typed(call, chatop.Parse, func(c *chatop.Request) *chat.Request { return c.Request })
	if err != nil {
		return nil, err
	}
	names := customNames(c)
	return &bridgedCall{
		chat: &chatop.Request{Request: c},
		writer: func(created int64, stream bool) writer {
			if stream {
				return &chunkWriter{model: c.Model, created: created, names: names}
			}
			return &completionWriter{model: c.Model, created: created, names: names}
		},
	}, nil
}

// messageCall reads a call for a message.
func (b *bridge) messageCall(call *upstream.Call) (*bridgedCall, error) {
	r, err := typed(call, messagesop.Parse, func(r *messagesop.Request) *messages.Request { return r.Request })
	if err != nil {
		return nil, err
	}
	c, dropped, err := messagesToChat(r, call.Drop...)
	if err != nil {
		return nil, err
	}
	thinks := r.Thinking != nil && (r.Thinking.Type == "enabled" || r.Thinking.Type == "adaptive")
	return &bridgedCall{
		chat: c, dropped: dropped, thinks: thinks,
		fields: map[string]string{"messages": "messages", "stop": "stop_sequences", "response_format": "output_config.format", "reasoning_effort": "output_config.effort"},
		writer: func(_ int64, stream bool) writer {
			return &messageWriter{model: r.Model, thinks: thinks, whole: !stream}
		},
	}, nil
}

// responseCall reads a call for a response. What the model thinks is sealed for the
// account, for the caller to send it back.
func (b *bridge) responseCall(call *upstream.Call) (*bridgedCall, error) {
	const purpose = "thoughts"
	r, err := typed(call, responsesop.Parse, func(r *responsesop.Request) *responses.Request { return r.Request })
	if err != nil {
		return nil, err
	}
	var open func(sealed string) ([]byte, bool)
	out := responseWriter{request: r, id: b.NewID(responsePrefix), now: b.Now}
	if s := b.Secrets; s != nil {
		open = func(sealed string) ([]byte, bool) { return s.OpenText(sealedPrefix, purpose, call.Account, sealed) }
		out.seal = func(thoughts []byte) string { return s.SealText(sealedPrefix, purpose, call.Account, thoughts) }
	}
	c, names, dropped, err := responsesToChat(r, open, call.Drop...)
	if err != nil {
		return nil, err
	}
	out.names = names
	asking := askingForThoughts(r)
	return &bridgedCall{
		chat: c, dropped: dropped, thinks: len(asking) > 0, asking: asking,
		fields: map[string]string{"messages": "input", "response_format": "text.format", "reasoning_effort": "reasoning.effort"},
		writer: func(created int64, stream bool) writer {
			out.created, out.whole = created, !stream
			return &out
		},
	}, nil
}

// askingForThoughts returns the fields by which a request for a response asks to see
// reasoning, or to get it sealed. It returns none if the model must not reason.
func askingForThoughts(r *responses.Request) (fields []string) {
	if o := r.Reasoning; o != nil {
		switch {
		case o.Effort == "none":
			return nil
		case o.Summary != "":
			fields = append(fields, "reasoning.summary")
		case rawjson.LookupString(o.Extra, "generate_summary") != "":
			fields = append(fields, "reasoning.generate_summary")
		}
	}
	if slices.Contains(r.Include, "reasoning.encrypted_content") {
		fields = append(fields, "include")
	}
	return fields
}

// typed is the typed view of a call; parsed from the body where the call came without
// one.
func typed[P, R any](call *upstream.Call, parse func([]byte) (*P, error), view func(*P) *R) (*R, error) {
	return funcmodel.Request(call, func(data []byte) (*R, error) {
		p, err := parse(data)
		if err != nil {
			return nil, err
		}
		return view(p), nil
	})
}

// toChat removes what other wires need to take their reasoning back, and adds what this
// upstream's vendor wants back.
func toChat(v *bridgedCall, _ *upstream.Call) (body upstream.Body, view any, dropped []string, err error) {
	body = v.chat.Outgoing(0).Body
	if list, changed := v.keeper.giveBack(body.Raw("messages")); changed {
		body = body.Set("messages", list)
	}
	return body, v.chat.Request, nil, nil
}

// think returns the type of thinking that a request for a message asks for, or nothing. An
// effort alone asks for thinking only if the channel says how: not every model that takes an
// effort takes the same type.
func (v *bridgedCall) think(call *upstream.Call) string {
	switch effort := v.chat.ReasoningEffort; {
	case v.thinks:
		return cmp.Or(call.Thinking, "adaptive")
	case effort != "" && effort != "none":
		return call.Thinking
	}
	return ""
}

// toMessages makes a request for a message, with the marks of its prompt for the vendor's
// cache where the channel asks for them.
func toMessages(v *bridgedCall, call *upstream.Call) (body upstream.Body, view any, dropped []string, err error) {
	r, dropped, err := chatToMessages(v.chat.Request, call.MaxOutput, v.think(call), v.drops(call)...)
	if err != nil {
		return body, nil, nil, err
	}
	if r.Thinking == nil {
		dropped = append(dropped, v.asking...)
	}
	body = r.Outgoing(0).Body
	if call.CachePrompts {
		body = withBreakpoints(body)
	}
	return body, r.Request, dropped, nil
}

// toResponses makes a request for a response, with reasoning if the client wants to see it.
func toResponses(v *bridgedCall, call *upstream.Call) (body upstream.Body, view any, dropped []string, err error) {
	r, dropped, err := chatToResponses(v.chat.Request, v.thinks, v.drops(call)...)
	if err != nil {
		return body, nil, nil, err
	}
	return r.Outgoing(0).Body, r.Request, dropped, nil
}

// checked is a translated request as its package parses it, if it obeys the rules.
func checked[T any, R interface{ Validate() error }](typed T, encode func(T) (R, error)) (R, error) {
	r, err := encode(typed)
	if err == nil {
		err = r.Validate()
	}
	return r, err
}

// inOwnWords is the refusal of chat's words as one of the caller's. Its place in a list
// is left out: one item there can be several here.
func (v *bridgedCall) inOwnWords(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	name, _, _ := strings.Cut(f.Param, ".")
	name, _, _ = strings.Cut(name, "[")
	ours, known := v.fields[name]
	if !known {
		return err
	}
	return f.With(func(e *fault.Error) {
		e.Param, e.Message = ours, strings.ReplaceAll(f.Message, strconv.Quote(f.Param), strconv.Quote(ours))
	})
}

// drops are the fields that the call's channel drops, by chat's names.
func (v *bridgedCall) drops(call *upstream.Call) []string {
	drops := slices.Clip(call.Drop)
	for chat, own := range v.fields {
		if slices.Contains(call.Drop, own) {
			drops = append(drops, chat)
		}
	}
	return drops
}

// inOwnNames are fields of chat's that were dropped, by the caller's names.
func (v *bridgedCall) inOwnNames(dropped []string) []string {
	for i, field := range dropped {
		name, rest, inner := strings.Cut(field, ".")
		if ours, known := v.fields[name]; known {
			if dropped[i] = ours; inner {
				dropped[i] += "." + rest
			}
		}
	}
	return dropped
}

// notSent is the error of a request that cannot be translated: no upstream got it.
func notSent(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return upstream.NotSent(f)
	}
	return err
}

// fullContext begin the messages, in lower case, with which Anthropic refuses a conversation
// that is too long for the model. No code says so
// (https://docs.anthropic.com/en/docs/build-with-claude/context-windows).
var fullContext = []string{"prompt is too long", "input length and `max_tokens` exceed context limit"}

// translatedError returns the error of an upstream that speaks op. It drops the body, whose
// format the client does not speak. It sets the code that makes clients of the other formats
// shorten a conversation.
func translatedError(err error, op upstream.Op) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	full := op == upstream.Messages && f.Code == fault.InvalidRequest && slices.ContainsFunc(fullContext, func(begin string) bool {
		return strings.HasPrefix(strings.ToLower(f.Message), begin)
	})
	if !full && f.Body == nil {
		return err
	}
	return f.With(func(e *fault.Error) {
		if e.Body = nil; full {
			e.Code, e.Status = "context_length_exceeded", e.HTTPStatus()
		}
	})
}
