package mcp_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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

// The scenarios in which a server asks its client something, or tells it without
// being asked. They need a session that one process keeps; this server never
// does either.
var asking = []string{"tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums"}

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
	kept := listen(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return conformanceServer(t) }, &sdk.StreamableHTTPOptions{
		EventStore: sdk.NewMemoryEventStore(nil),
	}))
	for _, name := range scenarios(t, dir, node) {
		if slices.Contains(asking, name) {
			runScenario(t, dir, node, name, kept)
			continue
		}
		runScenario(t, dir, node, name, url)
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
