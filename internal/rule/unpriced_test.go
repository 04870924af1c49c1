package rule

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// body is a request with one member.
func body(t *testing.T, member string) *rawjson.Object {
	t.Helper()
	o, err := rawjson.Index([]byte("{"+member+"}"), nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", member, err)
	}
	return &o
}

// paramOf is the field that an error names; empty if there is no error.
func paramOf(err error) string {
	if err == nil {
		return ""
	}
	return fault.From(err).Param
}

func TestWhatHasNoPriceIsRefusedUnlessItPasses(t *testing.T) {
	const everywhere, generation = Other, Generation
	for _, c := range []struct {
		from        Scope // where it is refused: everywhere, or of generations alone
		member      string
		param, pass string
	}{
		{everywhere, `"models":["dear"]`, "models", "models"},
		{everywhere, `"Models":["dear"]`, "Models", "models"},
		{everywhere, `"model\u017f":["dear"]`, "modelſ", "models"},
		{everywhere, `"route":"fallback"`, "route", "route"},
		{everywhere, `"provider":{"order":["dear"]}`, "provider", "provider"},
		{everywhere, `"plugins":[{"id":"web"}]`, "plugins", "plugins"},
		{everywhere, `"fallbacks":["dear"]`, "fallbacks", "fallbacks"},
		{everywhere, `"preset":"dear"`, "preset", "preset"},
		{everywhere, `"fallback":"dear"`, "fallback", "fallback"},
		{everywhere, `"fallback_model":"dear"`, "fallback_model", "fallback_model"},
		{everywhere, `"deployment_id":"dear"`, "deployment_id", "deployment_id"},
		{everywhere, `"litellm_metadata":{"tags":["dear"]}`, "litellm_metadata", "litellm_metadata"},
		{everywhere, `"litellm_params":{"api_base":"http://127.0.0.1"}`, "litellm_params", "litellm_params"},
		{everywhere, `"headers":{"x":"y"}`, "headers", "headers"},
		{everywhere, `"extra_headers":{"x":"y"}`, "extra_headers", "extra_headers"},
		{everywhere, `"api_base":"http://127.0.0.1"`, "api_base", "api_base"},
		{everywhere, `"API_KEY":"k"`, "API_KEY", "api_key"},
		{everywhere, `"base_url":"http://127.0.0.1"`, "base_url", "base_url"},
		{everywhere, `"model_list":[{}]`, "model_list", "model_list"},
		{everywhere, `"extra_body":{"service_tier":"priority"}`, "extra_body", "extra_body"},
		{everywhere, `"extra_body":{"google":{},"models":["dear"]}`, "extra_body", "extra_body"},
		{everywhere, `"extra_body":["google"]`, "extra_body", "extra_body"},
		{everywhere, `"extra_body":{"google":{"thinking_config":{},"tools":[{"google_search":{}}]}}`, "extra_body", "extra_body"},
		{everywhere, `"extra_body":{"google":{"cached_content":"cachedContents/theirs"}}`, "extra_body", "extra_body"},

		{generation, `"advisor":{"model":"dear"}`, "advisor", "advisor"},
		{generation, `"web_search_options":{}`, "web_search_options", "web_search_options"},
		{generation, `"web_search_options":[]`, "web_search_options", "web_search_options"},
		{generation, `"search_options":{}`, "search_options", "search_options"},
		{generation, `"search_parameters":{}`, "search_parameters", "search_parameters"},
		{generation, `"search_parameters":{"mode":"on"}`, "search_parameters", "search_parameters"},
		{generation, `"enable_search":true`, "enable_search", "enable_search"},
		{generation, `"modalities":["text","audio"]`, "modalities", "modalities"},
		{generation, `"citation_options":{"mode":"accurate"}`, "citation_options", "citation_options"},
		{generation, `"data_sources":[{"type":"azure_search"}]`, "data_sources", "data_sources"},
		{generation, `"anthropic_beta":["interleaved-thinking-2025-05-14","context-1m-2025-08-07"]`, "anthropic_beta", "anthropic_beta"},
		{generation, `"betas":["Fast-Mode-2026-02-01"]`, "betas", "betas"},
		{generation, `"betas":"a, fast-mode-2026-02-01"`, "betas", "betas"},
		{generation, `"service_tier":"priority"`, "service_tier", "service_tier"},
		{generation, `"speed":"fast"`, "speed", "speed"},
		{generation, `"inference_geo":"us"`, "inference_geo", "inference_geo"},
		{generation, `"container":"c"`, "container", "container"},
		{generation, `"mcp_servers":[{"type":"url"}]`, "mcp_servers", "mcp_servers"},
		{generation, `"context_management":{"edits":[{"type":"compact_20260112"}]}`, "context_management", "context_management"},
		{generation, `"context_management":{"edits":{"type":"compact_20260112"}}`, "context_management", "context_management"},
		{generation, `"context_management":{"edits":"compact_20260112"}`, "context_management", "context_management"},
	} {
		t.Run(c.member, func(t *testing.T) {
			o := body(t, c.member)
			if got := paramOf(CheckUnpriced(o, Generation, nil, nil)); got != c.param {
				t.Errorf("of a generation: got %q, want %q", got, c.param)
			}
			want := c.param
			if c.from == generation {
				want = ""
			}
			if got := paramOf(CheckUnpriced(o, Other, nil, nil)); got != want {
				t.Errorf("of anything else: got %q, want %q", got, want)
			}
			pass := func(name, spelled string) bool { return name == c.pass && spelled == c.param }
			if err := CheckUnpriced(o, Generation, nil, pass); err != nil {
				t.Errorf("with a channel that passes %s: %v", c.pass, err)
			}
		})
	}
}

