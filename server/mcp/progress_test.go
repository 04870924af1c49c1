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

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/internal/servertest"
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

// awaitSoon fails unless the channel is closed in time.
func awaitSoon(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("%s: not in time", what)
	}
}

const streamed = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"chat","arguments":{"model":"sim-chat","prompt":"hi"},"_meta":{"progressToken":"p"}}}`

// begin calls a tool that streams, and returns once the first notice of its
// progress is there. read gives the rest of the answer.
func (s *fixture) begin(t *testing.T, ctx context.Context, up *servertest.Stream, session string) (read func() string) {
	t.Helper()
	go func() {
		<-up.Called
		up.Send(t, servertest.Delta("one"))
	}()
	resp := s.open(t, ctx, http.MethodPost, s.url, streamed, "Mcp-Session-Id: "+session)
	events := bufio.NewReader(resp.Body)
	for {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatalf("no progress: %v", err)
		}
		if strings.Contains(line, `"progress":3`) {
			break
		}
	}
	return func() string {
		rest, _ := io.ReadAll(events) // it may have been cut
		_ = resp.Body.Close()
		return string(rest)
	}
}

func TestTheProgressOfAChatIsCountedInCharacters(t *testing.T) {
	up := servertest.NewStream()
	s := newFixture(t, fixtureOptions{upstream: up})
	go func() {
		<-up.Called
		up.Send(t, servertest.Delta("雨が降る"))
		up.Send(t, "[DONE]")
		up.End()
	}()
	a := s.do(t, http.MethodPost, s.url, streamed)
	if !strings.Contains(a.body, `"progress":4`) || !strings.Contains(a.body, `"text":"雨が降る"`) {
		t.Errorf("it told %s", a.body)
	}
}

func TestACallThatIsTakenBackEndsUpstreamAndPaysForWhatCame(t *testing.T) {
	for name, c := range map[string]struct {
		back func(t *testing.T, s *fixture, session string, hangUp func())
		ends bool
	}{
		"by a notification": {func(t *testing.T, s *fixture, session string, _ func()) { s.cancel(t, session, "7") }, true},
		"by the end of its session": {func(t *testing.T, s *fixture, session string, _ func()) {
			s.do(t, http.MethodDelete, s.url, "", "Mcp-Session-Id: "+session)
		}, true},
		"by hanging up": {func(_ *testing.T, _ *fixture, _ string, hangUp func()) { hangUp() }, true},
		"not by a notification of another request": {func(t *testing.T, s *fixture, session string, _ func()) {
			s.cancel(t, session, `"7"`)
		}, false},
		"not by a notification without its session": {func(t *testing.T, s *fixture, _ string, _ func()) { s.cancel(t, "", "7") }, false},
		"not by a notification of another session": {func(t *testing.T, s *fixture, _ string, _ func()) {
			a, _ := s.rpc(t, "initialize", hello)
			s.cancel(t, a.header.Get("Mcp-Session-Id"), "7")
		}, false},
		"not by another key": {func(t *testing.T, s *fixture, session string, _ func()) {
			other, _ := s.Mint(t, auth.KeyOptions{})
			s.cancel(t, session, "7", "Authorization: Bearer "+other.Reveal())
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			up := servertest.NewStream()
			s := newFixture(t, fixtureOptions{upstream: up})
			a, _ := s.rpc(t, "initialize", hello)
			session := a.header.Get("Mcp-Session-Id")
			before := s.Posted(t)
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			read := s.begin(t, ctx, up, session)
			c.back(t, s, session, hangUp)
			if !c.ends {
				up.Send(t, servertest.Delta("two"))
				up.Send(t, "[DONE]")
				up.End()
				if rest := read(); !strings.Contains(rest, "onetwo") {
					t.Errorf("the call was taken back: %s", rest)
				}
				return
			}
			awaitSoon(t, "the end of the upstream's call", up.Gone)
			if rest := read(); strings.Contains(rest, `"result"`) {
				t.Errorf("it was answered all the same: %s", rest)
			}
			for began := time.Now(); s.h.Running() != 0 && time.Since(began) < time.Minute; {
				<-time.After(10 * time.Millisecond)
			}
			if s.h.Running() != 0 || s.Posted(t) == before || !strings.Contains(s.Log.String(), `"outcome":"client_gone"`) {
				t.Errorf("%d run; charged %s; log %s", s.h.Running(), before-s.Posted(t), s.Log)
			}
		})
	}
}

// cancel sends the notification that takes a request back.
func (s *fixture) cancel(t *testing.T, session, id string, header ...string) {
	t.Helper()
	if session != "" {
		header = append(header, "Mcp-Session-Id: "+session)
	}
	s.do(t, http.MethodPost, s.url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`, header...)
}
