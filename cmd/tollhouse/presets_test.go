package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	presetfile "github.com/tollhouse-ai/gateway/internal/presets"
	"github.com/tollhouse-ai/gateway/internal/scripted"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/upstream"
)

// oddVendor is a vendor of OpenAI's wire with the deviations of a real one.
type oddVendor struct {
	// What it differs in.
	path      string   // of chat completions, or of responses
	both      bool     // it has responses besides
	messages  string   // where it has /v1/messages besides, without a counter of tokens; empty for nowhere
	auth      string   // the header and its value that it wants, "Authorization: Bearer KEY"
	refuses   []string // fields of a request that are a 400
	needs     string   // a field that a request has to have
	usage     string   // where a stream has its usage; empty for a chunk that has to be asked for
	reasoning string   // the member with the model's reasoning
	noDone    bool
	comments  bool
	bareList  bool // of models
	errorBody string

	t         *testing.T
	model     string // the one that it has
	number    int    // by which its counts of tokens differ from the others'
	responses *scripted.Vendor
	mu        sync.Mutex
	header    http.Header // of the last request
}

func (v *oddVendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	name, value, _ := strings.Cut(v.auth, ": ")
	if r.Header.Get(name) != value || name == "" && r.Header.Get("Authorization") != "" {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"message":"bad key"}}`)
		return
	}
	reranks := map[string]string{ // Cohere's, for which the same key is
		"/cohere/v1/models": `{"models":[{"name":"rerank-v3.5","endpoints":["rerank"]}]}`, "/cohere/v2/rerank": `{"results":[{"index":0,"relevance_score":0.5}]}`,
	}
	if answer := reranks[r.URL.Path]; answer != "" {
		_, _ = io.WriteString(w, answer)
		return
	}
	parent := v.path[:strings.LastIndex(strings.TrimSuffix(v.path, "/completions"), "/")]
	if r.URL.Path == parent+"/models" {
		list := fmt.Sprintf(`[{"id":%q}]`, v.model)
		if !v.bareList {
			list = `{"object":"list","data":` + list + `}`
		}
		_, _ = io.WriteString(w, list)
		return
	}
	if r.Method == http.MethodGet { // doctor looks whether it can be reached
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if v.messages != "" && strings.HasPrefix(r.URL.Path, v.messages) {
		v.message(w, r, string(body))
		return
	}
	var q map[string]json.RawMessage
	if err := json.Unmarshal(body, &q); err != nil || r.URL.Path != v.path && !(v.both && r.URL.Path == parent+"/responses") {
		v.t.Errorf("%s got %s %s with %s", v.path, r.Method, r.URL, body)
		w.WriteHeader(http.StatusNotFound)
		return
	}
	v.mu.Lock()
	v.header = r.Header
	v.mu.Unlock()
	if string(q["model"]) != fmt.Sprintf("%q", v.model) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"message":"The model does not exist","code":"model_not_found"}}`)
		return
	}
	for _, field := range v.refuses {
		if q[field] != nil {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, strings.ReplaceAll(v.errorBody, "FIELD", field))
			return
		}
	}
	if v.needs != "" && q[v.needs] == nil && strings.Contains(string(body), "the sea") {
		v.t.Errorf("%s: the request lacks %s: %s", v.path, v.needs, body)
	}
	if strings.HasSuffix(r.URL.Path, "/responses") {
		r.URL.Path, r.Body = "/v1/responses", io.NopCloser(strings.NewReader(string(body)))
		v.responses.ServeHTTP(w, r)
		return
	}
	v.chat(w, string(q["stream"]) == "true", strings.Contains(string(q["stream_options"]), "true"))
}

