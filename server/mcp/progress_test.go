package mcp_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhouse-ai/gateway/server/mcp"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// callWithProgress calls a tool with a progress token.
func callWithProgress(t *testing.T, session *sdk.ClientSession, tool string, a args) *sdk.CallToolResult {
	t.Helper()
	p := &sdk.CallToolParams{Name: tool, Arguments: a}
	p.SetProgressToken("token")
	r, err := session.CallTool(t.Context(), p)
	if err != nil || r.IsError {
		t.Fatal(err, r)
	}
	return r
}

func TestAStreamedChatCostsWhatAWholeOneCosts(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t)
	a := args{"model": "delta-k3", "prompt": "hi"}
	whole := callTool(t, session, "chat", a)
	streamed := callWithProgress(t, session, "chat", a)
	for _, name := range []string{"charge", "text", "reasoning", "finish_reason"} {
		if got, want := member[string](t, streamed, name), member[string](t, whole, name); got != want || want == "" {
			t.Errorf("%s is %q, and %q of the whole one", name, got, want)
		}
	}
}

func TestAVideoIsWaitedForUntilItIsThereOrTheTimeIsOver(t *testing.T) {
	var passed atomic.Int64 // of the vendor's time: a video takes as long as the test wants
	up := sim.New(sim.Options{VideoTime: time.Hour, Now: func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }})
	s := newFixture(t, fixtureOptions{upstream: up})
	session := s.client(t)
	a := args{"model": "beta2.6-t2v", "prompt": "Rain", "duration": 2}
	begun := callTool(t, session, "generate_video", a)
	if status := member[string](t, begun, "status"); status != "processing" {
		t.Errorf("the video is %s at once", status)
	}
	if _, ok := begun.StructuredContent.(map[string]any)["charge"]; ok {
		t.Error("a charge is told before there is one")
	}
	passed.Store(int64(time.Hour))
	there := callTool(t, session, "get_video", args{"id": member[string](t, begun, "id"), "wait": true})
	if member[string](t, there, "status") != "succeeded" || member[string](t, there, "charge") != "0.20" || member[string](t, there, "video_url") == "" {
		t.Errorf("in the end it is %v", there.StructuredContent)
	}
	impatient := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{VideoTime: time.Hour}), mcp: mcp.Options{MaxWait: 20 * time.Millisecond}})
	session = impatient.client(t)
	p := &sdk.CallToolParams{Name: "generate_video", Arguments: args{"model": "beta2.6-t2v", "prompt": "Rain", "duration": 2, "wait": true}}
	p.SetProgressToken("token")
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second) // less than without the token
	defer cancel()
	late, err := session.CallTool(ctx, p)
	if err != nil || late.IsError {
		t.Fatal(late, err)
	}
	if status := member[string](t, late, "status"); status == "succeeded" {
		t.Errorf("it is %s", status)
	}
	impatient.unfinished = true
}

func TestASilentCallGetsSignsOfLife(t *testing.T) {
	const signs = 2
	enough, simulated := make(chan struct{}), sim.New(sim.Options{})
	slow := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		select {
		case <-enough:
			return simulated.Do(ctx, c)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	s := newFixture(t, fixtureOptions{upstream: slow, mcp: mcp.Options{KeepAlive: 20 * time.Millisecond}})
	const chat = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chat","arguments":{"model":"sim-chat","prompt":"hi"}}}`
	resp := s.open(t, t.Context(), http.MethodPost, s.url, chat)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for n := 0; n < signs; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%d signs, then %q, %v", n, line, err)
		}
		if line == ": still working\n" {
			n++
		}
	}
	close(enough)
	if rest, err := io.ReadAll(lines); err != nil || message(t, string(rest))["result"] == nil {
		t.Errorf("in the end it said %s, %v", rest, err)
	}
	if a, _ := s.rpc(t, "tools/list", nil); strings.Contains(a.body, ": still working") {
		t.Errorf("a list needs none: %s", a.body)
	}
}
