package gateway_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tollhouse-ai/gateway"

// linked are the modules that an embedding program links, and why. The test
// fails when one is added or is no longer needed.
var linked = map[string]string{
	"github.com/go-json-experiment/json":    "strict JSON with byte offsets",
	"github.com/google/jsonschema-go":       "checks the schemas of requests, and makes those of Go types (chat.Into): so package chat links nothing that the root does not",
	"github.com/hashicorp/go-retryablehttp": "repeats GETs that fail: polls, lists of models, downloads",
	"github.com/hashicorp/go-cleanhttp":     "a part of go-retryablehttp",
	"golang.org/x/time":                     "paces the calls of a channel",
}

// forbidding says which packages a package must never import, directly or not, and
// why.
type forbidding struct {
	path     string // below the module; empty for the root
	never    []string
	reason   string
	anything bool // the module's path stands for every package of ours
}

// forbidden has a row for each driver too, none of which imports another one.
var forbidden = []forbidding{
	{"fault", []string{"net/http", module}, "an error is not a protocol, and everything imports fault", true},
	{"secret", []string{"net/http", module}, "a string that never prints needs nothing", true},
	{"auth", []string{module + "/billing", module + "/upstream"}, "who calls does not depend on what it costs", false},
	{"auth/jwt", []string{module, module + "/server", module + "/billing", module + "/upstream", "database/sql"}, "who calls is known of the token, and of nobody else", false},
	{"billing", []string{module + "/auth", module + "/upstream", module + "/chat", "net/http"}, "money knows no vendor and no protocol", false},
	{"upstream", []string{module + "/auth", module + "/billing", module + "/chat", module + "/server"}, "the port knows no capability", false},
	{"upstream/router", []string{module + "/auth", module + "/billing", module + "/chat", module + "/server"}, "the router knows no capability", false},
	{"upstream/discovery", []string{module + "/auth", module + "/billing", module + "/chat", module + "/server", module + "/upstream/openai", module + "/upstream/sim"}, "what keeps lists knows no capability, no money and no vendor", false},
	{"internal/admission", []string{module + "/upstream", module + "/billing", module + "/internal/session", "net/http"}, "what is taken on depends on who calls and how much there is, and on no request", false},
	{"internal/callctx", []string{module + "/upstream", module + "/internal/operation", "net/http"}, "what a context says depends on no endpoint", false},
	{"internal/outage", []string{module + "/auth", module + "/billing", module + "/upstream", "net/http"}, "the error of a store is the same for everything that is stored", false},
	{"internal/money", []string{module + "/auth", module + "/internal/operation/conversation", module + "/internal/admission", module + "/internal/session", module + "/store", module + "/upstream/router"}, "what is held and settled depends on counts and prices, and on no endpoint", false},
	{"internal/deliver", []string{module, module + "/upstream/router", module + "/internal/session", module + "/internal/stored", module + "/internal/operation/conversation", module + "/server", module + "/store"}, "a stream or audio on its way depends on no endpoint, no route and no call", false},
	{"internal/videotask", []string{module + "/auth", module + "/upstream/router", module + "/internal/admission", module + "/internal/session", module + "/internal/operation/conversation", module + "/server", module + "/store"}, "the life of a task depends on no route; its caller asks the vendors", false},
	{"internal/replay", []string{module + "/upstream", module + "/internal/admission", module + "/internal/session", module + "/store"}, "a repeated request is known by its key and its content, whatever it asks for", false},
	{"internal/session", []string{module + "/upstream", module + "/auth", module + "/billing", module + "/internal/operation/conversation"}, "which conversation a request belongs to is read from its bytes", false},
	{"upstream/internal/rendezvous", []string{module, "net/http", "math/rand", "hash/maphash"}, "what is chosen is the same in every process", true},
	{"store/memory", []string{module, "database/sql", module + "/server", module + "/upstream"}, "what one process keeps, without a database", false},
	{"upstream/openai", []string{module + "/auth", module + "/server"}, "a driver knows one vendor's wire", false},
	{"upstream/sim", []string{module + "/auth", module + "/server"}, "a driver knows one vendor's wire", false},
	{"upstream/cassette", []string{module + "/auth", module + "/server", module + "/chat", module + "/billing"}, "what is recorded is bytes of any operation", false},
	{"upstream/anthropic", []string{module + "/auth", module + "/server"}, "a driver knows one vendor's wire", false},
	{"upstream/ark", []string{module + "/auth", module + "/server", module + "/video"}, "a driver knows one vendor's wire", false},
	{"upstream/reranker", []string{module + "/auth", module + "/rerank", module + "/server"}, "a driver knows one vendor's wire", false},
	{"upstream/voyage", []string{module + "/auth", module + "/server"}, "a driver knows one vendor's wire", false},
	{"internal/stored", []string{module, module + "/auth", module + "/server", module + "/upstream/router", module + "/internal/money", module + "/internal/admission"}, "what is kept of responses depends on no call, no money and no router", false},
	{"internal/operation", []string{module + "/auth", module + "/server", module + "/chat", module + "/upstream/router", module + "/internal/admission", module + "/internal/replay"}, "what is known of endpoints depends on no call, and on no endpoint", false},
	{"responses/state", []string{"net/http", module}, "what keeps responses knows nothing of them", true},
	{"internal/translate", []string{module + "/auth", module + "/server", module + "/images", module + "/upstream/openai", module + "/upstream/sim", module + "/upstream/anthropic"}, "a translation knows two wires, and no key and no vendor", false},
	{"upstream/dashscope", []string{module + "/auth", module + "/server"}, "a driver knows one vendor's wire", false},
	{"internal/responsestest", []string{module + "/server", module + "/internal/translate", module + "/internal/operation/responses"}, "what checks streams knows none of their makers", false},
	{"video", []string{module + "/auth", module + "/upstream", module + "/chat", module + "/images", module + "/server", module + "/store"}, "a capability knows no key, no vendor and no other capability; tasks are stored by others", false},
	{"webhook", []string{module + "/auth", module + "/billing", module + "/upstream", module + "/video", module + "/server", "net/http"}, "deliveries are kept whatever they tell, and sent by others", false},
	{"internal/webhook", []string{module + "/auth", module + "/billing", module + "/upstream", module + "/video", module + "/server", "database/sql"}, "webhooks are delivered whatever they tell, wherever they are kept", false},
	{"internal/netguard", []string{"net/http", module}, "what an address is depends on nobody who asks", true},
	{"", []string{module + "/server", module + "/upstream/openai", module + "/upstream/anthropic", module + "/upstream/voyage", module + "/upstream/dashscope", module + "/upstream/ark", module + "/upstream/reranker", module + "/upstream/sim"}, "the core is used without HTTP and with any driver", false},
	{"server", []string{"testing", module + "/gatewaytest"}, "what tests need is in no program", false},
	{"gatewaytest", []string{module + "/server", "net/http/httptest", "database/sql", module + "/upstream/openai"}, "a test needs no socket, no database and no vendor", false},
	{"idempotency", []string{module + "/auth", module + "/upstream", module + "/chat", module + "/server"}, "answers are kept whatever they answer", false},
	{"store", []string{"modernc.org/sqlite", "github.com/jackc/pgx/v5", module, module + "/server", module + "/upstream/openai", module + "/upstream/sim"}, "one SQL text for every database; drivers are leaves", false},
	{"server/telemetry/metrics", []string{module + "/store", module + "/server", "go.opentelemetry.io/otel"}, "Prometheus and nothing else; metrics need no store", false},
	{"server/telemetry/otlp", []string{"database/sql", module + "/server", "github.com/prometheus/client_golang/prometheus"}, "OpenTelemetry and nothing else", false},
	{"server/mcp", []string{"database/sql", module + "/server", module + "/store", module + "/upstream/openai", module + "/upstream/sim", "go.opentelemetry.io/otel"}, "tools for agents and nothing else; it asks the gateway, not a server", false},
	{"transport", []string{"database/sql", "github.com/goccy/go-yaml", module + "/store", module + "/upstream/sim"}, "the server that answers, and the addresses of vendors", false},
	{"goopenai", []string{"database/sql", module + "/store", module + "/upstream/anthropic", module + "/upstream/sim"}, "one client library, the server that answers it, and the driver of its wire", false},
	{"server", []string{"database/sql", module + "/upstream/openai", module + "/upstream/sim"}, "HTTP in and out, nothing else", false},
}