// chat answers "Hi" after some reasoning.
func (v *oddVendor) chat(w http.ResponseWriter, stream, asked bool) {
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, 100+v.number, 10+v.number, 110+2*v.number)
	if v.usage == "deepseek" {
		usage = strings.TrimSuffix(usage, "}") + fmt.Sprintf(`,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":%d}`, 36+v.number)
	}
	reasoning := ""
	if v.reasoning != "" {
		reasoning = fmt.Sprintf(`%q:"Hm",`, v.reasoning)
	}
	if !stream {
		_, _ = fmt.Fprintf(w, `{"id":"c1","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"message":{"role":"assistant",%s"content":"Hi"},"finish_reason":"stop"}],"usage":%s}`, v.model, reasoning, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	chunk := func(delta, finish, more string) {
		if v.comments {
			_, _ = io.WriteString(w, ": OPENROUTER PROCESSING\n\n")
		}
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s%s\n\n", v.model, delta, finish, more)
	}
	if v.reasoning != "" {
		chunk(strings.TrimSuffix(reasoning, ","), "null", "}]}")
	}
	chunk(`"role":"assistant","content":"Hi"`, "null", "}]}")
	end := map[string]string{
		"": "}]}", "unasked": `}],"usage":` + usage + "}", "deepseek": `}],"usage":` + usage + "}", "x_groq": `}],"x_groq":{"id":"r","usage":` + usage + "}}", "choice": `,"usage":` + usage + "}]}", "none": "}]}",
	}[v.usage]
	chunk("", `"stop"`, end)
	if v.usage == "" && asked {
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":%q,\"choices\":[],\"usage\":%s}\n\n", v.model, usage)
	}
	if !v.noDone {
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}
}

// message answers "Hi" as a message. A stream has its usage at the end alone.
func (v *oddVendor) message(w http.ResponseWriter, r *http.Request, body string) {
	if r.URL.Path != v.messages+"/v1/messages" {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "404 page not found")
		return
	}
	if want := fmt.Sprintf(`"model":%q`, v.model); !strings.Contains(body, want) || !strings.Contains(body, `"max_tokens":`) {
		v.t.Errorf("%s got %s, without %s or max_tokens", v.path, body, want)
	}
	usage := fmt.Sprintf(`{"input_tokens":%d,"cache_read_input_tokens":64,"cache_creation_input_tokens":3,"output_tokens":%d}`, 200+v.number, 20+v.number)
	if !strings.Contains(body, `"stream":true`) {
		_, _ = fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","stop_sequence":null,"vendors_own":1,"usage":%s}`, v.model, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []string{
		fmt.Sprintf(`{"type":"message_start","vendors_own":1,"message":{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[],"usage":{"input_tokens":0,"output_tokens":0}}}`, v.model),
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":` + usage + `}`,
		`{"type":"message_stop"}`,
	} {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
	}
}

// oddPreset is a preset, the vendor that it leads to, and what a client asks for.
type oddPreset struct {
	channel, model, theirs string            // the public id, and the vendor's
	env                    map[string]string // URL stands for the vendor's address
	base                   string            // what the address of a call begins with
	sends                  string            // members of the client's request
	session                string            // the header in which the vendor gets the session
	vendor                 oddVendor
	estimated              bool // the stream's output is
	cached                 int
}

const bearer = "Authorization: Bearer vendor-key"

