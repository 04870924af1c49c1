package main

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/internal/openapitest"
	rerankop "github.com/tollhouse-ai/gateway/internal/operation/rerank"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

const message = `{"id":"msg_1","type":"message","role":"assistant","model":"theirs","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}`

func TestTheKeysOfVendorsInTheEnvironmentAreEnoughAndEachModelGoesToItsVendor(t *testing.T) {
	claude, moonshot, openai := newFakeVendor(t, 200, message), newFakeVendor(t, 200, vendorAnswer), newFakeVendor(t, 200, vendorAnswer)
	i := start(t, environment{
		"ANTHROPIC_API_KEY": "sk-ant", "ANTHROPIC_BASE_URL": claude.url, "MOONSHOT_API_KEY": "sk-moon", "MOONSHOT_BASE_URL": moonshot.url + "/v1",
		"OPENAI_API_KEY": "sk-open", "OPENAI_BASE_URL": openai.url + "/v1",
	})
	banner := i.stdout.String()
	for _, want := range []string{
		"count (usage is recorded", "no money moves: keys have no spending limit", "moonshot (openai): 1 model", "anthropic (anthropic): every model that begins with claude-", "openai (openai): every model",
	} {
		if !strings.Contains(banner, want) {
			t.Errorf("the banner lacks %q:\n%s", want, banner)
		}
	}
	curls, key := printedCurls(banner), firstKey(t, banner)
	if status, _, body := curl(t, strings.Replace(curls[0], `"stream":true`, `"stream":false`, 1)); status != 200 || !strings.Contains(body, `"model":"delta-k3"`) || moonshot.calls.Load() != 1 {
		t.Errorf("the printed call got %d %s", status, body)
	}
	if _, _, body := curl(t, curls[1]); !strings.Contains(body, `"requests":1`) {
		t.Errorf("the printed usage is %s", body)
	}
	const body = `{"model":"claude-a","max_tokens":9,"messages":[{"role":"user","content":"Hello!"}],"x":1.0}`
	for _, row := range []struct{ path, sent, answer, want string }{
		{"/v1/messages/count_tokens", `{"model":"claude-a","messages":[{"role":"user","content":"Hello!"}]}`, `{"input_tokens":42}`, `{"input_tokens":42}`},
		{"/v1/messages", body, message, `"id":"msg_1"`},
	} {
		claude.set(200, row.answer)
		status, answer := i.ask(http.MethodPost, row.path, key, row.sent)
		if status != 200 || !strings.Contains(answer, row.want) || strings.Contains(answer, "theirs") {
			t.Errorf("%s: %d %s", row.path, status, answer)
		}
		got := claude.got()
		if got.uri != "POST "+row.path || got.header.Get("X-Api-Key") != "sk-ant" || got.header.Get("Authorization") != "" || got.header.Get("Anthropic-Version") != "2023-06-01" || got.body != row.sent {
			t.Errorf("%s: the vendor got %+v", row.path, got)
		}
	}
	for range 16 { // two channels that may both be asked would share them
		if status, answer := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("claude-b", false)); status != 200 || !strings.Contains(answer, `"content":"Hi"`) {
			t.Errorf("a chat with a model of Anthropic's got %d %s", status, answer)
		}
	}
	for n, row := range []struct{ path, body string }{{"/v1/chat/completions", chatBody("gpt-5-mini", false)}, {"/v1/messages", strings.Replace(body, "claude-a", "gpt-5-mini", 1)}} {
		if status, answer := i.ask(http.MethodPost, row.path, key, row.body); status != 200 || openai.calls.Load() != int64(n+1) || moonshot.calls.Load() != 1 {
			t.Errorf("%s of a model of openai's: %d %s; openai was asked %d times, moonshot %d times", row.path, status, answer, openai.calls.Load(), moonshot.calls.Load())
		}
	}
	if _, body := i.ask(http.MethodGet, "/v1/balance", key, ""); !strings.Contains(body, `"billing":"count"`) {
		t.Errorf("the balance is %s", body)
	}
}

