package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/callctx"
)

// LoopOptions bound a [Loop]. The zero LoopOptions allow 10 rounds, whatever they cost.
type LoopOptions struct {
	// MaxRounds is how often the model is asked at most; 0 means 10.
	MaxRounds int
	// MaxCost is what all rounds together may cost; 0 means no bound. What is left of it bounds
	// the hold of the next call, so that a call asks for a shorter answer, or is refused.
	MaxCost billing.Money
}

// Step is one round of a [Loop]: an answer, and the results of the tools that it called.
type Step struct {
	// Response is the model's answer. That of the last step is the answer of the loop.
	Response *Response
	// Results are the messages that go back to the model, one for each call, in their order.
	Results []Message
	// Cost is what the loop has cost so far, with this round.
	Cost billing.Money
}

// ErrMaxRounds is in the chain of the error of a [Loop] whose model still calls tools in the
// last round. The tools that it called there do not run.
var ErrMaxRounds = errors.New("chat: the rounds are used up")

// Loop asks a model, runs the tools that it calls, gives it the results, and asks again, until it
// answers without a call. It yields a [Step] for each answer, after its tools have run. Calls of
// one answer run together.
//
//	for step, err := range chat.Loop(ctx, g, req, tools, chat.LoopOptions{MaxCost: billing.One / 10}) {
//
// A tool's error, and arguments that do not fit, go to the model. These errors end the loop:
// that of a call, the end of ctx, ErrMaxRounds, and fault.BudgetExceeded if MaxCost is spent.
// They come beside a Step with the cost of the loop. A panic of a tool ends nothing.
//
// Breaking out of the loop ends it after the round that was yielded. At the end of ctx the loop
// waits for the tools that run: they should end with their context. Nothing runs when the loop
// has ended.
//
// The tools are added to those of req, which is not changed. Under an idempotency key
// (gateway.WithIdempotencyKey) the first call has the key. Each further call has one that is
// made of the key and of what was said since. A repeated loop whose tools give the same
// results gets the same answers, and costs nothing.
func Loop(ctx context.Context, g Caller, req *Request, tools []Tool, o LoopOptions) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		l, err := newLoop(g, req, tools, o)
		if err != nil {
			yield(Step{}, err)
			return
		}
		for round := 1; ; round++ {
			step, err := l.ask(ctx)
			if err != nil {
				yield(step, err)
				return
			}
			said := &step.Response.Choices[0].Message
			if len(said.ToolCalls) == 0 {
				yield(step, nil)
				return
			}
			if round >= cmp.Or(o.MaxRounds, defaultRounds) {
				yield(step, fault.Wrap(fault.BadGateway, fmt.Sprintf("The model still calls tools in round %d, the last one.", round), ErrMaxRounds))
				return
			}
			step.Results = l.run(ctx, said.ToolCalls)
			if err := ctx.Err(); err != nil {
				yield(step, fault.From(err))
				return
			}
			if !yield(step, nil) {
				return
			}
			l.request.Messages = append(append(l.request.Messages, *said), step.Results...)
		}
	}
}

const defaultRounds = 10

// loop is a running [Loop].
type loop struct {
	caller  Caller
	request Request // with the messages so far
	first   int     // messages of the caller's request
	tools   map[string]*Tool
	most    billing.Money // 0 for no bound
	cost    billing.Money
}

// newLoop fails if a tool has no schema, or the name of another one.
func newLoop(g Caller, req *Request, tools []Tool, o LoopOptions) (*loop, error) {
	l := &loop{caller: g, request: *req, first: len(req.Messages), tools: make(map[string]*Tool), most: o.MaxCost}
	l.request.Messages = slices.Clip(l.request.Messages)
	var all []jsontext.Value
	if len(req.Tools) > 0 {
		if err := json.Unmarshal(req.Tools, &all); err != nil {
			return nil, fault.Wrap(fault.InvalidRequest, `"tools" must be an array.`, err)
		}
	}
	for i := range tools {
		t := &tools[i]
		if t.err != nil {
			return nil, fault.Wrap(fault.InvalidRequest, fmt.Sprintf("The arguments of the tool %q have no JSON Schema: %s.", t.function.Name, t.err), t.err)
		}
		if t.run == nil || l.tools[t.function.Name] != nil {
			return nil, fault.Invalid("tools", fmt.Sprintf("The tool %q is empty, or has the name of another one.", t.function.Name))
		}
		l.tools[t.function.Name] = t
		raw, err := json.Marshal(tool{Type: "function", Function: t.function})
		if err != nil {
			return nil, fault.From(err)
		}
		all = append(all, raw)
	}
	if len(tools) > 0 {
		raw, err := json.Marshal(all)
		if err != nil {
			return nil, fault.From(err)
		}
		l.request.Tools = raw
	}
	return l, nil
}

// ask makes the next call, which costs at most what is left.
func (l *loop) ask(ctx context.Context) (Step, error) {
	if err := ctx.Err(); err != nil {
		return Step{Cost: l.cost}, fault.From(err)
	}
	if added := l.request.Messages[l.first:]; len(added) > 0 {
		ctx = furtherCall(ctx, added)
	}
	if l.most != 0 {
		left := l.most - l.cost
		if left <= 0 {
			return Step{Cost: l.cost}, fault.New(fault.BudgetExceeded, fmt.Sprintf("The loop has cost %s of the %s that it may cost.", l.cost, l.most))
		}
		ctx = callctx.WithMaxCost(ctx, left)
	}
	request := l.request // a fake may keep it
	response, err := l.caller.Chat(ctx, &request)
	if response != nil {
		l.cost += response.Charge
	}
	step := Step{Response: response, Cost: l.cost}
	if err == nil {
		_, err = firstMessage(response)
	}
	return step, err
}

// run runs the tools of an answer together, and returns when all have ended.
func (l *loop) run(ctx context.Context, calls []ToolCall) []Message {
	results := make([]Message, len(calls))
	var running sync.WaitGroup
	for i := range calls {
		call, result := &calls[i], &results[i]
		*result = Message{Role: "tool", ToolCallID: call.ID}
		t := l.tools[call.Function.Name]
		if t == nil {
			result.Content = Text(fmt.Sprintf("error: there is no tool %q", call.Function.Name))
			continue
		}
		result.Content = Text(errFailed.Error()) // where the tool ends its goroutine
		running.Go(func() { result.Content = Text(t.result(ctx, call.Function.Arguments)) })
	}
	running.Wait()
	return results
}