// oddPresets are all presets of vendors of texts but those of source_test.go. All are set
// at once, so that azure, the first that passes everything through, has the ids without a prefix.
func oddPresets() []*oddPreset {
	detail := `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","FIELD"]}]},"type":"invalid_request_error"}`
	plain := `{"message":"FIELD is not supported"}`
	at := func(name, path string) map[string]string {
		return map[string]string{name + "_API_KEY": "vendor-key", name + "_BASE_URL": "URL" + path}
	}
	one := func(name string) map[string]string {
		return map[string]string{name + "_API_KEY": "vendor-key", name + "_BASE_URL": "URL/" + strings.ToLower(name)}
	}
	return []*oddPreset{
		{channel: "gemini", model: "gemini-2.5-flash", env: one("GEMINI"), base: "/gemini", sends: `"user":"u"`, vendor: oddVendor{auth: bearer, refuses: []string{"user"}, errorBody: `[{"error":{"code":400,"message":"Unknown name FIELD","status":"INVALID_ARGUMENT"}}]`}},
		{channel: "moonshot", model: "delta-k3", theirs: "kimi-k3", env: at("MOONSHOT", "/v1"), base: "/v1", sends: `"max_tokens":50`, vendor: oddVendor{auth: bearer, needs: "max_completion_tokens", refuses: []string{"max_tokens"}, errorBody: plain, messages: "/anthropic"}},
		{channel: "mistral", model: "mistral-small-latest", env: one("MISTRAL"), base: "/mistral", sends: `"user":"u","logprobs":false,"seed":7,"max_completion_tokens":50`, vendor: oddVendor{auth: bearer, usage: "unasked", needs: "random_seed", refuses: []string{"user", "logprobs", "seed", "max_completion_tokens", "stream_options"}, errorBody: detail}},
		{channel: "deepseek", model: "deepseek-chat", env: at("DEEPSEEK", "/v1"), base: "/v1", sends: `"max_completion_tokens":50`, cached: 64, vendor: oddVendor{auth: bearer, messages: "/anthropic", usage: "deepseek", reasoning: "reasoning_content", comments: true, needs: "max_tokens"}},
		{channel: "xai", model: "grok-4", env: one("XAI"), base: "/xai", vendor: oddVendor{auth: bearer, both: true, reasoning: "reasoning_content"}},
		{channel: "perplexity", model: "sonar", theirs: "perplexity/sonar", env: one("PERPLEXITY"), base: "/perplexity", vendor: oddVendor{auth: bearer, path: "/responses"}},
		{channel: "zai", model: "glm-4.6", env: at("ZAI", "/api/paas/v4/"), base: "/api/paas/v4", session: "X-Session-Id", sends: `"user":"u","max_completion_tokens":50`, vendor: oddVendor{auth: bearer, messages: "/api/anthropic", usage: "unasked", needs: "max_tokens", refuses: []string{"user"}, errorBody: `{"error":{"code":"1210","message":"FIELD"}}`}},
		{channel: "minimax", model: "MiniMax-M2", env: at("MINIMAX", "/v1"), base: "/v1", sends: `"n":1,"max_tokens":50`, vendor: oddVendor{auth: bearer, messages: "/anthropic", needs: "max_completion_tokens", refuses: []string{"n", "max_tokens"}, errorBody: `{"base_resp":{"status_code":2013,"status_msg":"FIELD"}}`}},
		{channel: "cohere", model: "command-a-03-2025", env: one("COHERE"), base: "/cohere/compatibility/v1", sends: `"user":"u","n":1,"store":false,"max_completion_tokens":50`, estimated: true, vendor: oddVendor{auth: bearer, usage: "none", needs: "max_tokens", refuses: []string{"user", "n", "store", "stream_options"}, errorBody: plain}},
		{channel: "fireworks", model: "accounts/fireworks/models/gpt-oss-120b", env: one("FIREWORKS"), base: "/fireworks", session: "X-Session-Affinity", vendor: oddVendor{auth: bearer, usage: "unasked"}},
		{channel: "azure", model: "my-deployment", env: map[string]string{"AZURE_OPENAI_API_KEY": "vendor-key", "AZURE_OPENAI_ENDPOINT": "URL/"}, base: "/openai/v1", vendor: oddVendor{auth: "Api-Key: vendor-key", both: true}},
		{channel: "bedrock", model: "bedrock/openai.gpt-oss-120b-1:0", env: map[string]string{"AWS_BEARER_TOKEN_BEDROCK": "vendor-key", "BEDROCK_BASE_URL": "URL/openai/v1"}, base: "/openai/v1", vendor: oddVendor{auth: bearer}},
		{channel: "groq", model: "groq/groq/compound", env: one("GROQ"), base: "/groq", sends: `"logprobs":false,"n":1`, vendor: oddVendor{auth: bearer, usage: "x_groq", reasoning: "reasoning", refuses: []string{"logprobs", "n"}, errorBody: `{"error":{"message":"FIELD","type":"invalid_request_error"}}`}},
		{channel: "openrouter", model: "openrouter/openai/gpt-5-mini:free", env: one("OPENROUTER"), base: "/openrouter", session: "X-Session-Id", vendor: oddVendor{auth: bearer, reasoning: "reasoning", comments: true}},
		{channel: "together", model: "together/openai/gpt-oss-20b", env: one("TOGETHER"), base: "/together", sends: `"max_completion_tokens":50`, vendor: oddVendor{auth: bearer, bareList: true, needs: "max_tokens"}},
		{channel: "cerebras", model: "cerebras/gpt-oss-120b", env: one("CEREBRAS"), base: "/cerebras", sends: `"frequency_penalty":0`, vendor: oddVendor{auth: bearer, refuses: []string{"frequency_penalty"}, errorBody: plain}},
		{channel: "nvidia", model: "nim/nvidia/nemotron", env: one("NVIDIA"), base: "/nvidia", sends: `"user":"u"`, vendor: oddVendor{auth: bearer, refuses: []string{"user"}, errorBody: `{"title":"Bad Request","detail":"FIELD"}`}},
		{channel: "huggingface", model: "hf/openai/gpt-oss-20b:groq", env: map[string]string{"HF_TOKEN": "vendor-key", "HF_BASE_URL": "URL/v1"}, base: "/v1", vendor: oddVendor{auth: bearer, noDone: true, usage: "choice"}},
		{channel: "ollama", model: "ollama/llama3.2:1b", env: map[string]string{"OLLAMA_HOST": "URL"}, base: "/v1", sends: `"max_completion_tokens":50`, vendor: oddVendor{needs: "max_tokens"}},
		{channel: "lmstudio", model: "lmstudio/local", env: map[string]string{"LMSTUDIO_BASE_URL": "URL"}, base: "/v1", vendor: oddVendor{}},
		{channel: "vllm", model: "vllm/org/model", env: map[string]string{"VLLM_BASE_URL": "URL/v1", "VLLM_API_KEY": "own"}, base: "/v1", vendor: oddVendor{auth: "Authorization: Bearer own"}},
		{channel: "llamacpp", model: "llamacpp/model.gguf", env: map[string]string{"LLAMACPP_BASE_URL": "URL/"}, base: "/v1", sends: `"n":1`, vendor: oddVendor{refuses: []string{"n"}, errorBody: plain}},
	}
}

