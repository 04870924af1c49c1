package mcp_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// onAPI are uses of the tools as requests of the API: a path and a JSON body.
var onAPI = map[string][2]string{
	"a chat": {"/v1/chat/completions", `{"model":"sim-chat","messages":[{"role":"user","content":"Hello"}],"max_tokens":50}`},
	"a chat that thinks": {"/v1/chat/completions", `{"model":"delta-k3","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}],
		"response_format":{"type":"json_object"}}`},
	"a picture of alpha": {"/v1/images/generations", `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"A boat"}]}]},
		"parameters":{"size":"1280*720","seed":7,"negative_prompt":"rain"}}`},
	"pictures of imagegen": {"/v1/images/generations", `{"model":"imagegen-2","prompt":"A boat","n":2,"size":"1024x1024","quality":"low"}`},
	"a video from text":    {"/v1/videos/generations", `{"model":"beta2.6-t2v","input":{"prompt":"Rain"},"duration":4,"resolution":"1080p","aspect_ratio":"9:16"}`},
	"a video of the gamma family": {"/v1/videos/generations", `{"model":"gamma-2-0-260128","content":[{"type":"text","text":"Rain"},
		{"type":"image_url","image_url":{"url":"https://example.com/a.png"},"role":"first_frame"}],"duration":5,"resolution":"720p","generate_audio":true,"seed":3}`},
	"embeddings":           {"/v1/embeddings", `{"model":"text-embedding-v4","input":["one","two"],"dimensions":64}`},
	"a ranking":            {"/v1/rerank", `{"model":"rerank-v3.5","query":"two","documents":["one","two"],"top_n":1}`},
	"speech in a WAV file": {"/v1/audio/speech", `{"model":"alpha3-tts-flash","input":"Hello","response_format":"wav","voice":"Cherry"}`},
}

// post sends a request of the API, and gives what it cost in the end.
func (s *fixture) post(t *testing.T, session *sdk.ClientSession, path, body string) billing.Money {
	t.Helper()
	before := s.Posted(t)
	a := s.do(t, http.MethodPost, s.api+path, body, "Accept: */*")
	if a.status/100 != 2 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if path == "/v1/videos/generations" {
		var record struct{ ID string }
		if err := json.Unmarshal([]byte(a.body), &record); err != nil {
			t.Fatal(err)
		}
		callTool(t, session, "get_video", args{"id": record.ID, "wait": true})
	}
	return before - s.Posted(t)
}

// TestEachUseOfAToolIsPaidOnceAsItWasEstimated makes every use twice with its label. Its price
// is that of the estimate, of the result and of the API. Its schemas let arguments and result
// pass. The repetition is answered with what was paid for.
func TestEachUseOfAToolIsPaidOnceAsItWasEstimated(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t)
	in, out := schemas(t, session)
	unused := maps.Clone(priced)
	for name, u := range toolCalls(t) {
		delete(unused, u.args["model"].(string))
		t.Run(name, func(t *testing.T) {
			before := s.Posted(t)
			estimate := callTool(t, session, "estimate_cost", args{"tool": u.tool, "arguments": u.args})
			if s.Posted(t) != before {
				t.Error("the estimate cost something")
			}
			u.args["task_label"] = name
			if err := in[u.tool].Validate(plain[any](t, u.args)); err != nil {
				t.Errorf("the schema does not let the arguments pass: %v", err)
			}
			r := callTool(t, session, u.tool, u.args)
			cost, charge := before-s.Posted(t), member[string](t, r, "charge")
			if cost == 0 || cost.String() != charge {
				t.Errorf("the tool cost %s and said %s", cost, charge)
			}
			if err := out[u.tool].Validate(r.StructuredContent); err != nil {
				t.Errorf("the schema does not let the result pass: %v", err)
			}
			if most := parse(t, member[string](t, estimate, "most")); cost > most || member[bool](t, estimate, "exact") && cost != most {
				t.Errorf("it cost %s, and was estimated as %v", cost, estimate.StructuredContent)
			}
			if request, ok := onAPI[name]; ok {
				if want := s.post(t, session, request[0], request[1]); cost != want {
					t.Errorf("the tool cost %s, the API %s", cost, want)
				}
			}
			before = s.Posted(t)
			again := callTool(t, session, u.tool, u.args)
			if s.Posted(t) != before || !member[bool](t, again, "replayed") || member[string](t, again, "request_id") != member[string](t, r, "request_id") {
				t.Errorf("the second call cost %s and said %v", before-s.Posted(t), again.StructuredContent)
			}
			if u.tool != "create_embeddings" && (len(r.Content) < 2 || !reflect.DeepEqual(r.Content[0], again.Content[0])) {
				t.Errorf("%d contents, and then others", len(r.Content))
			}
		})
	}
	if len(unused) > 0 {
		t.Errorf("no use of %v", unused)
	}
}

