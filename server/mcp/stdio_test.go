package mcp_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/server/mcp"
)

// serveOverPipes forwards what is written to in to the server that client reaches, and its
// answers to out. ended gives how that ended.
func serveOverPipes(client *http.Client, key secret.String) (in *io.PipeWriter, out *io.PipeReader, ended chan error) {
	lines, in := io.Pipe()
	out, answers := io.Pipe()
	ended = make(chan error, 1)
	go func() {
		ended <- mcp.Serve(context.Background(), client, "http://gateway/mcp", key, lines, answers)
		_ = answers.Close()
	}()
	return in, out, ended
}

// pipes serves a client of the SDK over a pair of pipes. ended gives how the server ended,
// hangUp is what the client's death is.
func (s *fixture) pipes(t *testing.T) (session *sdk.ClientSession, ended chan error, hangUp func()) {
	t.Helper()
	in, out, ended := serveOverPipes(server.Client(s.h), s.Key)
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &sdk.IOTransport{Reader: out, Writer: in}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return session, ended, func() {
		_ = in.Close()
		_ = out.Close()
	}
}

func TestAClientIsServedOverPipesUntilItLeaves(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session, ended, _ := s.pipes(t)
	before := s.Posted(t)
	r := callTool(t, session, "chat", chatting)
	if got, want := (before - s.Posted(t)).String(), member[string](t, r, "charge"); got != want || want == "0.00" {
		t.Errorf("it cost %s, and said %s", got, want)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestTheKeyOfPipesIsCheckedAtEachCall(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session, ended, _ := s.pipes(t)
	if err := s.Keys.SetDisabled(t.Context(), s.ID, true); err != nil {
		t.Fatal(err)
	}
	if said, about := callFailing(t, session, "chat", chatting); about["code"] != "permission_denied" || !strings.Contains(said, "tell the user") {
		t.Errorf("a disabled key gave %q", said)
	}
	_ = session.Close()
	<-ended
}

func TestTheEndOfThePipesEndsTheirCalls(t *testing.T) {
	up := servertest.NewStream()
	s := newFixture(t, fixtureOptions{upstream: up})
	session, ended, hangUp := s.pipes(t)
	failed := make(chan error, 1)
	go func() {
		_, err := session.CallTool(context.Background(), &sdk.CallToolParams{Name: "chat", Arguments: chatting})
		failed <- err
	}()
	awaitSoon(t, "the call", up.Called)
	hangUp()
	if err := <-failed; err == nil {
		t.Error("the call was answered")
	}
	up.End() // a whole answer is made to its end
	<-ended
	awaitSoon(t, "the end of the upstream's call", up.Gone)
}

func TestALineThatIsNoRequestEndsNothing(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	in, out, ended := serveOverPipes(server.Client(s.h), s.Key)
	answers := bufio.NewReader(out)
	ask := func(line, want string) {
		t.Helper()
		go func() { _, _ = io.WriteString(in, line) }()
		got, err := answers.ReadString('\n')
		if err != nil || !strings.Contains(got, want) {
			t.Fatalf("%.60q was answered with %q, %v; want %s", line, got, err, want)
		}
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`+"\n", `"id":1`)
	if _, err := io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"hello":                               `"code":-32700`,
		`{"jsonrpc":"2.0",`:                   `"code":-32700`,
		"{}":                                  `"code":-32700`,
		"7":                                   `"code":-32700`,
		`{"jsonrpc":"1.0","id":1}`:            `"code":-32700`,
		`[{"jsonrpc":"2.0","id":2}]`:          `"code":-32600`,
		strings.Repeat("x", 200_000):          `"code":-32700`,
		"\n\r\n \n\xff\xfe":                   `"code":-32700`,
		`{"jsonrpc":"2.0","id":9,"method":"`:  `"code":-32700`,
		"\ufeff" + `{"jsonrpc":"2.0","id":1}`: `"code":-32700`,
		`{"jsonrpc":"2.0","id":8,"method":"nothing"}`: `"error":{"code":-32601,`,
	} {
		ask(line+"\n", want)
		ask(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`+"\r\n", `"estimate_cost"`)
	}
	_ = in.Close()
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// answering is an HTTP client of a server that always answers the same.
func answering(status int, body string) *http.Client {
	return server.Client(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
}

func TestAnErrorOfAServerThatSpeaksNoMCPIsPassedOn(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"no such path","code":"not_found"}}`: `{"code":-32000,"message":"no such path"}`,
		`{"error":{"code":"not_found","message":"no such path"}}`: `{"code":-32000,"message":"no such path"}`,
		`{"error":{"message":"no such path"}}`:                    `{"code":-32000,"message":"no such path"}`,
		`{"error":{"code":-32602,"message":"no params"}}`:         `{"code":-32602,"message":"no params"}`,
		`not found`: `{"code":-32000,"message":"the server answered with status 404: not found"}`,
	} {
		in, out, ended := serveOverPipes(answering(404, body), secret.New("sk-1"))
		if _, err := io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s became %q, %v; want %s", body, got, err, want)
		}
		_ = in.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