// serve starts the preset's vendor and returns the variables that lead to it.
func (p *oddPreset) serve(t *testing.T, number int) environment {
	t.Helper()
	v := &p.vendor
	v.responses = scripted.New(t, scripted.Responses)
	v.path = cmp.Or(v.path, "/chat/completions")
	if p.theirs == "" {
		p.theirs = strings.TrimPrefix(p.model, prefixOf(p.channel))
	}
	v.t, v.number, v.path, v.model = t, number, p.base+v.path, p.theirs
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	env := environment{}
	for name, value := range p.env {
		env[name] = strings.ReplaceAll(value, "URL", s.URL)
	}
	if v.messages != "" {
		env[presetNamed(p.channel).messagesVar()] = s.URL + v.messages
	}
	return env
}

func prefixOf(channel string) string { return presetNamed(channel).Host }

// receipt is what a call was charged by.
type receipt struct {
	Units struct {
		Input  int `json:"input"`
		Cached int `json:"cached_input"`
		Write  int `json:"cache_write"`
		Output int `json:"output"`
	} `json:"units"`
	Estimated bool `json:"estimated"`
}

// bill makes a call of a preset and returns the answer and its receipt.
func bill(t *testing.T, i *instance, key string, p *oddPreset, stream bool) (answer string, r receipt) {
	t.Helper()
	body := strings.TrimSuffix(chatBody(p.model, stream), "}")
	if p.sends != "" {
		body += "," + p.sends
	}
	if stream {
		body += `,"stream_options":{"include_usage":true}`
	}
	return billOf(t, i, key, "/v1/chat/completions", body+"}")
}