// leaves are packages that the core does not link: cmd/tollhouse does, or who imports what needs one.
var leaves = []string{"github.com/coreos/go-oidc/v3/oidc", "github.com/modelcontextprotocol/go-sdk/mcp", "github.com/prometheus/client_golang/prometheus", "go.opentelemetry.io/otel", "github.com/goccy/go-yaml", "github.com/spf13/pflag", "database/sql", "modernc.org/sqlite", "github.com/jackc/pgx/v5"}

// pkg is what `go list` tells of a package.
type pkg struct {
	ImportPath string
	Deps       []string
	Module     *struct{ Path string }
	Standard   bool
}

func list(t *testing.T, args ...string) map[string]pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Deps,Module,Standard"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := make(map[string]pkg)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

func TestNoPackageImportsWhatItMustNotKnow(t *testing.T) {
	packages := list(t, "./...")
	for _, f := range forbidden {
		path := strings.TrimSuffix(module+"/"+f.path, "/")
		p, ok := packages[path]
		if !ok {
			t.Errorf("there is no package %s", path)
			continue
		}
		for _, never := range f.never {
			if slices.ContainsFunc(p.Deps, func(d string) bool {
				return d == never || (never == module && f.anything && strings.HasPrefix(d, module))
			}) {
				t.Errorf("%s imports %s: %s", path, never, f.reason)
			}
		}
	}
}