// schemas are those of the arguments and of the results, by tool. None of them lets
// anything pass.
func schemas(t *testing.T, session *sdk.ClientSession) (in, out map[string]*jsonschema.Resolved) {
	t.Helper()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	in, out = map[string]*jsonschema.Resolved{}, map[string]*jsonschema.Resolved{}
	for _, tool := range list.Tools {
		in[tool.Name], out[tool.Name] = resolved(t, tool.InputSchema), resolved(t, tool.OutputSchema)
		for _, s := range []*jsonschema.Resolved{in[tool.Name], out[tool.Name]} {
			if err := s.Validate(map[string]any{"nothing": 1}); err == nil {
				t.Errorf("a schema of %s lets anything pass", tool.Name)
			}
		}
	}
	return in, out
}

func resolved(t *testing.T, schema any) *jsonschema.Resolved {
	t.Helper()
	r, err := schemaOf(t, schema).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// schemaOf is a schema that came as any value.
func schemaOf(t *testing.T, schema any) *jsonschema.Schema {
	t.Helper()
	s := plain[jsonschema.Schema](t, schema)
	return &s
}

// plain is a value as JSON gives it.
func plain[T any](t *testing.T, v any) (p T) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestARepeatedVideoThatIsNotThereYetHasNoChargeYet(t *testing.T) {
	s := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{VideoTime: time.Hour})})
	s.unfinished = true
	session := s.client(t)
	rain := args{"model": "beta2.6-t2v", "prompt": "rain", "task_label": "rain"}
	first := callTool(t, session, "generate_video", rain)
	second := callTool(t, session, "generate_video", rain)
	for _, r := range []*sdk.CallToolResult{first, second} {
		members, _ := r.StructuredContent.(map[string]any)
		if members["charge"] != nil || members["usage"] != nil || strings.Contains(textOf(r), "charge") {
			t.Errorf("it says of the charge: %v %q", members, textOf(r))
		}
	}
	if !member[bool](t, second, "replayed") || member[string](t, second, "id") != member[string](t, first, "id") {
		t.Errorf("the second answer is %v", second.StructuredContent)
	}
}