// billOf is bill of a call of any path.
func billOf(t *testing.T, i *instance, key, path, body string) (answer string, r receipt) {
	t.Helper()
	a := read(t, servertest.Send(t, t.Context(), http.DefaultClient, http.MethodPost, i.api+path, body, "Content-Type: application/json", "Authorization: Bearer "+key, "X-Session-Id: my-session"))
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	status, text := i.ask(http.MethodGet, "/v1/receipts/"+a.header.Get("X-Request-Id"), key, "")
	if err := json.Unmarshal([]byte(text), &r); err != nil || status != http.StatusOK {
		t.Fatalf("the receipt is %d %s, error %v", status, text, err)
	}
	return a.body, r
}

func TestEachPresetServesAVendorThatIsOdd(t *testing.T) {
	rows := oddPresets()
	env := environment{}
	for n := range rows {
		maps.Copy(env, rows[n].serve(t, n))
	}
	i := start(t, env)
	key := firstKey(t, i.stdout.String())
	for n := range rows {
		p := rows[n]
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream %t", p.channel, stream), func(t *testing.T) {
				answer, r := bill(t, i, key, p, stream)
				text := `"content":"Hi"`
				if p.vendor.path == p.base+"/responses" {
					text = "Hello"
				}
				if !strings.Contains(answer, text) || stream && !strings.HasSuffix(answer, "data: [DONE]\n\n") {
					t.Errorf("the answer is %s", answer)
				}
				if name := p.vendor.reasoning; name != "" && !strings.Contains(answer, fmt.Sprintf("%q:\"Hm\"", name)) {
					t.Errorf("the member %s is not as the vendor sent it: %s", name, answer)
				}
				if stream && !strings.Contains(answer, `"prompt_tokens":`) {
					t.Errorf("the client asked for usage and got none: %s", answer)
				}
				want := receipt{Estimated: stream && p.estimated}
				want.Units.Input, want.Units.Cached, want.Units.Output = 100+n-p.cached, p.cached, 10+n
				if p.vendor.path == p.base+"/responses" {
					want.Units.Input, want.Units.Cached, want.Units.Output = scripted.Input-scripted.Cached, scripted.Cached, r.Units.Output
				}
				if want.Estimated { // by the texts
					want.Units = r.Units
				}
				if diff := gocmp.Diff(want, r); diff != "" || r.Units.Output == 0 || r.Units.Input == 0 {
					t.Errorf("charged (-want +got)\n%s", diff)
				}
				p.vendor.mu.Lock()
				defer p.vendor.mu.Unlock()
				if p.session != "" && len(p.vendor.header.Get(p.session)) != 32 {
					t.Errorf("the vendor got the session %q in %s", p.vendor.header.Get(p.session), p.session)
				}
			})
		}
	}
}

// What an operator with keys runs: each vendor is asked for its list, and for one token in
// each form of texts that it has.
func TestDoctorAsksEveryPreset(t *testing.T) {
	rows := oddPresets()
	env := environment{}
	for n, p := range rows {
		if example := presetNamed(p.channel).Example; example != "" && p.theirs == "" {
			p.theirs = example
		}
		maps.Copy(env, p.serve(t, n))
	}
	got := examineWith(t, env, "--call", "--admin", "off")
	want := map[string]string{"cohere-rerank": "rerank-english-v3.0 answered"}
	operations := map[string]string{"xai": "(chat, responses)", "azure": "(chat, responses)", "perplexity": "(responses)", "cohere-rerank": "(rerank)"}
	for _, p := range rows {
		model := presetNamed(p.channel).Example
		if p.channel == "moonshot" {
			model = p.model
		}
		want[p.channel] = presetNamed(p.channel).Host + model + " answered"
		if p.channel == "azure" { // which has the ids without a prefix
			want[p.channel] = model + " answered"
		}
		if p.vendor.messages != "" {
			operations[p.channel] = "(chat, messages)"
		}
	}
	for channel, answered := range want {
		if list := got.by["channel "+channel]; !strings.HasPrefix(list, "ok: ") || !strings.Contains(list, "lists 1 model") {
			t.Errorf("%s: the list is %q", channel, list)
		}
		operation := cmp.Or(operations[channel], "(chat)")
		if call := got.by["call of "+channel]; !strings.HasPrefix(call, "ok: "+answered) || !strings.Contains(call, operation) {
			t.Errorf("%s: the call is %q, want %s %s", channel, call, answered, operation)
		}
	}
}