func TestAFileThatLiesHereAndIsNotNamedIsToldOf(t *testing.T) {
	t.Chdir(t.TempDir())
	const named = "`tollhouse serve --config tollhouse.yaml`"
	if r := tollhouse(t, nil, "serve"); r.code != exitFailed || strings.Contains(r.stderr, named) || !strings.Contains(r.stderr, "`tollhouse init`") {
		t.Errorf("without a file: %d %s", r.code, r.stderr)
	}
	tollhouse(t, nil, "init")
	if r := tollhouse(t, nil, "serve"); r.code != exitFailed || !strings.Contains(r.stderr, "tollhouse.yaml is in this directory") || !strings.Contains(r.stderr, named) {
		t.Errorf("serve: %d %s", r.code, r.stderr)
	}
	if r := tollhouse(t, nil, "models"); r.code != exitOK || !strings.Contains(r.stdout, "sim-chat") || r.stderr != "Using tollhouse.yaml in this directory; --config names another file.\n" {
		t.Errorf("models: %d %s%s", r.code, r.stdout, r.stderr)
	}
	if r := tollhouse(t, nil, "models", "--demo"); r.code != exitOK || !strings.Contains(r.stdout, "delta-k3") || r.stderr != "" {
		t.Errorf("models of the demo: %d %s%s", r.code, r.stdout, r.stderr)
	}
	if r := tollhouse(t, nil, "check"); r.code != exitOK || !strings.HasPrefix(r.stdout, "tollhouse.yaml is good: ") {
		t.Errorf("check: %d %s%s", r.code, r.stdout, r.stderr)
	}
	set := environment{"OPENAI_API_KEY": "sk-0123456789", "OPENAI_BASE_URL": newFakeVendor(t, 200, vendorsModels).url}
	for _, env := range []environment{nil, set} {
		if got := examineWith(t, env, "--admin", "off").by["configuration"]; strings.Count(got, named) != 1 {
			t.Errorf("doctor says %s", got)
		}
	}
	if i := start(t, set); !strings.Contains(i.stdout.String(), "Warning: tollhouse.yaml is in this directory but not used") {
		t.Errorf("the banner says\n%s", i.stdout)
	}
}

// presetsOf is the configuration that the program's environment makes.
func presetsOf(t *testing.T, p *program) *config.Config {
	t.Helper()
	src, err := p.presets()
	if err != nil {
		t.Fatal(err)
	}
	return src.config
}

// rerankersOf are the models of the vendor that has this one.
func rerankersOf(model string) []string {
	i := slices.IndexFunc(rerankop.Families, func(f rerankop.Family) bool { return slices.Contains(f.Models, model) })
	return rerankop.Families[i].Models
}

