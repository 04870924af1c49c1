package chat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

type cart struct {
	Horses int `json:"horses" jsonschema:"how many horses draw it"`
}

// toll is a tool that works.
func toll() chat.Tool {
	return chat.NewTool("toll", "The toll of a cart, in pence.", func(_ context.Context, c cart) (int, error) { return 3 * c.Horses, nil })
}

// calls is an answer that calls tools, by their names and arguments in turn.
func calls(all ...string) sim.Step {
	var s sim.Step
	for i := 0; i < len(all); i += 2 {
		s.Calls = append(s.Calls, chat.ToolCall{ID: fmt.Sprint("call_", i/2), Type: "function", Function: chat.CalledFunction{Name: all[i], Arguments: all[i+1]}})
	}
	return s
}

// steps ranges over a loop to its end.
func steps(t *testing.T, g chat.Caller, tools []chat.Tool, o chat.LoopOptions) (all []chat.Step, failed error) {
	t.Helper()
	for step, err := range chat.Loop(t.Context(), g, question(), tools, o) {
		all = append(all, step)
		if failed != nil {
			t.Error("a step after an error")
		}
		failed = err
	}
	return all, failed
}

func TestALoopRunsToolsUntilTheAnswer(t *testing.T) {
	asked, g := recorded(t, sim.Script(
		calls("toll", `{"horses":2}`, "greet", `{"value":"Ann"}`),
		calls("toll", `{"horses":4}`),
		sim.Step{Text: "18 pence."},
	))
	greet := chat.NewTool("greet", "", func(_ context.Context, name string) (string, error) { return "Hello, " + name + `! "quoted"`, nil })
	req := question()
	req.Tools = []byte(`[{"type":"function","function":{"name":"own"}}]`)
	req.Messages = append(make([]chat.Message, 0, 9), req.Messages...)
	var all []chat.Step
	for step, err := range chat.Loop(t.Context(), g, req, []chat.Tool{toll(), greet}, chat.LoopOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, step)
	}
	if len(all) != 3 || all[2].Response.Choices[0].Message.Content.String() != "18 pence." || all[2].Results != nil {
		t.Fatalf("steps %+v", all)
	}
	want := []chat.Message{
		{Role: "tool", ToolCallID: "call_0", Content: chat.Text("6")},
		{Role: "tool", ToolCallID: "call_1", Content: chat.Text(`Hello, Ann! "quoted"`)},
	}
	if diff := cmp.Diff(want, all[0].Results); diff != "" {
		t.Errorf("the first results: %s", diff)
	}
	var sum billing.Money
	for _, r := range gatewaytest.Charges(t) {
		sum += r.Charge
	}
	if all[2].Cost != sum || sum == 0 || all[0].Cost != all[0].Response.Charge {
		t.Errorf("the loop says that it cost %s, and its receipts %s", all[2].Cost, sum)
	}
	last := (*asked)[2]
	if len(last.Messages) != 6 || len(last.Messages[1].ToolCalls) != 2 || last.Messages[5].Content.String() != "12" {
		t.Errorf("the last call has the messages %+v", last.Messages)
	}
	functions, err := last.Functions()
	if err != nil || len(functions) != 3 || functions[0].Name != "own" || !strings.Contains(string(functions[1].Parameters), "how many horses draw it") {
		t.Errorf("the last call has the tools %+v, %v", functions, err)
	}
	if len(req.Messages) != 1 || req.Messages[:2:9][1].Role != "" || strings.Contains(string(req.Tools), "toll") {
		t.Error("the caller's request changed")
	}
}

func TestWhatGoesWrongInAToolGoesToTheModel(t *testing.T) {
	ran := 0
	tools := []chat.Tool{
		toll(),
		chat.NewTool("fails", "", func(context.Context, struct{}) (int, error) { return 0, errors.New("the bridge is closed") }),
		chat.NewTool("panics", "", func(context.Context, struct{}) (int, error) { panic("sk-secret") }),
		chat.NewTool("exits", "", func(context.Context, struct{}) (int, error) { runtime.Goexit(); return 0, nil }),
		chat.NewTool("no json", "", func(context.Context, struct{}) (func(), error) { return func() {}, nil }),
		chat.NewTool("strict", "", func(context.Context, cart) (int, error) { ran++; return 0, nil }),
		chat.NewTool("empty", "", func(context.Context, struct{}) (string, error) { return "", nil }),
	}
	_, g := recorded(t, sim.Script(calls(
		"fails", "", "panics", "{}", "exits", "{}", "no json", "{}", "unknown", "{}",
		"strict", `{"horses":"two"}`, "strict", `{}`, "strict", `{"horses":2,"more":1}`, "strict", `{"horses":2`, "strict", "",
		"empty", "{}", "toll", `{"horses":1}`,
	), sim.Step{Text: "Well."}))
	all, err := steps(t, g, tools, chat.LoopOptions{})
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	misfit := "error: the arguments do not fit the schema: "
	for i, want := range []string{
		"error: the bridge is closed", "the tool failed", "the tool failed", "the tool failed", `error: there is no tool "unknown"`,
		misfit, misfit, misfit, misfit, misfit,
		"", "3",
	} {
		got := all[0].Results[i].Content.String()
		if got != want && (want != misfit || !strings.HasPrefix(got, want)) {
			t.Errorf("call %d: the model hears %q, want %q", i, got, want)
		}
	}
	if ran > 0 {
		t.Errorf("a tool ran %d times with arguments that do not fit", ran)
	}
}

func TestCallsOfOneAnswerRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := chat.NewTool("wait", "", func(ctx context.Context, _ struct{}) (bool, error) { time.Sleep(time.Second); return true, nil })
		_, g := recorded(t, sim.Script(calls("wait", "{}", "wait", "{}", "wait", "{}"), sim.Step{Text: "Done."}))
		start := time.Now()
		if _, err := steps(t, g, []chat.Tool{wait}, chat.LoopOptions{}); err != nil || time.Since(start) != time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestBoundsOfALoopAreErrors(t *testing.T) {
	again := calls("toll", `{"horses":2}`)
	t.Run("rounds", func(t *testing.T) {
		asked, g := recorded(t, sim.Script(again, again, again, again))
		all, err := steps(t, g, []chat.Tool{toll()}, chat.LoopOptions{MaxRounds: 3})
		if !errors.Is(err, chat.ErrMaxRounds) || len(*asked) != 3 || len(all) != 3 || all[2].Response == nil || all[2].Results != nil || all[2].Cost == 0 {
			t.Errorf("after %d calls: %+v, %v", len(*asked), all, err)
		}
	})
	t.Run("ten rounds", func(t *testing.T) {
		asked, g := recorded(t, sim.Script(again, again, again, again, again, again, again, again, again, again, again))
		if _, err := steps(t, g, []chat.Tool{toll()}, chat.LoopOptions{}); !errors.Is(err, chat.ErrMaxRounds) || len(*asked) != 10 {
			t.Errorf("after %d calls: %v", len(*asked), err)
		}
	})
	t.Run("money, of a fake", func(t *testing.T) {
		g := answers{{message: &chat.Message{ToolCalls: again.Calls}, charge: 60}, {message: &chat.Message{ToolCalls: again.Calls}, charge: 40}}
		all, err := steps(t, &g, []chat.Tool{toll()}, chat.LoopOptions{MaxCost: 100})
		if !errors.Is(err, fault.BudgetExceeded) || len(g) != 0 || len(all) != 3 || all[2].Cost != 100 || all[2].Response != nil {
			t.Errorf("%+v, %v", all, err)
		}
	})
	t.Run("an error of a call", func(t *testing.T) {
		g := answers{{message: &chat.Message{ToolCalls: again.Calls}, charge: 60}, {err: fault.RateLimitExceeded}}
		all, err := steps(t, &g, []chat.Tool{toll()}, chat.LoopOptions{})
		if !errors.Is(err, fault.RateLimitExceeded) || len(all) != 2 || all[1].Cost != 60 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestToolsThatCannotBeDescribedFailBeforeTheFirstCall(t *testing.T) {
	for name, tools := range map[string][]chat.Tool{
		"no schema":     {chat.NewTool("list", "", func(context.Context, list) (int, error) { return 0, nil })},
		"the same name": {toll(), toll()},
		"empty":         {{}},
	} {
		g := answers{}
		if all, err := steps(t, &g, tools, chat.LoopOptions{}); !errors.Is(err, fault.InvalidRequest) || len(all) != 1 {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
}

func TestTheEndOfTheContextEndsALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := 0
		wait := chat.NewTool("wait", "", func(ctx context.Context, _ struct{}) (int, error) { <-ctx.Done(); ended++; return 0, ctx.Err() })
		g := answers{{message: &chat.Message{ToolCalls: calls("wait", "{}").Calls}, charge: 5}}
		var all []chat.Step
		var failed error
		for step, err := range chat.Loop(ctx, &g, question(), []chat.Tool{wait}, chat.LoopOptions{}) {
			all, failed = append(all, step), err
		}
		if !errors.Is(failed, context.DeadlineExceeded) || len(all) != 1 || all[0].Cost != 5 || ended != 1 {
			t.Errorf("%+v, %v, and %d tools have ended", all, failed, ended)
		}
	})
}

func TestARepeatedLoopUnderAnIdempotencyKeyIsFree(t *testing.T) {
	asked, g := recorded(t, sim.Script(calls("toll", `{"horses":2}`), calls("toll", `{"horses":3}`), sim.Step{Text: "15 pence."}))
	ctx := gateway.WithIdempotencyKey(t.Context(), "order-17")
	for run := range 2 {
		var last chat.Step
		for step, err := range chat.Loop(ctx, g, question(), []chat.Tool{toll()}, chat.LoopOptions{}) {
			if err != nil {
				t.Fatalf("run %d: %v", run, err)
			}
			last = step
		}
		if got := last.Response.Choices[0].Message.Content.String(); got != "15 pence." {
			t.Errorf("run %d answers %q", run, got)
		}
	}
	if len(*asked) != 3 || len(gatewaytest.Charges(t)) != 3 {
		t.Errorf("the vendor was asked %d times, want 3; receipts %+v", len(*asked), gatewaytest.Charges(t))
	}
}

// A model that does what it likes, tools that do what they like, callers that leave: the bounds
// hold, and nothing runs on.
func TestALoopKeepsItsBoundsUnderRandomScripts(t *testing.T) {
	const scripts = 1_000
	for seed := range uint64(scripts) {
		synctest.Test(t, func(t *testing.T) { playRandom(t, rand.New(rand.NewPCG(seed, 1))) })
		if t.Failed() {
			t.Fatalf("with the seed %d", seed)
		}
	}
}

// playRandom plays one random script. It ends when all of its goroutines have.
func playRandom(t *testing.T, random *rand.Rand) {
	tools := []chat.Tool{
		toll(),
		chat.NewTool("sleeps", "", func(ctx context.Context, ms int) (string, error) {
			select {
			case <-time.After(time.Duration(ms) * time.Millisecond):
				return strings.Repeat("word ", ms%50), nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}),
		chat.NewTool("fails", "", func(context.Context, struct{}) (int, error) { return 0, errors.New("no") }),
		chat.NewTool("panics", "", func(context.Context, struct{}) (int, error) { panic("no") }),
	}
	names, arguments := []string{"toll", "sleeps", "fails", "panics", "unknown"}, []string{`{"horses":2}`, `{"value":300}`, `{}`, ``, `{"x`}
	script := make([]sim.Step, random.IntN(14))
	for i := range script {
		script[i].Delay = time.Duration(random.IntN(200)) * time.Millisecond
		script[i].Text = strings.Repeat("word ", random.IntN(40))
		for range random.IntN(5) - 1 {
			script[i].Calls = append(script[i].Calls, calls(names[random.IntN(len(names))], arguments[random.IntN(len(arguments))]).Calls...)
		}
		if random.IntN(15) == 0 {
			script[i].Err = []error{fault.ServiceUnavailable, errors.New("cut"), fault.Invalid("messages", "No.")}[random.IntN(3)]
		}
	}
	o := chat.LoopOptions{MaxRounds: random.IntN(8), MaxCost: billing.Money(random.IntN(3)) * billing.Money(random.IntN(400_000))}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(5_000))*time.Millisecond)
	defer cancel()
	leaveAt := random.IntN(12)

	g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = sim.Script(script...) })
	rounds, answered := 0, false
	var last chat.Step
	var failed error
	for step, err := range chat.Loop(ctx, g, question(), tools, o) {
		if step.Response != nil {
			rounds++
		}
		if last, failed = step, err; err == nil && len(step.Response.Choices[0].Message.ToolCalls) == 0 {
			answered = true
		}
		if len(step.Results) > 0 && len(step.Results) != len(step.Response.Choices[0].Message.ToolCalls) {
			t.Errorf("%d results of %d calls", len(step.Results), len(step.Response.Choices[0].Message.ToolCalls))
		}
		if rounds == leaveAt {
			break
		}
	}
	most := o.MaxRounds
	if most == 0 {
		most = 10
	}
	if rounds > most || answered && failed != nil || !answered && failed == nil && rounds != leaveAt {
		t.Errorf("%d rounds of %d, answered %t, failed with %v", rounds, most, answered, failed)
	}
	synctest.Wait() // a call whose context has ended runs on, and is charged
	var spent billing.Money
	receipts := gatewaytest.Charges(t)
	for _, r := range receipts {
		spent += r.Charge
	}
	if len(receipts) > most || ctx.Err() == nil && last.Cost != spent {
		t.Errorf("%d receipts of %s, and the loop says %s after at most %d rounds", len(receipts), spent, last.Cost, most)
	}
	if o.MaxCost > 0 && spent > o.MaxCost {
		t.Errorf("spent %s of %s", spent, o.MaxCost)
	}
}