// Claude Code's requests reach a vendor of its wire as they are, though the same vendor's chats
// have other names for fields.
func TestMessagesReachAVendorOfBothWiresAsTheyAre(t *testing.T) {
	rows := slices.DeleteFunc(oddPresets(), func(p *oddPreset) bool { return p.vendor.messages == "" })
	if len(rows) != 4 {
		t.Fatalf("%d presets have messages, want 4", len(rows))
	}
	env := environment{}
	for n, p := range rows {
		maps.Copy(env, p.serve(t, n))
	}
	i := start(t, env)
	key := firstKey(t, i.stdout.String())
	for n, p := range rows {
		body := fmt.Sprintf(`{"model":%q,"max_tokens":50,"messages":[{"role":"user","content":"Tell me of the sea."}]`, p.model)
		var want receipt
		want.Units.Input, want.Units.Cached, want.Units.Write, want.Units.Output = 200+n, 64, 3, 20+n
		for _, stream := range []string{"", `,"stream":true`} {
			t.Run(p.channel+stream, func(t *testing.T) {
				answer, got := billOf(t, i, key, "/v1/messages", body+stream+"}")
				if !strings.Contains(answer, `"vendors_own":1`) || !strings.Contains(answer, fmt.Sprintf(`"model":%q`, p.model)) {
					t.Errorf("the answer is not the vendor's own under the public id: %s", answer)
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("charged (-want +got)\n%s", diff)
				}
			})
		}
		t.Run(p.channel+" counts", func(t *testing.T) {
			status, answer := i.ask(http.MethodPost, "/v1/messages/count_tokens", key, strings.Replace(body, `"max_tokens":50,`, "", 1)+"}")
			if status != http.StatusOK || !strings.Contains(answer, `"input_tokens":`) {
				t.Errorf("%d %s, want an estimate", status, answer)
			}
		})
	}
}