func TestWaitingForAVideoTakesNoSlot(t *testing.T) {
	s := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{VideoTime: time.Hour}), gateway: func(o *gateway.Options) {
		o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: 1, MaxWait: time.Minute}
	}})
	s.unfinished = true
	session := s.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		rain := args{"model": "beta2.6-t2v", "prompt": "rain", "wait": true}
		_, _ = session.CallTool(ctx, &sdk.CallToolParams{Name: "generate_video", Arguments: rain}) // it is taken back
	}()
	for began := time.Now(); time.Since(began) < time.Minute; { // until the video is paid for
		if b, err := s.Ledger.Balance(t.Context(), "acme"); err != nil || b.Held > 0 {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	callTool(t, session, "chat", chatting)
	select {
	case <-waited:
		t.Error("the video was not waited for")
	default:
	}
	cancel()
	awaitSoon(t, "the end of the wait", waited)
}

func TestARepetitionOfACallThatRunsIsRefusedForAWhile(t *testing.T) {
	up := servertest.NewStream()
	s := newFixture(t, fixtureOptions{upstream: up})
	session := s.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan struct{})
	labelled := args{"model": "sim-chat", "prompt": "hi", "task_label": "a"}
	go func() {
		defer close(first)
		_, _ = session.CallTool(ctx, &sdk.CallToolParams{Name: "chat", Arguments: labelled}) // it is taken back
	}()
	awaitSoon(t, "the first call", up.Called)
	said, about := callFailing(t, session, "chat", labelled)
	if about["code"] != "idempotency_conflict" || !strings.Contains(said, "Wait 1 s. Call again after that with the same arguments and the same task_label.") {
		t.Errorf("it said %q %v", said, about)
	}
	cancel()
	up.End()
	awaitSoon(t, "the end of the first call", first)
}

func TestALabelOfOtherWorkIsRefused(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t)
	callTool(t, session, "chat", args{"model": "sim-chat", "prompt": "one", "task_label": "a"})
	before := s.Posted(t)
	said, about := callFailing(t, session, "chat", args{"model": "sim-chat", "prompt": "two", "task_label": "a"})
	if about["code"] != "idempotency_conflict" || !strings.Contains(said, "Use a new task_label") {
		t.Errorf("it said %q %v", said, about)
	}
	if s.Posted(t) != before {
		t.Error("the refused call cost something")
	}
	// Of other tools, one of which asks the same operation.
	callTool(t, session, "create_embeddings", args{"model": "text-embedding-v4", "input": []string{"x"}, "task_label": "a"})
	callTool(t, session, "generate_image", args{"model": "alpha-image-2.0", "prompt": "x", "task_label": "a"})
	callTool(t, session, "edit_image", args{"model": "alpha-image-edit", "prompt": "x", "images": []string{"https://example.com/a.png"}, "task_label": "a"})
}

func TestAProgressTokenDoesNotMakeAnotherCallOfALabelledOne(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t)
	p := &sdk.CallToolParams{Name: "chat", Arguments: args{"model": "sim-chat", "prompt": "one", "task_label": "a"}}
	if r, err := session.CallTool(t.Context(), p); err != nil || r.IsError {
		t.Fatal(r, err)
	}
	before := s.Posted(t)
	p.SetProgressToken("t")
	r, err := session.CallTool(t.Context(), p)
	if err != nil || r.IsError {
		t.Fatal(r, err)
	}
	if s.Posted(t) != before || !member[bool](t, r, "replayed") {
		t.Error("the call with a progress token was made again")
	}
}

func TestAProgramRepeatsACallByItsMetaOrItsHeader(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	call := map[string]any{"name": "chat", "arguments": args{"model": "sim-chat", "prompt": "one"}}
	for name, repeat := range map[string]func() map[string]any{
		"by _meta": func() map[string]any {
			call["_meta"] = map[string]any{"tollhouse.ai/idempotency-key": "m"}
			defer delete(call, "_meta")
			_, m := s.rpc(t, "tools/call", call)
			return m
		},
		"by the header": func() map[string]any {
			_, m := s.rpc(t, "tools/call", call, "Idempotency-Key: h")
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			first := repeat()
			before := s.Posted(t)
			second := repeat()
			if first["result"] == nil || s.Posted(t) != before {
				t.Errorf("the second call cost %s: %v", before-s.Posted(t), second)
			}
		})
	}
	_, m := s.rpc(t, "tools/call", call, "Idempotency-Key: "+strings.Repeat("x", 201))
	if r, _ := m["result"].(map[string]any); r["isError"] != true {
		t.Errorf("a key of 201 bytes gave %v", m)
	}
}
