package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/openapitest"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/videoapi"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// embeddingsVendor is a vendor of embeddings that notes the last call.
type embeddingsVendor struct {
	base   string
	answer string

	mu         sync.Mutex
	path, body string
	key        string
}

func newEmbeddingsVendor(t *testing.T, answer string) *embeddingsVendor {
	t.Helper()
	v := &embeddingsVendor{answer: answer}
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.base = s.URL
	return v
}

// ServeHTTP gives the one answer.
func (v *embeddingsVendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	v.path, v.body, v.key = r.URL.Path, string(data), r.Header.Get("Authorization")
	v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, v.answer)
}

func TestEachVendorOfEmbeddingsIsAPreset(t *testing.T) {
	const vector = `{"object":"embedding","index":0,"embedding":[1,2]}`
	google := newEmbeddingsVendor(t, `{"object":"list","data":[`+vector+`],"model":"gemini-embedding-001"}`)
	voyage := newEmbeddingsVendor(t, `{"object":"list","data":[`+vector+`],"model":"voyage-4","usage":{"total_tokens":1}}`)
	alibaba := newEmbeddingsVendor(t, `{"object":"list","data":[`+vector+`],"model":"text-embedding-v4","usage":{"prompt_tokens":1,"total_tokens":1}}`)
	i := start(t, environment{
		"GEMINI_API_KEY": "k-google", "GEMINI_BASE_URL": google.base + "/v1beta/openai",
		"VOYAGE_API_KEY": "k-voyage", "VOYAGE_BASE_URL": voyage.base + "/v1",
		"DASHSCOPE_API_KEY": "k-alibaba", "DASHSCOPE_BASE_URL": alibaba.base + "/",
	})
	key := regexp.MustCompile(`sk-\w+`).FindString(i.stdout.String())
	for _, row := range []struct {
		vendor              *embeddingsVendor
		model, path, secret string
		sent                string
	}{
		{google, "embx-001", "/v1beta/openai/embeddings", "k-google", `{"model":"gemini-embedding-001","input":"a","dimensions":256,"encoding_format":"float"}`},
		{voyage, "vox-4", "/v1/embeddings", "k-voyage", `{"model":"voyage-4","input":"a","output_dimension":256,"encoding_format":"base64"}`},
		{alibaba, "text-embedding-v4", "/compatible-mode/v1/embeddings", "k-alibaba", `{"model":"text-embedding-v4","input":"a","dimensions":256,"encoding_format":"float"}`},
	} {
		status, body := i.ask(http.MethodPost, "/v1/embeddings", key, `{"model":"`+row.model+`","input":"a","dimensions":256,"user":"u","encoding_format":"base64"}`)
		if status != 200 || !strings.Contains(body, `"embedding":"AACAPwAAAEA="`) || !strings.Contains(body, `"model":"`+row.model+`"`) || !strings.Contains(body, `"prompt_tokens":1`) {
			t.Errorf("%s: %d %s", row.model, status, body)
		}
		v := row.vendor
		v.mu.Lock()
		if v.path != row.path || v.body != row.sent || v.key != "Bearer "+row.secret {
			t.Errorf("%s got %s %s\n%s, want\n%s", row.model, v.key, v.path, v.body, row.sent)
		}
		v.mu.Unlock()
	}
	if status, _, body := curl(t, printedCurls(i.stdout.String())[0]); status != 200 || !strings.Contains(body, `"embedding":[1,2]`) {
		t.Errorf("the printed call gives %d %s", status, body)
	}
}

// messagesVendor is a vendor with Anthropic's wire that records the last call.
type messagesVendor struct {
	base string

	mu                 sync.Mutex
	uri, key, sent     string
	version, authority string
}

func newMessagesVendor(t *testing.T) *messagesVendor {
	t.Helper()
	v := new(messagesVendor)
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.base = s.URL
	return v
}

const message = `{"id":"msg_1","type":"message","role":"assistant","model":"theirs","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}`

