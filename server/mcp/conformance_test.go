package mcp_test

//lint:file-ignore SA1019 the suite asks for what the newest version of the protocol has deprecated

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/server/mcp"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// conformanceSuite is the folder of the suite and of the client in JavaScript, which .ci/mcp/run
// installs; without it these tests have nothing to run.
func conformanceSuite(t *testing.T) (dir, node string) {
	t.Helper()
	dir, node = os.Getenv("MCP_CHECKS"), os.Getenv("MCP_NODE")
	if dir == "" || node == "" {
		t.Skip("MCP_CHECKS and MCP_NODE are not set: .ci/mcp/run does it")
	}
	return dir, node
}

// notOurs begin the names of scenarios that this server does not serve. It never asks its
// client, which needs a session that one process keeps. It has no resources and no prompts.
var notOurs = []string{"tools-call-sampling", "tools-call-elicitation", "elicitation-", "resources-", "prompts-", "completion-"}

// The scenarios that need nothing of the server but tools.
var bare = []string{"server-initialize", "ping", "tools-list", "dns-rebinding-protection", "server-sse-multiple-streams"}

var scenario = regexp.MustCompile(`(?m)^\s*- (\S+) \[`)

// scenarios are those of the suite.
func scenarios(t *testing.T, dir, node string) (names []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), node, suite(dir), "list", "--server").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range scenario.FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	if len(names) < 30 {
		t.Fatalf("the suite has only the scenarios %v", names)
	}
	return names
}

func suite(dir string) string {
	return filepath.Join(dir, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
}

// runScenario runs one scenario against a server.
func runScenario(t *testing.T, dir, node, name, url string) {
	t.Run(name, func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), node, suite(dir), "server", "--url", url, "--scenario", name, "--output-dir", t.TempDir()).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// listen serves a handler under a name that the suite takes for this machine.
func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	return strings.Replace(ts.URL, "127.0.0.1", "localhost", 1) + "/mcp"
}

// gatewayWithoutKeys has no keys, since the suite brings none.
func gatewayWithoutKeys(t *testing.T) *gateway.Gateway {
	t.Helper()
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func TestTheConformanceSuitePasses(t *testing.T) {
	dir, node := conformanceSuite(t)
	url := listen(t, mcp.NewFixture(gatewayWithoutKeys(t), conformanceServer(t)))
	for _, name := range scenarios(t, dir, node) {
		if !slices.ContainsFunc(notOurs, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			runScenario(t, dir, node, name, url)
		}
	}
}

func TestTheServerItselfPassesWhatAppliesToIt(t *testing.T) {
	dir, node := conformanceSuite(t)
	url := listen(t, mcp.New(gatewayWithoutKeys(t), mcp.Options{}))
	for _, name := range bare {
		runScenario(t, dir, node, name, url)
	}
}

func TestTheTypeScriptClientDrivesEveryTool(t *testing.T) {
	dir, node := conformanceSuite(t)
	s := newFixture(t, fixtureOptions{})
	out, err := exec.CommandContext(t.Context(), node, filepath.Join(dir, "tools.mjs"), s.url, s.Key.Reveal()).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// conformanceServer is the server that the conformance suite asks its questions of: it
// wants tools of its own, which its scenarios describe.
func conformanceServer(t testing.TB) *sdk.Server {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "fixture", Version: "1"}, nil)
	addFixtureTools(s, smallPNG(t))
	return s
}

// smallPNG is a small PNG file.
func smallPNG(t testing.TB) []byte {
	t.Helper()
	_, data, _ := strings.Cut(pngURI(t, 1), ",")
	file, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func addFixtureTool(s *sdk.Server, name, schema string, h sdk.ToolHandler) {
	s.AddTool(&sdk.Tool{Name: name, Description: "A tool of the suite.", InputSchema: json.RawMessage(schema)}, h)
}

func contentHandler(content ...sdk.Content) sdk.ToolHandler {
	return func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: content}, nil
	}
}

func addFixtureTools(s *sdk.Server, picture []byte) {
	const none = `{"type":"object"}`
	resource := func(uri, kind, text string) sdk.Content {
		return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: kind, Text: text}}
	}
	image := &sdk.ImageContent{Data: picture, MIMEType: "image/png"}
	for name, content := range map[string][]sdk.Content{
		"test_simple_text":       {&sdk.TextContent{Text: "This is a simple text response for testing."}},
		"test_image_content":     {image},
		"test_audio_content":     {&sdk.AudioContent{Data: []byte("RIFF\x00\x00\x00\x00WAVE"), MIMEType: "audio/wav"}},
		"test_embedded_resource": {resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")},
		"test_multiple_content_types": {
			&sdk.TextContent{Text: "Multiple content types test:"}, image,
			resource("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`),
		},
	} {
		addFixtureTool(s, name, none, contentHandler(content...))
	}
	addFixtureTool(s, "test_error_handling", none, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r := &sdk.CallToolResult{}
		r.SetError(errors.New("This tool intentionally returns an error for testing"))
		return r, nil
	})
	addFixtureTool(s, "json_schema_2020_12_tool", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
		"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"}},"additionalProperties":false}`, contentHandler())
	addFixtureTool(s, "test_tool_with_logging", none, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			if err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: text}); err != nil {
				return nil, err
			}
			<-time.After(50 * time.Millisecond) // the suite wants it
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil
	})
	addFixtureTool(s, "test_tool_with_progress", none, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, n := range []float64{0, 50, 100} {
			if token := r.Params.GetProgressToken(); token != nil {
				if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: n, Total: 100}); err != nil {
					return nil, err
				}
			}
			<-time.After(50 * time.Millisecond) // the suite wants it
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil
	})
}
