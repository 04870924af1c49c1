package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The bounds on a test: a picture takes its time.
const (
	probeTimeout       = 25 * time.Second
	costlyProbeTimeout = 3 * time.Minute
)

// trial is one operation that a channel can be tested with.
type channelProbe struct {
	op    upstream.Op
	costs bool
	ask   func(ctx context.Context, g *gateway.Gateway, model string) error
}

// trials are in the order in which they are preferred. Edits and videos are not
// among them: they need a picture, and minutes.
var channelProbes = []channelProbe{
	{upstream.ChatCompletion, false, probeChat},
	{upstream.Messages, false, probeMessages},
	{upstream.Embeddings, false, probeEmbeddings},
	{upstream.Speech, true, probeSpeech},
	{upstream.GenerateImage, true, probeImage},
}

const probeText = "Hi"

func probeChat(ctx context.Context, g *gateway.Gateway, model string) error {
	_, err := g.Chat(ctx, &chat.Request{Model: model, MaxTokens: 1, Messages: []chat.Message{{Role: "user", Content: chat.Text(probeText)}}})
	return err
}

func probeMessages(ctx context.Context, g *gateway.Gateway, model string) error {
	_, err := g.Messages(ctx, &messages.Request{Model: model, MaxTokens: 1, Messages: []messages.Message{{Role: "user", Content: messages.Text(probeText)}}})
	return err
}

func probeEmbeddings(ctx context.Context, g *gateway.Gateway, model string) error {
	_, err := g.Embeddings(ctx, &embeddings.Request{Model: model, Input: embeddings.Text(probeText)})
	return err
}

func probeSpeech(ctx context.Context, g *gateway.Gateway, model string) error {
	r, err := g.Speech(ctx, &speech.Request{Model: model, Input: probeText, ResponseFormat: speech.WAV})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}

func probeImage(ctx context.Context, g *gateway.Gateway, model string) error {
	r := &images.Request{Model: model, Prompt: probeText}
	if drawnFromMessages(model) {
		r.Prompt = ""
		r.Input = &images.Input{Messages: []images.Message{{Role: "user", Content: []images.Block{{Text: probeText}}}}}
	}
	_, err := g.Images(ctx, r)
	return err
}

// drawnFromMessages reports whether a model's requests are of the alpha family's
// form.
func drawnFromMessages(model string) bool {
	for _, f := range images.Families() {
		if f.Messages && slices.ContainsFunc(f.Models, func(m images.Model) bool { return m.ID == model }) {
			return true
		}
	}
	return false
}

