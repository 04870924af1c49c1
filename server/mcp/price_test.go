package mcp_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
)

// same are the uses of the tools as requests of the API: a path, and a JSON body
// or the fields of a form, where "@" stands before a file.
var same = map[string]struct {
	path, body string
	form       [][2]string
}{
	"a chat": {"/v1/chat/completions", `{"model":"sim-chat","messages":[{"role":"user","content":"Hello"}],"max_tokens":50}`, nil},
	"a chat that thinks": {"/v1/chat/completions", `{"model":"delta-k3","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}],
		"response_format":{"type":"json_object"}}`, nil},
	"a picture of alpha": {"/v1/images/generations", `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"A boat"}]}]},
		"parameters":{"size":"1280*720","seed":7,"negative_prompt":"rain"}}`, nil},
	"pictures of imagegen": {"/v1/images/generations", `{"model":"imagegen-2","prompt":"A boat","n":2,"size":"1024x1024","quality":"low"}`, nil},
	"an edit by alpha": {"/v1/images/generations", `{"model":"alpha-image-edit","input":{"messages":[{"role":"user","content":[
		{"image":"https://example.com/a.png"},{"text":"Night"}]}]}}`, nil},
	"an edit by imagegen": {"/v1/images/edits", "", [][2]string{{"model", "imagegen-2"}, {"prompt", "Night"}, {"image", "@64"}, {"size", "1024x1024"}}},
	"an edit with a mask": {"/v1/images/edits", "", [][2]string{
		{"model", "imagegen-2"}, {"prompt", "Night"}, {"image[]", "@64"}, {"image[]", "@32"}, {"mask", "@64"}, {"n", "2"}, {"output_format", "png"},
	}},
	"a video from text": {"/v1/videos/generations", `{"model":"beta2.6-t2v","input":{"prompt":"Rain"},"duration":4,"resolution":"1080p","aspect_ratio":"9:16"}`, nil},
	"a video from a picture": {"/v1/videos/generations", `{"model":"beta2.6-i2v","input":{"prompt":"Rain","img_url":"https://example.com/a.png",
		"audio_url":"https://example.com/a.mp3"}}`, nil},
	"a video from references": {"/v1/videos/generations", `{"model":"beta2.6-r2v","input":{"prompt":"Rain","reference_urls":["https://example.com/a.mp4"]}}`, nil},
	"a video of the 2.7 layout": {"/v1/videos/generations", `{"model":"beta2.7-r2v","input":{"prompt":"Rain","media":[
		{"type":"reference_image","url":"https://example.com/a.png"}]}}`, nil},
	"a video of the gamma family": {"/v1/videos/generations", `{"model":"gamma-2-0-260128","content":[{"type":"text","text":"Rain"},
		{"type":"image_url","image_url":{"url":"https://example.com/a.png"},"role":"first_frame"}],"duration":5,"resolution":"720p","generate_audio":true,"seed":3}`, nil},
	"embeddings":                    {"/v1/embeddings", `{"model":"text-embedding-v4","input":["one","two"],"dimensions":64}`, nil},
	"speech in a WAV file":          {"/v1/audio/speech", `{"model":"alpha3-tts-flash","input":"Hello","response_format":"wav","voice":"Cherry"}`, nil},
	"speech as it is told":          {"/v1/audio/speech", `{"model":"alpha3-tts-instruct-flash","input":"Hello","instructions":"slowly"}`, nil},
	"more texts than one call take": {"/v1/embeddings", `{"model":"text-embedding-v4","input":[` + strings.Repeat(`"word",`, 24) + `"word"],"dimensions":64}`, nil},
}

// post sends the request of the API that is the same as a use, and gives what it
// cost in the end.
func (s *fixture) post(t *testing.T, name string) billing.Money {
	t.Helper()
	before := s.Posted(t)
	r := same[name]
	body, kind := r.body, "application/json"
	if r.form != nil {
		body, kind = formOf(t, r.form)
	}
	a := s.do(t, http.MethodPost, s.api+r.path, body, "Content-Type: "+kind, "Accept: */*")
	if a.status/100 != 2 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if r.path == "/v1/videos/generations" {
		var record struct{ ID string }
		if err := json.Unmarshal([]byte(a.body), &record); err != nil {
			t.Fatal(err)
		}
		callTool(t, s.client(t, nil), "get_video", args{"id": record.ID, "wait": true})
	}
	return before - s.Posted(t)
}

func formOf(t *testing.T, fields [][2]string) (body, kind string) {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, f := range fields {
		value, file := strings.CutPrefix(f[1], "@")
		if !file {
			if err := w.WriteField(f[0], value); err != nil {
				t.Fatal(err)
			}
			continue
		}
		part, err := w.CreateFormFile(f[0], "a.png")
		if err != nil {
			t.Fatal(err)
		}
		side := map[string]int{"32": 32, "64": 64}[value]
		_, data, _ := strings.Cut(pngURI(t, side), ",")
		content, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String(), w.FormDataContentType()
}

func TestAToolCallCostsWhatItSaysWhatWasEstimatedAndWhatTheAPICosts(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t, nil)
	all := toolCalls(t)
	if got, want := slices.Sorted(maps.Keys(same)), slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Fatalf("the table has %v, want %v", got, want)
	}
	for name, u := range all {
		t.Run(name, func(t *testing.T) {
			before := s.Posted(t)
			estimate := callTool(t, session, "estimate_cost", args{"tool": u.tool, "arguments": u.args})
			if s.Posted(t) != before {
				t.Error("the estimate cost something")
			}
			want := s.post(t, name)
			before = s.Posted(t)
			r := callTool(t, session, u.tool, u.args)
			got, charge := before-s.Posted(t), member[string](t, r, "charge")
			if got != want || want == 0 || got.String() != charge {
				t.Errorf("the tool cost %s and said %s, the API cost %s", got, charge, want)
			}
			if most := parse(t, member[string](t, estimate, "most")); got > most || member[bool](t, estimate, "exact") && got != most {
				t.Errorf("it cost %s, and was estimated as %v", got, estimate.StructuredContent)
			}
			if id := member[string](t, r, "request_id"); !strings.HasPrefix(id, "req_") {
				t.Errorf("request_id is %q", id)
			}
			if u.tool != "create_embeddings" && len(r.Content) < 2 {
				t.Errorf("there is nothing to see but %d contents", len(r.Content))
			}
		})
	}
}

func TestEveryPricedModelIsInTheTable(t *testing.T) {
	used := make(map[string]bool)
	for _, u := range toolCalls(t) {
		used[u.args["model"].(string)] = true
	}
	for id := range priced {
		if !used[id] {
			t.Errorf("no use of %s", id)
		}
	}
}
