package mcp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"image"
	"image/png"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// pngURI is a PNG file as a data: URI.
func pngURI(t testing.TB, side int) string {
	t.Helper()
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewNRGBA(image.Rect(0, 0, side, side))); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(file.Bytes())
}

// toolCalls are each paid tool with each form of its arguments.
func toolCalls(t testing.TB) map[string]struct {
	tool string
	args args
} {
	return map[string]struct {
		tool string
		args args
	}{
		"a chat":                        {"chat", args{"model": "sim-chat", "prompt": "Hello", "max_tokens": 50}},
		"a chat that thinks":            {"chat", args{"model": "delta-k3", "prompt": "Hello", "system": "Be brief.", "json": true}},
		"a picture of alpha":            {"generate_image", args{"model": "alpha-image-2.0", "prompt": "A boat", "size": "1280x720", "seed": 7, "negative_prompt": "rain"}},
		"pictures of imagegen":          {"generate_image", args{"model": "imagegen-2", "prompt": "A boat", "n": 2, "size": "1024x1024", "quality": "low"}},
		"an edit by alpha":              {"edit_image", args{"model": "alpha-image-edit", "prompt": "Night", "images": []string{"https://example.com/a.png"}}},
		"an edit by imagegen":           {"edit_image", args{"model": "imagegen-2", "prompt": "Night", "images": []string{pngURI(t, 64)}, "size": "1024x1024"}},
		"an edit with a mask":           {"edit_image", args{"model": "imagegen-2", "prompt": "Night", "images": []string{pngURI(t, 64), pngURI(t, 32)}, "mask": pngURI(t, 64), "n": 2, "output_format": "png"}},
		"a video from text":             {"generate_video", args{"model": "beta2.6-t2v", "prompt": "Rain", "duration": 4, "resolution": "1080p", "aspect_ratio": "9:16", "wait": true}},
		"a video from a picture":        {"generate_video", args{"model": "beta2.6-i2v", "prompt": "Rain", "first_frame": "https://example.com/a.png", "audio": "https://example.com/a.mp3", "wait": true}},
		"a video from references":       {"generate_video", args{"model": "beta2.6-r2v", "prompt": "Rain", "reference_videos": []string{"https://example.com/a.mp4"}, "wait": true}},
		"a video of the 2.7 layout":     {"generate_video", args{"model": "beta2.7-r2v", "prompt": "Rain", "reference_images": []string{"https://example.com/a.png"}, "wait": true}},
		"a video of the gamma family":   {"generate_video", args{"model": "gamma-2-0-260128", "prompt": "Rain", "first_frame": "https://example.com/a.png", "duration": 5, "resolution": "720p", "with_sound": true, "seed": 3, "wait": true}},
		"embeddings":                    {"create_embeddings", args{"model": "text-embedding-v4", "input": []string{"one", "two"}, "dimensions": 64}},
		"a ranking":                     {"rerank", args{"model": "rerank-v3.5", "query": "two", "documents": []string{"one", "two"}, "top_n": 1}},
		"speech in a WAV file":          {"text_to_speech", args{"model": "alpha3-tts-flash", "text": "Hello", "format": "wav", "voice": "Cherry"}},
		"speech as it is told":          {"text_to_speech", args{"model": "alpha3-tts-instruct-flash", "text": "Hello", "instructions": "slowly"}},
		"more texts than one call take": {"create_embeddings", args{"model": "text-embedding-v4", "input": strings.Split(strings.Repeat("word ", 24)+"word", " "), "dimensions": 64}},
	}
}

func TestTheContentsAreOfTheirKind(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t)
	all := toolCalls(t)
	first := func(name string) sdk.Content { return callTool(t, session, all[name].tool, all[name].args).Content[0] }
	if c, ok := first("a chat").(*sdk.TextContent); !ok || c.Text == "" {
		t.Errorf("a chat gives %T", c)
	}
	if c, ok := first("pictures of imagegen").(*sdk.ImageContent); !ok || c.MIMEType != "image/png" || len(c.Data) < 100 {
		t.Errorf("a picture is %T", c)
	}
	if c, ok := first("speech in a WAV file").(*sdk.AudioContent); !ok || c.MIMEType != "audio/wav" || !bytes.HasPrefix(c.Data, []byte("RIFF")) {
		t.Errorf("speech is %T", c)
	}
	if c, ok := first("a video from text").(*sdk.ResourceLink); !ok || c.MIMEType != "video/mp4" || c.URI == "" {
		t.Errorf("a video is %T", c)
	}
}

func TestTheFreeToolsTellWhatThereIsAndWhatWasSpent(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t)
	charge := parse(t, member[string](t, callTool(t, session, "chat", chatting), "charge"))
	_, out := schemas(t, session)
	for tool, c := range map[string]struct {
		args  args
		list  string
		count int
	}{
		"list_models":   {args{}, "models", len(priced)},
		"list_models ":  {args{"kind": "speech"}, "models", 2},
		"get_balance":   {args{"days": 1}, "used", 1},
		"estimate_cost": {args{"tool": "chat", "arguments": chatting}, "", 0},
	} {
		tool = strings.TrimSpace(tool)
		r := callTool(t, session, tool, c.args)
		if err := out[tool].Validate(r.StructuredContent); err != nil {
			t.Errorf("%s: the schema does not let the result pass: %v", tool, err)
		}
		if c.list != "" && len(member[[]any](t, r, c.list)) != c.count {
			t.Errorf("%s %v lists %v, want %d", tool, c.args, r.StructuredContent, c.count)
		}
	}
	if left := parse(t, member[string](t, callTool(t, session, "get_balance", args{}), "available")); left != 100*billing.One-charge || s.Posted(t) != left {
		t.Errorf("%s is left of 100, after %s", left, charge)
	}
}