// A vendor of both wires that is overloaded loses a message to one for which it is translated.
func TestAMessageFailsOverFromAVendorOfItsWireToOneOfChats(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.Path+" "+r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/messages") {
			w.WriteHeader(529)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
			return
		}
		_, _ = io.WriteString(w, vendorAnswerOf("m"))
	}))
	defer vendor.Close()
	i := start(t, acme, "--config", file(t, "billing: count\nchannels:\n"+
		"  - {name: both, driver: openai, base_url: '"+vendor.URL+"/v1', wire: [chat, messages], messages: {base_url: '"+vendor.URL+"/anthropic', auth: header:x-api-key}, keys: [one], models: {m: m}}\n"+
		"  - {name: chats, driver: openai, base_url: '"+vendor.URL+"/v2', keys: [two], models: {m: m}, priority: 1}\n"+
		"accounts: [{name: acme, keys: [{env: ACME_KEY}]}]\n"))
	status, answer := i.ask(http.MethodPost, "/v1/messages", acme["ACME_KEY"], `{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`)
	if status != http.StatusOK || !strings.Contains(answer, `"type":"message"`) {
		t.Errorf("%d %s", status, answer)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"/anthropic/v1/messages one", "/v2/chat/completions Bearer two"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// A vendor of three addresses, each with models of its own, is one to its clients.
func TestAModelOfBedrockIsServedByTheAddressThatHasIt(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	address := func(name string, lists, has string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == "/v1/models" {
				var ids []string
				for id := range strings.FieldsSeq(lists) {
					ids = append(ids, fmt.Sprintf(`{"id":%q}`, id))
				}
				_, _ = fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(ids, ","))
				return
			}
			var q struct{ Model string }
			_ = json.NewDecoder(r.Body).Decode(&q)
			mu.Lock()
			asked = append(asked, name)
			mu.Unlock()
			if !slices.Contains(strings.Fields(has), q.Model) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"error":{"code":"validation_error","type":"invalid_request_error","message":"model %s isn't supported on this route"}}`, "`"+q.Model+"`")
				return
			}
			_, _ = io.WriteString(w, vendorAnswerOf(q.Model))
		}))
		t.Cleanup(s.Close)
		return s.URL + "/v1"
	}
	env := environment{
		"AWS_BEARER_TOKEN_BEDROCK": "vendor-key", "AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_BASE_URL": address("azure", "", ""),
		"BEDROCK_BASE_URL":               address("runtime", "claude both", "claude both unlisted"),
		"BEDROCK_MANTLE_BASE_URL":        address("mantle", "both qwen gpt", "both qwen"),
		"BEDROCK_MANTLE_OPENAI_BASE_URL": address("mantle/openai", "both qwen gpt", "gpt"),
	}
	i := start(t, env)
	key := firstKey(t, i.stdout.String())
	for _, row := range []struct{ model, want string }{
		{"claude", "runtime"},
		{"both", "runtime"},
		{"unlisted", "runtime"},
		{"qwen", "mantle"},
		{"gpt", "mantle mantle/openai"}, // the first address refuses it
		{"gpt", "mantle/openai"},        // and is left alone with it
		{"qwen", "mantle"},
	} {
		status, answer := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("bedrock/"+row.model, false))
		mu.Lock()
		got := strings.Join(asked, " ")
		asked = nil
		mu.Unlock()
		if status != http.StatusOK || got != row.want {
			t.Errorf("%s: %d %s, asked %q, want %q", row.model, status, answer, got, row.want)
		}
	}
}

func TestAnAddressOfOllamaIsReadAsOllamaDoes(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:11434":       "http://127.0.0.1:11434/v1",
		"0.0.0.0:11434":         "http://127.0.0.1:11434/v1",
		"0.0.0.0":               "http://127.0.0.1:11434/v1",
		"[::]:11434":            "http://[::1]:11434/v1",
		"::1":                   "http://[::1]:11434/v1",
		"[::1]":                 "http://[::1]:11434/v1",
		":8000":                 "http://127.0.0.1:8000/v1",
		"gpu":                   "http://gpu:11434/v1",
		"gpu:8000":              "http://gpu:8000/v1",
		" \"gpu\" ":             "http://gpu:11434/v1",
		"http://gpu":            "http://gpu:80/v1",
		"https://gpu/":          "https://gpu:443/v1",
		"http://gpu:8000/":      "http://gpu:8000/v1",
		"https://gpu:8000/at/1": "https://gpu:8000/at/1/v1",
		"gpu:port":              "",
		"gpu:70000":             "",
		"ftp://gpu":             "",
	} {
		got, err := ollamaURL(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, error %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"http://127.0.0.1:1234": "http://127.0.0.1:1234/v1", "http://a/": "http://a/v1", "http://a/v1": "http://a/v1", "https://a/x/v1": "https://a/x/v1", "a:1234": "", "": "",
	} {
		if got, err := localURL(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, error %v, want %q", text, got, err, want)
		}
	}
}

func TestAPresetThatLacksAVariableSaysWhich(t *testing.T) {
	for _, row := range []struct{ env, lacks string }{{"AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"}, {"AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION"}} {
		r := tollhouse(t, environment{row.env: "k"}, "models")
		want := row.env + " is set, but not " + row.lacks
		if r.code != exitFailed || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "tollhouse serve --help") {
			t.Errorf("%d %s, want %s", r.code, r.stderr, want)
		}
	}
}

func TestTheVariablesOfAVendorMakeItsChannels(t *testing.T) {
	const azure, bedrock = "AZURE_OPENAI_API_KEY=k AZURE_OPENAI_ENDPOINT=", "AWS_BEARER_TOKEN_BEDROCK=k AWS_REGION=eu-west-1"
	const deepseek, proxy = "DEEPSEEK_API_KEY=k", "https://proxy.example.com"
	for _, row := range []struct{ variables, want string }{ // each channel's name, address and that of messages
		{azure + "https://a.openai.azure.com", "azure https://a.openai.azure.com/openai/v1 "},
		{azure + "https://a.openai.azure.com/", "azure https://a.openai.azure.com/openai/v1 "},
		{azure + "https://a.openai.azure.com/openai/v1/", "azure https://a.openai.azure.com/openai/v1 "},
		{bedrock, "bedrock https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1 bedrock-mantle https://bedrock-mantle.eu-west-1.api.aws/v1 bedrock-mantle-openai https://bedrock-mantle.eu-west-1.api.aws/openai/v1 "},
		{bedrock + " BEDROCK_BASE_URL=" + proxy, "bedrock " + proxy + " "}, // none of the others gets the key beside a proxy
		{deepseek, "deepseek https://api.deepseek.com/v1 https://api.deepseek.com/anthropic"},
		{deepseek + " DEEPSEEK_BASE_URL=https://api.deepseek.com", "deepseek https://api.deepseek.com https://api.deepseek.com/anthropic"},
		{deepseek + " DEEPSEEK_BASE_URL=" + proxy, "deepseek " + proxy + " "}, // which may have chats only
		{deepseek + " DEEPSEEK_BASE_URL=http://api.deepseek.com/v1", "deepseek http://api.deepseek.com/v1 "},
		{deepseek + " DEEPSEEK_BASE_URL=" + proxy + " DEEPSEEK_MESSAGES_BASE_URL=" + proxy + "/claude", "deepseek " + proxy + " " + proxy + "/claude"},
		{deepseek + " DEEPSEEK_MESSAGES_BASE_URL=" + proxy + "/claude", "deepseek https://api.deepseek.com/v1 " + proxy + "/claude"},
	} {
		env, got := environment{}, ""
		for variable := range strings.FieldsSeq(row.variables) {
			name, value, _ := strings.Cut(variable, "=")
			env[name] = value
		}
		channels := presetsOf(t, &program{env: env.lookup}).Channels
		for i := range channels {
			c := &channels[i]
			if got += c.Name + " " + c.BaseURL + " " + c.Messages.BaseURL; (c.Messages.BaseURL != "") != slices.Contains(c.Wire, upstream.Messages) {
				t.Errorf("%s: messages go to %q by %v", row.variables, c.Messages.BaseURL, c.Wire)
			}
		}
		if got != row.want {
			t.Errorf("%s: the channels are %q, want %q", row.variables, got, row.want)
		}
	}
}

// TestTheAddressesThatAreReadWithoutYAMLAreThoseOfTheTable: package transport reads them so.
func TestTheAddressesThatAreReadWithoutYAMLAreThoseOfTheTable(t *testing.T) {
	var want []presetfile.Address
	for _, v := range presets() {
		if v.Local == "" {
			want = append(want, presetfile.Address{Driver: v.Channel.Driver, BaseURL: v.Channel.BaseURL, Path: v.Path, Messages: v.Messages})
		}
	}
	if got := presetfile.Addresses(); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The page and the help are for people who have a key and no time.
func TestTheDocumentedVendorsAreThoseOfTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/vendors.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := config.Decode("presets.yaml", presetfile.YAML(), new([]preset)); err != nil {
		t.Fatal(err)
	}
	help := tollhouse(t, nil, "serve", "--help").stdout
	hosts := map[string]bool{}
	for i := range presets() {
		v := &presets()[i]
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(v.Channel.Name) + "` \\|.*$").FindString(string(page))
		for _, cell := range []string{v.turnedOnBy(), v.URL, v.Channel.BaseURL, v.Host, strings.Join(v.Channel.Begins, "`, `")} {
			if cell != "" && !strings.Contains(row, "`"+cell+"`") {
				t.Errorf("docs/reference/vendors.md does not name %s of %s in its row: %s", cell, v.Channel.Name, row)
			}
		}
		if !strings.Contains(help, v.turnedOnBy()) {
			t.Errorf("serve --help lacks %s", v.turnedOnBy())
		}
		if v.Host != "" && hosts[v.Host] {
			t.Errorf("the beginning %s is there twice", v.Host)
		}
		hosts[v.Host] = true
	}
}
