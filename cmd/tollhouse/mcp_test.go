package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// withKey is a transport that brings a key.
type withKey string

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// connectAgent connects the SDK's client.
func connectAgent(t *testing.T, transport sdk.Transport) *sdk.ClientSession {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// toolCalls are calls of all tools; {id} is that of the video.
var toolCalls = []struct {
	tool string
	args map[string]any
}{
	{"chat", map[string]any{"model": "sim-chat", "prompt": "hi"}},
	{"generate_image", map[string]any{"model": "alpha-image-2.0", "prompt": "a boat"}},
	{"edit_image", map[string]any{"model": "alpha-image-edit", "prompt": "night", "images": []string{"https://example.com/a.png"}}},
	{"generate_video", map[string]any{"model": "beta2.6-t2v", "prompt": "rain", "duration": 2}},
	{"get_video", map[string]any{"id": "{id}", "wait": true}},
	{"create_embeddings", map[string]any{"model": "text-embedding-v4", "input": []string{"a"}}},
	{"text_to_speech", map[string]any{"model": "alpha3-tts-flash", "text": "hi", "format": "wav"}},
	{"list_models", nil},
	{"estimate_cost", map[string]any{"tool": "chat", "arguments": map[string]any{"model": "sim-chat", "prompt": "hi"}}},
	{"get_balance", nil},
}

// callAllTools calls every tool.
func callAllTools(t *testing.T, session *sdk.ClientSession) {
	t.Helper()
	id := ""
	for _, u := range toolCalls {
		if u.args["id"] != nil {
			u.args = map[string]any{"id": id, "wait": true}
		}
		r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: u.tool, Arguments: u.args})
		if err != nil || r.IsError {
			t.Fatalf("%s: %v %v", u.tool, err, r)
		}
		members, _ := r.StructuredContent.(map[string]any)
		if u.tool == "generate_video" {
			id, _ = members["id"].(string)
		}
		if u.tool == "get_video" && members["status"] != "succeeded" {
			t.Errorf("the video is %v", members)
		}
	}
}

func withInstantVideos(p *program) { p.instantVideos = true }

func TestServeServesTheToolsBesideTheAPI(t *testing.T) {
	t.Parallel()
	i := startEdited(t, withInstantVideos, nil, "--demo")
	key := firstKey(t, i.stdout.String())
	if m := i.stdout.Await(`MCP +(\S+)`); m == nil || m[1] != i.api+"/mcp" {
		t.Errorf("the banner says of the tools: %v", m)
	}
	session := connectAgent(t, &sdk.StreamableClientTransport{Endpoint: i.api + "/mcp", HTTPClient: &http.Client{Transport: withKey(key)}})
	callAllTools(t, session)
	_ = session.Close()
	http.DefaultClient.CloseIdleConnections()
}

func TestTheToolsCanBeSwitchedOff(t *testing.T) {
	i := start(t, acme, "--config", file(t, simConfig("m")+"mcp: {enabled: false}\n"))
	resp, err := http.Post(i.api+"/mcp", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound || strings.Contains(i.stdout.String(), "MCP") {
		t.Errorf("it answered with %d", resp.StatusCode)
	}
}

// runMCP runs the command with pipes in place of standard input and output.
func runMCP(t *testing.T, env environment, args ...string) (session *sdk.ClientSession, said *bytes.Buffer, end func() int) {
	t.Helper()
	in, fromClient := io.Pipe()
	toClient, out := io.Pipe()
	said = new(bytes.Buffer)
	p := &program{env: env.lookup, stdin: in, stdout: out, stderr: said, instantVideos: true}
	code := make(chan int, 1)
	go func() {
		code <- p.run(context.Background(), append([]string{"mcp"}, args...))
		_ = out.Close()
	}()
	session = connectAgent(t, &sdk.IOTransport{Reader: toClient, Writer: fromClient})
	return session, said, func() int {
		_ = session.Close()
		return <-code
	}
}

func TestAnAgentUsesEveryToolOverStandardInputAndOutput(t *testing.T) {
	t.Parallel()
	session, said, end := runMCP(t, nil, "--demo", "--data", t.TempDir())
	callAllTools(t, session)
	if code := end(); code != exitOK || said.Len() > 0 {
		t.Errorf("it ended with %d, and said %s", code, said)
	}
}

func TestAnAgentReachesAServerThatRuns(t *testing.T) {
	t.Parallel()
	i := startEdited(t, withInstantVideos, nil, "--demo")
	session, said, end := runMCP(t, environment{"TOLLHOUSE_KEY": firstKey(t, i.stdout.String())}, "--url", i.api)
	callAllTools(t, session)
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "chat", Arguments: map[string]any{"model": "none", "prompt": "hi"}})
	if err != nil || !r.IsError {
		t.Errorf("an unknown model gave %v, %v", r, err)
	}
	if code := end(); code != exitOK || said.Len() > 0 {
		t.Errorf("it ended with %d, and said %s", code, said)
	}
}