// longAnswer is an upstream that answers with 200,000 tokens.
var longAnswer = upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
	const answer = `{"id":"u","object":"chat.completion","created":1,"model":"sim-chat","choices":[{"index":0,"message":{"role":"assistant","content":"x"},` +
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":200000,"total_tokens":200001}}`
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer))}, nil
})

func TestAnEstimateOfAChatWithoutABoundSaysThatItCanCostMore(t *testing.T) {
	s := newFixture(t, fixtureOptions{upstream: longAnswer})
	session := s.client(t)
	free := args{"model": "sim-chat", "prompt": "hi"}
	r := callTool(t, session, "estimate_cost", args{"tool": "chat", "arguments": free})
	charge := member[string](t, callTool(t, session, "chat", free), "charge")
	if most := member[string](t, r, "most"); parse(t, charge) <= parse(t, most) {
		t.Fatalf("it cost %s, no more than %s", charge, most)
	}
	if !member[bool](t, r, "open") || strings.Contains(textOf(r), "at most") || !strings.Contains(textOf(r), "max_tokens") {
		t.Errorf("the estimate says %q", textOf(r))
	}
	bound := args{"model": "sim-chat", "prompt": "hi", "max_tokens": 10}
	if r := callTool(t, session, "estimate_cost", args{"tool": "chat", "arguments": bound}); member[bool](t, r, "open") || !strings.Contains(textOf(r), "at most") {
		t.Errorf("with max_tokens it says %q", textOf(r))
	}
}

// inputs are the schemas of the tools' arguments as a client is shown them.
func inputs(t *testing.T, session *sdk.ClientSession) map[string]*jsonschema.Schema {
	t.Helper()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*jsonschema.Schema{}
	for _, tool := range list.Tools {
		in := schemaOf(t, tool.InputSchema)
		if paid := in.Properties["task_label"] != nil; paid == tool.Annotations.ReadOnlyHint {
			t.Errorf("%s is both paid and free", tool.Name)
		}
		all[tool.Name] = in
	}
	return all
}

func TestAToolNamesTheModelsThatTheKeyMayUse(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	in := inputs(t, s.client(t))
	for tool, want := range map[string][]any{
		"chat":              {"delta-k3", "sim-chat"},
		"generate_image":    {"alpha-image-2.0", "imagegen-2"},
		"edit_image":        {"alpha-image-edit", "imagegen-2"},
		"create_embeddings": {"text-embedding-v4"},
		"rerank":            {"rerank-v3.5"},
		"text_to_speech":    {"alpha3-tts-flash", "alpha3-tts-instruct-flash"},
		"generate_video":    {"beta2.6-i2v", "beta2.6-r2v", "beta2.6-t2v", "beta2.7-r2v", "gamma-2-0-260128"},
	} {
		if got := in[tool].Properties["model"].Enum; !slices.Equal(got, want) {
			t.Errorf("%s takes %v, want %v", tool, got, want)
		}
	}
	s.Key, _ = s.Mint(t, auth.KeyOptions{Models: []string{"sim-chat"}})
	in = inputs(t, s.client(t))
	if got := in["chat"].Properties["model"].Enum; !slices.Equal(got, []any{"sim-chat"}) {
		t.Errorf("the key for one model is shown %v", got)
	}
	if got := in["generate_image"].Properties["model"]; got.Enum != nil || !strings.Contains(got.Description, "None that this key may use") {
		t.Errorf("the key for no picture is shown %v, %q", got.Enum, got.Description)
	}
}

func TestWhereOtherModelsPassTheListIsOnlyOfExamples(t *testing.T) {
	s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) {
		o.Upstream, o.Models = sim.New(sim.Options{}), []gateway.Model{{ID: "delta-k3"}} // and every other
	}})
	got := inputs(t, s.client(t))["chat"].Properties["model"]
	if got.Enum != nil || !slices.Contains(got.Examples, any("delta-k3")) {
		t.Errorf("the models are %v, examples %v", got.Enum, got.Examples)
	}
}

// TestThePageHasEveryToolAndArgument compares the table of docs/guides/mcp.md.
func TestThePageHasEveryToolAndArgument(t *testing.T) {
	page, err := os.ReadFile("../../docs/guides/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newFixture(t, fixtureOptions{})
	for tool, in := range inputs(t, s.client(t)) {
		_, row, ok := strings.Cut(string(page), "\n| `"+tool+"` | ")
		row, _, _ = strings.Cut(row, "\n")
		if !ok {
			t.Errorf("the page has no row of %s", tool)
			continue
		}
		for name := range in.Properties {
			if name != "task_label" && !strings.Contains(row, "`"+name+"`") {
				t.Errorf("the row of %s has no %s", tool, name)
			}
		}
		for _, name := range in.Required {
			if !strings.Contains(row, "**`"+name+"`**") {
				t.Errorf("the row of %s does not say that %s is required", tool, name)
			}
		}
	}
}