func TestEveryModelOfAPresetGoesToItsVendor(t *testing.T) {
	const vector = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,2]}],"usage":{"total_tokens":1}}`
	const task = `{"id":"t-1","output":{"task_id":"t-1","task_status":"PENDING"}}`
	const picture = `{"output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://b.example/x.png"}]}}]},"usage":{"image_count":1}}`
	same := func(public string) string { return public }
	qwen := func(public string) string { return "qwen" + strings.TrimPrefix(public, "alpha") }
	wan := func(public string) string { return "wan" + strings.TrimPrefix(public, "beta") }
	seedance := func(public string) string {
		return "doubao-seedance-" + strings.Replace(strings.TrimPrefix(public, "gamma-"), "2.5", "2-5-260628", 1)
	}
	for _, row := range []struct {
		channel, variables, path string // the vendor's address is given with the path
		call                     upstream.Call
		models                   []string
		theirs                   func(public string) string
		uri, answer              string
		sent                     string // the body after the model; without its end where the driver makes the rest
	}{
		{"moonshot", "MOONSHOT", "/v1", upstream.Call{Op: upstream.ChatCompletion}, []string{"delta-k3"}, func(string) string { return "kimi-k3" },
			"POST /v1/chat/completions", vendorAnswer, `,"user":"u","max_completion_tokens":1}`},
		{"gemini", "GEMINI", "/v1beta/openai", upstream.Call{Op: upstream.Embeddings}, []string{"embx-001", "embx-2-preview"},
			func(public string) string { return "gemini-embedding-" + strings.TrimPrefix(public, "embx-") }, "POST /v1beta/openai/embeddings", vector, `,"max_tokens":1}`},
		{"dashscope-compatible", "DASHSCOPE", "/", upstream.Call{Op: upstream.Embeddings}, []string{"text-embedding-v4"}, same,
			"POST /compatible-mode/v1/embeddings", vector, `,"max_tokens":1}`},
		{"voyage", "VOYAGE", "/v1", upstream.Call{Op: upstream.Embeddings, Request: &embeddings.Request{}}, []string{"vox-4-large", "vox-4", "vox-4-lite"},
			func(public string) string { return "voyage" + strings.TrimPrefix(public, "vox") }, "POST /v1/embeddings", vector, ""},
		{"dashscope", "DASHSCOPE", "", upstream.Call{Op: upstream.GenerateImage}, []string{"alpha-image-2.0", "alpha-image-2.0-pro", "alpha-image-max", "alpha-image-edit", "alpha-image-edit-plus", "alpha-image-edit-max"}, qwen,
			"POST /api/v1/services/aigc/multimodal-generation/generation", picture, `,"user":"u","max_tokens":1}`},
		{"dashscope", "DASHSCOPE", "", upstream.Call{Op: upstream.Speech}, []string{"alpha3-tts-flash", "alpha3-tts-instruct-flash"}, qwen,
			"POST /api/v1/services/aigc/multimodal-generation/generation", "event:result\ndata:{\"output\":{\"audio\":{\"data\":\"YWJjZA==\"},\"finish_reason\":\"stop\"}}\n\n", ""},
		{"dashscope", "DASHSCOPE", "", upstream.Call{Op: upstream.SubmitVideo}, videoModels(t, video.FamilyBeta), wan,
			"POST /api/v1/services/aigc/video-generation/video-synthesis", task, `,"user":"u","max_tokens":1}`},
		{"dashscope", "DASHSCOPE", "", upstream.Call{Op: upstream.PollVideo, TaskID: "t-1"}, videoModels(t, video.FamilyBeta), nil, "GET /api/v1/tasks/t-1", task, ""},
		{"dashscope", "DASHSCOPE", "", upstream.Call{Op: upstream.Rerank}, []string{"qwen3-rerank", "gte-rerank-v2"}, same,
			"POST /api/v1/services/rerank/text-rerank/text-rerank", `{"output":{"results":[]}}`, `,"user":"u","max_tokens":1,"input":{},"parameters":{}}`},
		{"voyage", "VOYAGE", "/v1", upstream.Call{Op: upstream.Rerank}, rerankersOf("rerank-2.5"), same, "POST /v1/rerank", `{"data":[]}`, `,"user":"u","max_tokens":1}`},
		{"cohere-rerank", "COHERE", "", upstream.Call{Op: upstream.Rerank}, rerankersOf("rerank-v3.5"), same, "POST /v2/rerank", `{"results":[]}`, `,"user":"u","max_tokens":1}`},
		{"jina", "JINA", "/v1", upstream.Call{Op: upstream.Rerank}, rerankersOf("jina-reranker-v3"), same, "POST /v1/rerank", `{"results":[]}`, `,"user":"u","max_tokens":1}`},
		{"ark", "ARK", "/api/v3", upstream.Call{Op: upstream.SubmitVideo}, videoModels(t, video.FamilyGamma), seedance,
			"POST /api/v3/contents/generations/tasks", task, `,"user":"u","max_tokens":1}`},
		{"ark", "ARK", "/api/v3", upstream.Call{Op: upstream.PollVideo, TaskID: "t-1"}, videoModels(t, video.FamilyGamma), nil, "GET /api/v3/contents/generations/tasks/t-1", task, ""},
	} {
		t.Run(row.channel+" "+string(row.call.Op), func(t *testing.T) {
			v := newFakeVendor(t, 200, row.answer)
			if strings.HasPrefix(row.answer, "event:") {
				v.header.Set("Content-Type", "text/event-stream")
			}
			p := &program{env: environment{row.variables + "_API_KEY": "vendor-key", row.variables + "_BASE_URL": v.url + row.path}.lookup}
			components, err := presetsOf(t, p).Build(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer components.Close()
			for _, model := range row.models {
				body, err := rawjson.Index([]byte(`{"model":"`+model+`","user":"u","max_tokens":1}`), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				call := row.call
				call.Model, call.Channel = model, row.channel
				if row.theirs != nil {
					call.Body = upstream.ObjectBody(body)
				}
				reply, err := components.Router.Do(t.Context(), &call)
				if err != nil {
					t.Fatalf("%s: %v", model, err)
				}
				if err := reply.Body.Close(); err != nil || reply.Channel != row.channel {
					t.Errorf("%s: channel %s, %v", model, reply.Channel, err)
				}
				got := v.got()
				if got.uri != row.uri || got.header.Get("Authorization") != "Bearer vendor-key" {
					t.Errorf("%s: the vendor got %s with %q", model, got.uri, got.header.Get("Authorization"))
				}
				if row.theirs == nil {
					continue // a poll has no body
				}
				want := `{"model":"` + row.theirs(model) + `"` + row.sent
				if complete := strings.HasSuffix(want, "}"); !strings.HasPrefix(got.body, want) || complete && got.body != want {
					t.Errorf("%s: the vendor got %s, want %s", model, got.body, want)
				}
			}
		})
	}
}

func TestTheFirstCallIsAChatOrElseWhatThereIs(t *testing.T) {
	for variable, want := range map[string]string{
		"OPENAI_API_KEY": "/v1/chat/completions gpt-5-mini", "ANTHROPIC_API_KEY": "/v1/chat/completions claude-haiku-4-5",
		"MOONSHOT_API_KEY": "/v1/chat/completions delta-k3", "VOYAGE_API_KEY": "/v1/embeddings vox-4",
		"COHERE_API_KEY": "/v1/chat/completions command-a-03-2025", "JINA_API_KEY": "/v1/rerank jina-colbert-v2",
		"ARK_API_KEY": "/v1/videos/generations gamma-1-0-pro-250528",
	} {
		p := &program{env: environment{variable: "k"}.lookup}
		components, err := presetsOf(t, p).Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		path, body := firstCall(components)
		var request struct{ Model string }
		if err := json.Unmarshal([]byte(body), &request); err != nil || path+" "+request.Model != want {
			t.Errorf("%s: %s %s, want %s; %v", variable, path, body, want, err)
		}
	}
}

func TestTheExampleIsNoModelThatIsNamedForAnotherUse(t *testing.T) {
	for list, want := range map[string]string{"all-minilm:latest few-words": "few-words", "bge-m3 nomic-embed-text": "bge-m3"} {
		entries, err := json.Marshal(map[string]any{"data": []map[string]string{{"id": strings.Fields(list)[0]}, {"id": strings.Fields(list)[1]}}})
		if err != nil {
			t.Fatal(err)
		}
		i := start(t, environment{"OLLAMA_HOST": newFakeVendor(t, 200, string(entries)).url})
		if !strings.Contains(i.stdout.String(), `"model":"`+want+`"`) {
			t.Errorf("of %s the banner does not call %s:\n%s", list, want, i.stdout)
		}
	}
}

func TestThePresetOfOpenAISpeaksResponsesAtItsOwnAddress(t *testing.T) {
	for base, want := range map[string]bool{"": true, "https://eu.api.openai.com/v1": true, "http://127.0.0.1:8000/v1": false} {
		p := &program{env: environment{"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": base}.lookup}
		c, err := presetsOf(t, p).Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Supports("openai", upstream.Responses, "gpt-6"); got != want || !c.Supports("openai", upstream.ChatCompletion, "gpt-6") {
			t.Errorf("at %q responses are supported: %v", base, got)
		}
		c.Close()
	}
}

func TestVariablesOfVendorsAreReadWithoutWhiteSpaceAroundThem(t *testing.T) {
	p := &program{env: environment{"OPENAI_API_KEY": "sk-1\r\n", "OPENAI_BASE_URL": " https://proxy.example.com/v1/chat/completions\n"}.lookup}
	src, err := p.presets()
	if err != nil {
		t.Fatal(err)
	}
	c := src.config.Channels[0]
	if len(c.Keys) != 1 || c.Keys[0].Reveal() != "sk-1" || c.BaseURL != "https://proxy.example.com/v1/chat/completions" {
		t.Errorf("%d keys, %q", len(c.Keys), c.BaseURL)
	}
	if want := []string{"channel openai: the gateway adds /chat/completions to the base_url by itself: write https://proxy.example.com/v1"}; !slices.Equal(src.notes, want) {
		t.Errorf("notes %q, want %q", src.notes, want)
	}
	for i := range presets() {
		if c := presets()[i].channel(presets()[i].Channel.BaseURL, false); c.AddressWarning() != "" {
			t.Errorf("the preset's own address: %s", c.AddressWarning())
		}
	}
}

// videoModels are the public ids of a family of videos.
func videoModels(t *testing.T, family string) []string {
	t.Helper()
	var ids []string
	for _, row := range videoop.Models() {
		if row.Family == family {
			ids = append(ids, row.IDs...)
		}
	}
	if len(ids) == 0 {
		t.Fatalf("the family %s has no models", family)
	}
	return ids
}

// curl sends what a printed curl command would.
func curl(t *testing.T, command string) (int, http.Header, string) {
	t.Helper()
	address := regexp.MustCompile(`http://\S+`).FindString(command)
	method, body := http.MethodGet, ""
	if m := regexp.MustCompile(`-d '([^']*)'`).FindStringSubmatch(command); m != nil {
		method, body = http.MethodPost, m[1]
	}
	var header []string
	for _, m := range regexp.MustCompile(`-H "([^"]+)"`).FindAllStringSubmatch(command, -1) {
		header = append(header, m[1])
	}
	r := read(t, servertest.Send(t, t.Context(), openapitest.Client(t), method, address, body, header...))
	return r.status, r.header, r.body
}