// testChannel makes one small call through a channel. It takes the way of every
// call but for accounts, keys and the books: nobody is charged, and what comes
// back has to be a sound answer. Only then does it say something of the channel's
// health: that a rest is over.
func (h *app) testChannel(ctx context.Context, in server.ChannelTest) (server.ChannelResult, error) {
	parts := h.components.Load()
	model, t, err := chooseProbe(parts, in)
	if err != nil {
		return server.ChannelResult{}, err
	}
	g, err := gateway.New(gateway.Options{Upstream: &singleChannel{parts: parts, channel: in.Channel}, Models: parts.Models})
	if err != nil {
		return server.ChannelResult{}, err
	}
	patience := probeTimeout
	if t.costs {
		patience = costlyProbeTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	if err = t.ask(ctx, g, model); err == nil {
		err = parts.Router.ResetHealth(in.Channel)
	}
	r := server.ChannelResult{
		Channel: in.Channel, Model: model, Operation: string(t.op), OK: err == nil, MS: time.Since(began).Milliseconds(),
		Simulated: parts.Config.Channel(in.Channel).Driver == "sim",
	}
	if err != nil {
		describeFailure(&r, err, patience)
	}
	return r, g.Close()
}

// failed tells the operator what a caller would have been told, and the vendor's
// own words, in which the driver has masked the keys.
func describeFailure(r *server.ChannelResult, err error, patience time.Duration) {
	f := fault.From(err)
	r.Code, r.Message = word.Code(f.Code), f.Message // the log gets the code too
	var u *upstream.Failure
	if errors.As(err, &u) {
		r.Status = u.Status
		if u.Err != nil {
			r.Message += " " + oneLine(u.Error())
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		r.Message = fmt.Sprintf("There was no answer within %s.", patience)
	}
}

// sole is one channel of a router, as an upstream that is asked once.
type singleChannel struct {
	parts   *config.Components
	channel string
	failed  error // what came of it; the calls of a test come one after the other
}

// Supports implements [upstream.Supporter].
func (s *singleChannel) Supports(op upstream.Op, model string) bool {
	return s.parts.Supports(s.channel, op, model)
}

// Do asks the channel, paused or not. What failed is not tried again: the
// channel's router did that, where it was of use.
func (s *singleChannel) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if s.failed != nil {
		return nil, s.failed
	}
	named := *call
	named.Channel, named.Test = s.channel, true
	reply, err := s.parts.Router.Do(ctx, &named)
	if err != nil {
		s.failed = fault.From(err).With(func(e *fault.Error) { e.RetryAfter = 0 }) // which would be waited for
	}
	return reply, s.failed
}

// chooseTrial finds a model of the channel and what to ask it for.
func chooseProbe(parts *config.Components, in server.ChannelTest) (string, *channelProbe, error) {
	c := parts.Config.Channel(in.Channel)
	if c == nil {
		return "", nil, fault.New(fault.NotFound, fmt.Sprintf("There is no channel %q.", in.Channel))
	}
	ids := slices.Sorted(maps.Keys(c.Models))
	if in.Model == "" {
		for _, id := range ids {
			if t := probeFor(parts, in.Channel, id); t != nil && !t.costs {
				return id, t, nil
			}
		}
		if slices.Contains(ids, "*") {
			return "", nil, fault.Invalid("model", fmt.Sprintf("The channel %s passes every model through: name the one to test it with (--model MODEL).", in.Channel))
		}
		return "", nil, fault.Invalid("model", fmt.Sprintf("Every model of the channel %s costs money to test: name one (--model MODEL), and say that you want it (--yes).", in.Channel))
	}
	switch t := probeFor(parts, in.Channel, in.Model); {
	case !c.Serves(in.Model):
		return "", nil, fault.Invalid("model", fmt.Sprintf("The channel %s does not serve the model %q.", in.Channel, in.Model))
	case t == nil:
		return "", nil, fault.Invalid("model", fmt.Sprintf("The model %s makes neither text, vectors, speech nor a picture from words, so there is no small call to test it with.", in.Model))
	case t.costs && !in.Yes:
		return "", nil, fault.Invalid("yes", fmt.Sprintf("A test with the model %s costs money: say that you want it (--yes).", in.Model))
	default:
		return in.Model, t, nil
	}
}

// trialOf is what a model can be tested with; nil for nothing.
func probeFor(parts *config.Components, channel, model string) *channelProbe {
	kind := kindOf(parts.Config, model)
	for i := range channelProbes {
		t := &channelProbes[i]
		if kindAllows(kind, t.op) && parts.Supports(channel, t.op, model) {
			return t
		}
	}
	return nil
}

// kindsOf are the kinds of models that an operation is for.
var kindsOf = map[upstream.Op][]gateway.Kind{
	upstream.ChatCompletion: {gateway.KindChat, gateway.KindMessages},
	upstream.Messages:       {gateway.KindChat, gateway.KindMessages},
	upstream.Embeddings:     {gateway.KindEmbeddings},
	upstream.Speech:         {gateway.KindSpeech},
	upstream.GenerateImage:  {gateway.KindImage},
}

// fits reports whether a model of the kind is called by op. One of an unknown
// kind is, if its upstream knows better.
func kindAllows(kind gateway.Kind, op upstream.Op) bool {
	return kind == "" || slices.Contains(kindsOf[op], kind)
}