func TestWhatCostsNothingMoreIsNotRefused(t *testing.T) {
	for _, member := range []string{
		`"service_tier":"auto"`, `"service_tier":"flex"`, `"service_tier":null`, `"modalities":["text"]`, `"audio":null`, `"audio":{}`,
		`"models":[]`, `"models":""`, `"enable_search":false`, `"store":true`, `"metadata":{"models":"a"}`, `"unknown":1`,
		`"provider":{}`, `"route":""`, `"extra_body":{}`, `"extra_headers":{ }`, `"fallback_model":""`, `"speed":"standard"`, `"inference_geo":"global"`,
		`"extra_body":{"google":{"thinking_config":{"thinking_budget":0}}}`, `"anthropic_beta":["interleaved-thinking-2025-05-14"]`, `"betas":[]`,
		`"mcp_servers":[]`, `"context_management":{}`, `"context_management":{"edits":null}`, `"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}`,
	} {
		if err := CheckUnpriced(body(t, member), Generation, []string{"auto", "flex"}, nil); err != nil {
			t.Errorf("%s: %v", member, err)
		}
	}
}

// A count of tokens costs nothing: only what chooses another model or account is refused.
func TestACountMayChooseNoOtherModelOrAccount(t *testing.T) {
	for member, want := range map[string]string{
		`"api_base":"http://127.0.0.1"`: "api_base", `"Models":["dear"]`: "Models", `"fallback_model":"dear"`: "fallback_model",
		`"extra_body":{"models":["dear"]}`: "extra_body", `"models":[]`: "", `"service_tier":"priority"`: "", `"plugins":[{"id":"web"}]`: "",
	} {
		if got := paramOf(CheckUnpriced(body(t, member), Count, nil, nil)); got != want {
			t.Errorf("%s: got %q, want %q", member, got, want)
		}
	}
}

func TestAFieldIsCheckedByTheNameThatItIsGiven(t *testing.T) {
	for _, c := range []struct {
		to, raw string
		scope   Scope
		refused bool
	}{
		{"web_search_options", `{}`, Generation, true},
		{"Models", `["dear"]`, Generation, true},
		{"tools", `[{"type":"web_search"}]`, Generation, true},
		{"service_tier", `"priority"`, Generation, true},
		{"Models", `["dear"]`, Count, true},
		{"service_tier", `"priority"`, Count, false},
		{"Models", `["dear"]`, Other, true},
		{"web_search_options", `{}`, Other, false},
		{"Models", `[]`, Generation, false},
		{"tools", `[]`, Generation, false},
		{"web_search_options", `null`, Generation, false},
		{"max_completion_tokens", `1`, Generation, false},
	} {
		want := ""
		if c.refused {
			want = "foo"
		}
		if got := paramOf(CheckRenamed("foo", c.to, []byte(c.raw), c.scope)); got != want {
			t.Errorf("foo as %s: %s in scope %d: got %q, want %q", c.to, c.raw, c.scope, got, want)
		}
	}
}

func TestAPaidBetaIsRefusedUnlessItPasses(t *testing.T) {
	for list, refused := range map[string]bool{
		"context-1m-2025-08-07": true, "interleaved-thinking-2025-05-14, Context-1M-2025-08-07": true, "fast-mode-2026-02-01": true,
		"interleaved-thinking-2025-05-14": false,
	} {
		h := http.Header{"anthropic-Beta": {list}}
		if err := Betas(h, nil); (err != nil) != refused || refused && !strings.Contains(err.Error(), "Leave it out") {
			t.Errorf("%s: got %v, want an error: %t", list, err, refused)
		}
		if err := Betas(h, func(name, _ string) bool { return name == PaidBetas }); err != nil {
			t.Errorf("%s, passed: %v", list, err)
		}
	}
}