// ServeHTTP gives a message, or a count of tokens.
func (v *messagesVendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	v.uri, v.key, v.sent = r.RequestURI, r.Header.Get("X-Api-Key"), string(data)
	v.version, v.authority = r.Header.Get("Anthropic-Version"), r.Header.Get("Authorization")
	v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := message
	if strings.HasSuffix(r.URL.Path, "/count_tokens") {
		answer = `{"input_tokens":42}`
	}
	_, _ = io.WriteString(w, answer)
}

func TestAnthropicsModelsGoToAnthropicAndNoOtherDoes(t *testing.T) {
	claude := newMessagesVendor(t)
	openai, others := vendor(t, 200, vendorAnswer)
	i := start(t, environment{
		"ANTHROPIC_API_KEY": "sk-ant", "ANTHROPIC_BASE_URL": claude.base, "OPENAI_API_KEY": "sk-open", "OPENAI_BASE_URL": openai,
	})
	banner := i.stdout.String()
	if !strings.Contains(banner, "anthropic (anthropic): every model that begins with claude-") || !strings.Contains(banner, "openai (openai): every model") {
		t.Errorf("the banner is\n%s", banner)
	}
	key := regexp.MustCompile(`sk-\w+`).FindString(banner)
	const body = `{"model":"claude-a","max_tokens":9,"messages":[{"role":"user","content":"Hello!"}],"x":1.0}`
	for _, row := range []struct{ path, sent, want string }{
		{"/v1/messages", body, `"id":"msg_1"`},
		{"/v1/messages/count_tokens", `{"model":"claude-a","messages":[{"role":"user","content":"Hello!"}]}`, `{"input_tokens":42}`},
	} {
		status, answer := i.ask(http.MethodPost, row.path, key, row.sent)
		if status != 200 || !strings.Contains(answer, row.want) || strings.Contains(answer, "theirs") {
			t.Errorf("%s: %d %s", row.path, status, answer)
		}
		claude.mu.Lock()
		if claude.uri != row.path || claude.key != "sk-ant" || claude.authority != "" || claude.version != "2023-06-01" || claude.sent != row.sent {
			t.Errorf("%s: the vendor got %s, key %q %q, version %q\n%s", row.path, claude.uri, claude.key, claude.authority, claude.version, claude.sent)
		}
		claude.mu.Unlock()
	}
	for range 16 { // two channels that may both be asked would share them
		status, answer := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("claude-b", false))
		if status != 200 || !strings.Contains(answer, `"content":"Hi"`) {
			t.Errorf("a chat with a model of Anthropic's got %d %s", status, answer)
		}
	}
	if others.Load() != 0 {
		t.Errorf("openai was asked %d times for models of Anthropic's", others.Load())
	}
	if status, answer := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("gpt-5-mini", false)); status != 200 || others.Load() != 1 {
		t.Errorf("a model of openai's got %d %s", status, answer)
	}
	if status, answer := i.ask(http.MethodPost, "/v1/messages", key, strings.Replace(body, "claude-a", "gpt-5-mini", 1)); status != 200 || others.Load() != 2 {
		t.Errorf("a message from a model of openai's got %d %s", status, answer)
	}
}

func TestWithAnthropicsKeyAloneOtherModelsDoNotExist(t *testing.T) {
	claude := newMessagesVendor(t)
	i := start(t, environment{"ANTHROPIC_API_KEY": "sk-ant", "ANTHROPIC_BASE_URL": claude.base})
	banner := i.stdout.String()
	key := regexp.MustCompile(`sk-\w+`).FindString(banner)
	if status, answer := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("gpt-5-mini", false)); status != 400 || !strings.Contains(answer, "model_not_found") {
		t.Errorf("%d %s", status, answer)
	}
	first := strings.Replace(printedCurls(banner)[0], `"stream":true`, `"stream":false`, 1)
	if status, _, answer := curl(t, first); status != 200 || !strings.Contains(answer, `"content":"Hi"`) || !strings.Contains(first, "claude-") {
		t.Errorf("the printed call\n%s\ngot %d %s", first, status, answer)
	}
}