// drivers are the packages of upstream/ that speak to a vendor, or stand for one.
func drivers(packages map[string]pkg) (all []string) {
	for path := range packages {
		switch name, below := strings.CutPrefix(path, module+"/upstream/"); {
		case !below, strings.Contains(name, "/"), name == "router", name == "discovery", name == "upstreamtest":
		default:
			all = append(all, path)
		}
	}
	return all
}

// TestNoEndpointImportsAnotherOne: the package of an endpoint knows its own types, and no key, no
// vendor and no other endpoint. Conversations share a package and the types of a chat. Its types
// do not know what the gateway makes of them, which is internal.
func TestNoEndpointImportsAnotherOne(t *testing.T) {
	const folder = module + "/internal/operation/"
	packages := list(t, "./...")
	var endpoints []string
	for path := range packages {
		if name, below := strings.CutPrefix(path, folder); below && name != "all" && name != "conversation" {
			endpoints = append(endpoints, name)
		}
	}
	if len(endpoints) < 8 {
		t.Fatalf("found only %q", endpoints)
	}
	for _, endpoint := range endpoints {
		deps := packages[folder+endpoint].Deps
		never := append(drivers(packages), module+"/auth", module+"/server", module+"/store", module+"/upstream/router")
		for _, other := range endpoints {
			if other == endpoint {
				continue
			}
			never = append(never, folder+other)
			if other != "chat" || !slices.Contains(deps, folder+"conversation") {
				never = append(never, module+"/"+other)
			}
		}
		for _, path := range []string{module + "/auth", module + "/server", folder + endpoint} {
			if slices.Contains(packages[module+"/"+endpoint].Deps, path) {
				t.Errorf("%s/%s imports %s", module, endpoint, path)
			}
		}
		for _, path := range never {
			if slices.Contains(deps, path) {
				t.Errorf("%s%s imports %s", folder, endpoint, path)
			}
		}
	}
}

func TestNoDriverImportsAnotherOne(t *testing.T) {
	packages := list(t, "./upstream/...")
	all := drivers(packages)
	if len(all) < 6 {
		t.Fatalf("found only %q", all)
	}
	for _, driver := range all {
		if !slices.ContainsFunc(forbidden, func(f forbidding) bool { return module+"/"+f.path == driver }) {
			t.Errorf("the table of forbidden imports has no row for %s", driver)
		}
		for _, other := range all {
			if other != driver && slices.Contains(packages[driver].Deps, other) {
				t.Errorf("%s imports %s: a driver knows one vendor's wire", driver, other)
			}
		}
	}
}

func TestEmbeddingTheGatewayLinksOnlyTheListedModules(t *testing.T) {
	core := []string{".", "./server", "./transport", "./upstream/openai", "./upstream/anthropic", "./upstream/voyage", "./upstream/dashscope", "./upstream/ark", "./upstream/reranker", "./upstream/sim"}
	found := make(map[string]bool)
	for path, p := range list(t, append([]string{"-deps"}, core...)...) {
		if !p.Standard && p.Module != nil && p.Module.Path != module {
			found[p.Module.Path] = true
		}
		if slices.Contains(leaves, path) {
			t.Errorf("the core links %s, which belongs to the binary", path)
		}
	}
	if got, want := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(linked)); !slices.Equal(got, want) {
		t.Errorf("an embedding program links %v, want %v", got, want)
	}
}