// printedCurls are the commands of a banner, their lines joined.
func printedCurls(banner string) []string {
	return regexp.MustCompile(`(?m)^  curl .*$`).FindAllString(strings.ReplaceAll(banner, "\\\n", " "), -1)
}

func TestTheDemosCommandsWorkAsPrinted(t *testing.T) {
	t.Parallel()
	i := start(t, nil, "--demo")
	banner := i.stdout.String()
	for _, want := range []string{
		"every answer is simulated, and nothing leaves this process", "  Store     in memory: accounts, ",
		"Then see the balance. What one call cost is at /v1/receipts/ID; ID is the X-Request-Id of its answer:",
	} {
		if !strings.Contains(banner, want) {
			t.Errorf("the banner lacks %q:\n%s", want, banner)
		}
	}
	if strings.Contains(banner, "allow_private") || strings.Contains(banner, "Warning: ") {
		t.Errorf("the banner warns of a demo:\n%s", banner)
	}
	curls := printedCurls(i.stdout.String())
	if len(curls) != 2 {
		t.Fatalf("the banner has %d commands:\n%s", len(curls), i.stdout)
	}
	status, header, body := curl(t, curls[0])
	if status != 200 || header.Get("Content-Type") != "text/event-stream" || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the chat gave %d %v\n%s", status, header, body)
	}
	if !strings.Contains(body, `"model":"delta-k3"`) {
		t.Errorf("the chunks do not name the model:\n%s", body)
	}
	status, _, body = curl(t, curls[1])
	if status != 200 || !strings.Contains(body, `"posted":"24.99`) || !strings.Contains(body, `"held":"0.00"`) {
		t.Errorf("the balance afterwards is %d %s", status, body)
	}
	key := firstKey(t, i.stdout.String())
	status, body = i.ask(http.MethodGet, "/v1/receipts/"+header.Get("X-Request-Id"), key, "")
	if status != 200 || !strings.Contains(body, `"reason":"complete"`) {
		t.Errorf("the receipt is %d %s", status, body)
	}
	named := regexp.MustCompile(`its token is in (.*), a file that the demo leaves behind\)\n`).FindStringSubmatch(i.stdout.String())
	if named == nil {
		t.Fatalf("the banner does not say where the admin token is:\n%s", i.stdout)
	}
	if token, err := os.ReadFile(named[1]); err != nil || string(token) != i.good("admin", "token") {
		t.Errorf("the admin token is not there: %v", err)
	}
}

func TestTheDemoRunsWhereNothingCanBeWritten(t *testing.T) {
	i := start(t, nil, "--demo", "--data", file(t, "a file, not a directory"))
	if i.admin != adminOff || !strings.Contains(i.stdout.String(), "Warning: the admin API is off") {
		t.Errorf("the banner is\n%s", i.stdout)
	}
}