func TestTheVendorOfAlphaPicturesIsAPreset(t *testing.T) {
	v := newEmbeddingsVendor(t, `{"request_id":"theirs","output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://b.example/x.png"}]}}]},"usage":{"image_count":1}}`)
	i := start(t, environment{"DASHSCOPE_API_KEY": "k-alibaba", "DASHSCOPE_BASE_URL": v.base})
	key := regexp.MustCompile(`sk-\w+`).FindString(i.stdout.String())
	for public, theirs := range map[string]string{
		"alpha-image-2.0": "qwen-image-2.0", "alpha-image-2.0-pro": "qwen-image-2.0-pro", "alpha-image-max": "qwen-image-max",
		"alpha-image-edit": "qwen-image-edit", "alpha-image-edit-plus": "qwen-image-edit-plus", "alpha-image-edit-max": "qwen-image-edit-max",
	} {
		content := `{"text":"a"}`
		if strings.Contains(public, "edit") {
			content += `,{"image":"https://files.example/a.png"}`
		}
		rest := `,"input":{"messages":[{"role":"user","content":[` + content + `]}]}`
		status, body := i.ask(http.MethodPost, "/v1/images/generations", key, `{"model":"`+public+`"`+rest+`}`)
		if status != 200 || !strings.Contains(body, `"image":"https://b.example/x.png"`) || !strings.Contains(body, `"request_id":"req_`) {
			t.Errorf("%s: %d %s", public, status, body)
		}
		want := `{"model":"` + theirs + `"` + rest + `,"parameters":{"size":"1024*1024","n":1}}`
		v.mu.Lock()
		if v.path != "/api/v1/services/aigc/multimodal-generation/generation" || v.body != want || v.key != "Bearer k-alibaba" {
			t.Errorf("%s: %s %s\n%s, want\n%s", public, v.key, v.path, v.body, want)
		}
		v.mu.Unlock()
	}
}

// videoVendor is a vendor of videos that records the last call.
type videoVendor struct {
	base string

	mu        sync.Mutex
	uri, body string
	key       string
}

func newVideoVendor(t *testing.T) *videoVendor {
	t.Helper()
	v := new(videoVendor)
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.base = s.URL
	return v
}

