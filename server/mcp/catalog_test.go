package mcp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/server/mcp"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// modelSchema is the schema of the argument that names a tool's model.
func modelSchema(t *testing.T, g *gateway.Gateway, p *auth.Principal, tool string) *jsonschema.Schema {
	t.Helper()
	tools, err := mcp.Described(g, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tools {
		if in, ok := d.InputSchema.(*jsonschema.Schema); ok && d.Name == tool {
			return in.Properties["model"]
		}
	}
	t.Fatalf("there is no tool %s", tool)
	return nil
}

func TestAToolNamesTheModelsThatTheKeyMayUse(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	all := &auth.Principal{Account: "acme"}
	for tool, want := range map[string][]any{
		"chat":              {"delta-k3", "sim-chat"},
		"generate_image":    {"alpha-image-2.0", "imagegen-2"},
		"edit_image":        {"alpha-image-edit", "imagegen-2"},
		"create_embeddings": {"text-embedding-v4"},
		"text_to_speech":    {"alpha3-tts-flash", "alpha3-tts-instruct-flash"},
		"generate_video":    {"beta2.6-i2v", "beta2.6-r2v", "beta2.6-t2v", "beta2.7-r2v", "gamma-2-0-260128"},
	} {
		if got := modelSchema(t, s.g, all, tool).Enum; !slices.Equal(got, want) {
			t.Errorf("%s takes %v, want %v", tool, got, want)
		}
	}
	one := &auth.Principal{Account: "acme", Models: []string{"sim-chat"}}
	if got := modelSchema(t, s.g, one, "chat").Enum; !slices.Equal(got, []any{"sim-chat"}) {
		t.Errorf("the key for one model is shown %v", got)
	}
	if got := modelSchema(t, s.g, one, "generate_image"); got.Enum != nil || !strings.Contains(got.Description, "None that this key may use") {
		t.Errorf("the key for no picture is shown %v, %q", got.Enum, got.Description)
	}
}

func TestWhereOtherModelsPassTheListIsOnlyOfExamples(t *testing.T) {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})}) // every model
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	got := modelSchema(t, g, &auth.Principal{Account: "local"}, "chat")
	if got.Enum != nil || !slices.Contains(got.Examples, any("delta-k3")) {
		t.Errorf("the models are %v, examples %v", got.Enum, got.Examples)
	}
}