func TestAnAgentIsToldWhyAServerRefusesIt(t *testing.T) {
	i := start(t, nil, "--demo")
	var out bytes.Buffer
	const begin = `{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	for name, c := range map[string]struct{ url, want string }{
		"a wrong key": {i.api, `^\{"error":\{"code":-32000,"message":"unauthorized: .+"\},"id":"a","jsonrpc":"2.0"\}\n$`},
		"nobody":      {"http://127.0.0.1:1", `the server does not answer`},
	} {
		out.Reset()
		p := &program{env: environment{"TOLLHOUSE_KEY": "sk-wrong"}.lookup, stdin: strings.NewReader(begin + "\n\n"), stdout: &out, stderr: io.Discard}
		if code := p.run(t.Context(), []string{"mcp", "--url", c.url}); code != exitOK && name == "a wrong key" {
			t.Errorf("%s: it ended with %d", name, code)
		}
		if !regexp.MustCompile(c.want).MatchString(out.String()) {
			t.Errorf("%s: it said %q", name, out.String())
		}
	}
}

func TestAnAgentIsShownTheWayToAServerThatHasTheFileOpen(t *testing.T) {
	i := serving(t)
	env := environment{"ACME_KEY": acme["ACME_KEY"], "TOLLHOUSE_KEY": acme["ACME_KEY"]}
	r := tollhouse(t, env, "mcp", "--config", file(t, simConfig("m")), "--data", i.data)
	if r.code != exitFailed || !strings.Contains(r.stderr, "--url") || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%d %q", r.code, r.stderr)
	}
}

func TestTheWayToAServerTakesNoSourceOfItsOwn(t *testing.T) {
	key := environment{"TOLLHOUSE_KEY": "sk-0123456789abcdefghij"}
	for _, c := range []struct {
		env  environment
		args string
		want string
	}{
		{nil, "mcp --demo --url http://127.0.0.1:1", "leave out --config and --demo"},
		{nil, "mcp --url http://127.0.0.1:1", "TOLLHOUSE_KEY is missing: it holds a key of the server at http://127.0.0.1:1"},
		{key, "mcp --url 127.0.0.1:8080", "--url must be an address such as http://127.0.0.1:8080"},
		{key, "mcp --url ftp://h", "--url must be an address"},
		{key, "mcp --url http://u:p@h", "--url must be an address"},
	} {
		r := tollhouse(t, c.env, strings.Fields(c.args)...)
		if r.code != exitUsage || r.stdout != "" || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stderr, "--key") {
			t.Errorf("%s: it ended with %d %q %q, want %q", c.args, r.code, r.stdout, r.stderr, c.want)
		}
	}
}

func TestAnAgentNeedsAKeyWhereTheFileHasAccounts(t *testing.T) {
	name := file(t, simConfig("m"))
	for want, env := range map[string]environment{
		"TOLLHOUSE_KEY is missing": acme,
		"unauthorized":             {"ACME_KEY": acme["ACME_KEY"], "TOLLHOUSE_KEY": "sk-wrong"},
	} {
		r := tollhouse(t, env, "mcp", "--config", name, "--data", t.TempDir())
		if r.code == exitOK || r.stdout != "" || !strings.Contains(r.stderr, want) {
			t.Errorf("it ended with %d %q %q, want %q", r.code, r.stdout, r.stderr, want)
		}
	}
	env := environment{"ACME_KEY": acme["ACME_KEY"], "TOLLHOUSE_KEY": acme["ACME_KEY"]}
	session, _, end := runMCP(t, env, "--config", name, "--data", t.TempDir())
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "get_balance"})
	if members, _ := r.StructuredContent.(map[string]any); err != nil || members["account"] != "acme" {
		t.Errorf("the balance is %v, %v", r, err)
	}
	if code := end(); code != exitOK {
		t.Errorf("it ended with %d", code)
	}
}