// ServeHTTP takes everything.
func (v *videoVendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	v.uri, v.body, v.key = r.Method+" "+r.RequestURI, string(data), r.Header.Get("Authorization")
	v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"t-1","output":{"task_id":"t-1","task_status":"PENDING"}}`)
}

// got is what the vendor noted.
func (v *videoVendor) got() (uri, body, key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.uri, v.body, v.key
}

func TestEveryModelOfVideosGoesToItsVendor(t *testing.T) {
	alibaba, volcano := newVideoVendor(t), newVideoVendor(t)
	p := &program{env: environment{
		"DASHSCOPE_API_KEY": "k-alibaba", "DASHSCOPE_BASE_URL": alibaba.base,
		"ARK_API_KEY": "k-volcano", "ARK_BASE_URL": volcano.base + "/api/v3",
	}.lookup}
	parts, err := p.presets().config.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close()
	for _, row := range []struct {
		family       string
		vendor       *videoVendor
		channel, key string
		submit, poll string
		theirs       func(public string) string
	}{
		{
			video.FamilyBeta, alibaba, "dashscope", "k-alibaba",
			"POST /api/v1/services/aigc/video-generation/video-synthesis", "GET /api/v1/tasks/t-1",
			func(public string) string { return "wan" + strings.TrimPrefix(public, "beta") },
		},
		{
			video.FamilyGamma, volcano, "ark", "k-volcano",
			"POST /api/v3/contents/generations/tasks", "GET /api/v3/contents/generations/tasks/t-1",
			func(public string) string {
				return "doubao-seedance-" + strings.Replace(strings.TrimPrefix(public, "gamma-"), "2.5", "2-5-260628", 1)
			},
		},
	} {
		for _, model := range modelsOf(t, row.family) {
			o, err := rawjson.Index([]byte(`{"model":"`+model+`","x":1.0}`), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			ask := func(c upstream.Call) {
				t.Helper()
				c.Model = model
				reply, err := parts.Router.Do(t.Context(), &c)
				if err != nil {
					t.Fatalf("%s: %v", model, err)
				}
				if err := reply.Body.Close(); err != nil || reply.Channel != row.channel {
					t.Errorf("%s: channel %s, %v", model, reply.Channel, err)
				}
			}
			ask(upstream.Call{Op: upstream.SubmitVideo, Body: upstream.ObjectBody(o)})
			if uri, body, key := row.vendor.got(); uri != row.submit || body != `{"model":"`+row.theirs(model)+`","x":1.0}` || key != "Bearer "+row.key {
				t.Errorf("%s: %s %s %s", model, key, uri, body)
			}
			ask(upstream.Call{Op: upstream.PollVideo, TaskID: "t-1", Channel: row.channel})
			if uri, body, key := row.vendor.got(); uri != row.poll || body != "" || key != "Bearer "+row.key {
				t.Errorf("%s: %s %s %s", model, key, uri, body)
			}
		}
	}
}

// modelsOf are the public ids of a family.
func modelsOf(t *testing.T, family string) []string {
	t.Helper()
	for _, f := range videoapi.Families() {
		if f.Name == family && len(f.Models) > 0 {
			return f.Models
		}
	}
	t.Fatalf("the family %s has no models", family)
	return nil
}

// curl sends what a printed curl command would.
func curl(t *testing.T, command string) (int, http.Header, string) {
	t.Helper()
	address := regexp.MustCompile(`http://\S+`).FindString(command)
	method, body := http.MethodGet, ""
	if m := regexp.MustCompile(`-d '([^']*)'`).FindStringSubmatch(command); m != nil {
		method, body = http.MethodPost, m[1]
	}
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`-H "([^:"]+): ([^"]+)"`).FindAllStringSubmatch(command, -1) {
		req.Header.Set(m[1], m[2])
	}
	resp, err := openapitest.Client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// printedCurls are the commands of a banner, their lines joined.
func printedCurls(banner string) []string {
	return regexp.MustCompile(`(?m)^  curl .*$`).FindAllString(strings.ReplaceAll(banner, "\\\n", " "), -1)
}

func TestTheDemosCommandsWorkAsPrinted(t *testing.T) {
	i := start(t, nil, "--demo")
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
	key := regexp.MustCompile(`sk-\w+`).FindString(curls[0])
	status, body = i.ask(http.MethodGet, "/v1/receipts/"+header.Get("X-Request-Id"), key, "")
	if status != 200 || !strings.Contains(body, `"reason":"complete"`) {
		t.Errorf("the receipt is %d %s", status, body)
	}
}

func TestTheDemoSaysThatItIsSimulated(t *testing.T) {
	i := start(t, nil, "--demo")
	if banner := i.stdout.String(); !strings.Contains(banner, "every answer is simulated, and nothing leaves this process") || strings.Contains(banner, "allow_private") {
		t.Errorf("the banner does not say so:\n%s", banner)
	}
}

func TestEveryStartOfTheDemoHasAFreshKey(t *testing.T) {
	key := regexp.MustCompile(`sk-\w+`)
	a, b := start(t, nil, "--demo"), start(t, nil, "--demo")
	first, second := key.FindString(a.stdout.String()), key.FindString(b.stdout.String())
	if first == second || first == "" {
		t.Errorf("keys %q and %q", first, second)
	}
	if status, body := b.ask(http.MethodGet, "/v1/models", first, ""); status != 401 {
		t.Errorf("the other server's key got %d %s", status, body)
	}
}

func TestTheDemoRunsWhereNothingCanBeWritten(t *testing.T) {
	i := start(t, nil, "--demo", "--data", file(t, "a file, not a directory"))
	if i.admin != adminOff || !strings.Contains(i.stdout.String(), "Warning: the admin API is off") {
		t.Errorf("the banner is\n%s", i.stdout)
	}
}
