package mcp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server/mcp"
)

func TestArgumentsAreCheckedAndFilledIn(t *testing.T) {
	for name, c := range map[string]struct {
		tool, args, want, wrong string
	}{
		"a text":                      {"chat", `{"model":"m","prompt":"hi"}`, `{"messages":[{"content":"hi","role":"user"}],"model":"m"}`, ""},
		"a text that is none":         {"chat", `{"model":"m","prompt":1}`, "", `"prompt" must be a text`},
		"a text that is empty":        {"chat", `{"model":"m","prompt":""}`, "", "not empty"},
		"a text that is missing":      {"chat", `{"model":"m"}`, "", `"prompt" is missing`},
		"no arguments":                {"chat", ``, "", `"model" is missing`},
		"a list instead of an object": {"chat", `[]`, "", "one JSON object"},
		"a name twice":                {"chat", `{"model":"m","model":"n","prompt":"hi"}`, "", "without duplicate names"},
		"an unknown name":             {"chat", `{"model":"m","prompt":"hi","promt":"hi"}`, "", `no argument "promt". This tool takes: model, prompt,`},
		"null is absent":              {"chat", `{"model":"m","prompt":"hi","system":null}`, `{"messages":[{"content":"hi","role":"user"}],"model":"m"}`, ""},
		"null is missing":             {"chat", `{"model":null,"prompt":"hi"}`, "", `"model" is missing`},
		"a number":                    {"chat", `{"model":"m","prompt":"hi","temperature":0.5,"max_tokens":9}`, `{"max_tokens":9,"messages":[{"content":"hi","role":"user"}],"model":"m","temperature":0.5}`, ""},
		"a number above":              {"chat", `{"model":"m","prompt":"hi","temperature":2.5}`, "", "from 0 to 2"},
		"a number below":              {"chat", `{"model":"m","prompt":"hi","temperature":-1}`, "", "from 0 to 2"},
		"a number as a text":          {"chat", `{"model":"m","prompt":"hi","temperature":"1"}`, "", "must be a number"},
		"5.0 is whole":                {"chat", `{"model":"m","prompt":"hi","max_tokens":5.0}`, `{"max_tokens":5,"messages":[{"content":"hi","role":"user"}],"model":"m"}`, ""},
		"5.5 is not":                  {"chat", `{"model":"m","prompt":"hi","max_tokens":5.5}`, "", "a whole number"},
		"1e400 is none":               {"chat", `{"model":"m","prompt":"hi","max_tokens":1e400}`, "", "a whole number"},
		"truth":                       {"chat", `{"model":"m","prompt":"hi","json":true}`, `{"messages":[{"content":"hi","role":"user"}],"model":"m","response_format":{"type":"json_object"}}`, ""},
		"no truth":                    {"chat", `{"model":"m","prompt":"hi","json":"yes"}`, "", "true or false"},
		"pictures to look at": {"chat", `{"model":"m","prompt":"hi","images":["https://x/y"]}`,
			`{"messages":[{"content":[{"text":"hi","type":"text"},{"image_url":{"url":"https://x/y"},"type":"image_url"}],"role":"user"}],"model":"m"}`, ""},
		"an empty list":            {"create_embeddings", `{"model":"m","input":[]}`, "", "1 to 256 texts"},
		"a list of numbers":        {"create_embeddings", `{"model":"m","input":[1]}`, "", "a list of texts"},
		"a text instead of a list": {"create_embeddings", `{"model":"m","input":"x"}`, "", "a list of texts"},
		"too long a list":          {"create_embeddings", `{"model":"m","input":[` + strings.Repeat(`"x",`, 256) + `"x"]}`, "", "1 to 256 texts"},
		"a word of the list":       {"text_to_speech", `{"model":"m","text":"x","format":"wav"}`, `{"input":"x","model":"m","response_format":"wav"}`, ""},
		"another word":             {"text_to_speech", `{"model":"m","text":"x","format":"flac"}`, "", "one of mp3, wav"},
		"too long a text":          {"text_to_speech", `{"model":"m","text":"` + strings.Repeat("x", 20_001) + `"}`, "", "at most 20000 characters"},
		"an object":                {"estimate_cost", `{"tool":"chat","arguments":{}}`, "", ""},
		"an object that is none":   {"estimate_cost", `{"tool":"chat","arguments":"{}"}`, "", "an object"},
		"no tool to estimate":      {"estimate_cost", `{"tool":"get_balance","arguments":{}}`, "", "one of chat,"},
		"a label":                  {"create_embeddings", `{"model":"m","input":["x"],"task_label":"a"}`, `{"input":["x"],"model":"m"}`, ""},
		"a label that is too long": {"create_embeddings", `{"model":"m","input":["x"],"task_label":"` + strings.Repeat("x", 129) + `"}`, "", "at most 128 characters"},
		"a label of what is free":  {"list_models", `{"task_label":"a"}`, "", `no argument "task_label"`},
		"a seed of gamma":          {"generate_video", `{"model":"gamma-2.5","prompt":"x","seed":4294967295}`, `{"content":[{"type":"text","text":"x"}],"model":"gamma-2.5","seed":4294967295}`, ""},
		"a video from a picture with sound": {"generate_video", `{"model":"beta2.6-i2v","prompt":"x","first_frame":"https://a/b","audio":"https://a/c","with_sound":false,"seed":1}`,
			`{"input":{"audio_url":"https://a/c","img_url":"https://a/b","prompt":"x"},"model":"beta2.6-i2v","parameters":{"audio":false,"seed":1}}`, ""},
		"a video from references": {"generate_video", `{"model":"beta2.6-r2v","prompt":"x","reference_images":["https://a/b"],"reference_videos":["https://a/c"],"duration":5}`,
			`{"duration":5,"input":{"prompt":"x","reference_urls":["https://a/b","https://a/c"]},"model":"beta2.6-r2v"}`, ""},
		"a video of all media": {"generate_video", `{"model":"beta2.7-i2v","first_frame":"https://a/b","last_frame":"https://a/c","reference_images":["https://a/d"],"reference_videos":["https://a/e"],"audio":"https://a/f"}`,
			`{"input":{"media":[{"type":"first_frame","url":"https://a/b"},{"type":"last_frame","url":"https://a/c"},{"type":"reference_image","url":"https://a/d"},` +
				`{"type":"reference_video","url":"https://a/e"},{"type":"driving_audio","url":"https://a/f"}]},"model":"beta2.7-i2v"}`, ""},
		"a video of all blocks": {"generate_video", `{"model":"gamma-2-0-260128","prompt":"x","first_frame":"https://a/b","last_frame":"https://a/c","reference_images":["https://a/d"],` +
			`"reference_videos":["https://a/e"],"audio":"https://a/f","with_sound":true,"aspect_ratio":"16:9","resolution":"720p"}`,
			`{"content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"https://a/b"},"role":"first_frame"},{"type":"image_url","image_url":{"url":"https://a/c"},"role":"last_frame"},` +
				`{"type":"image_url","image_url":{"url":"https://a/d"},"role":"reference_image"},{"type":"video_url","video_url":{"url":"https://a/e"},"role":"reference_video"},` +
				`{"type":"audio_url","audio_url":{"url":"https://a/f"}}],"generate_audio":true,"model":"gamma-2-0-260128","ratio":"16:9","resolution":"720p"}`, ""},
		"a seed that is too large":      {"generate_video", `{"model":"gamma-2.5","prompt":"x","seed":4294967296}`, "", "from 0 to 4294967295"},
		"a picture of an unknown model": {"generate_image", `{"model":"their-own","prompt":"x","size":"512*512"}`, `{"model":"their-own","prompt":"x","size":"512x512"}`, ""},
		"a picture of an unknown alpha": {"generate_image", `{"model":"alpha-new","prompt":"x"}`, `{"input":{"messages":[{"content":[{"text":"x"}],"role":"user"}]},"model":"alpha-new"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := mcp.RequestBody(c.tool, []byte(c.args))
			if c.wrong != "" {
				if !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("it gave %s, %v, want an error with %q", body, err, c.wrong)
				}
				return
			}
			if err != nil || string(body) != c.want {
				t.Errorf("it gave %s, %v\nwant %s", body, err, c.want)
			}
		})
	}
}

func FuzzArguments(f *testing.F) {
	all := mcp.Names()
	for i := range all {
		f.Add(i, []byte(`{"model":"beta2.7-r2v","prompt":"x","input":["x"],"text":"x","tool":"chat","arguments":{},"images":["aGk="]}`))
	}
	f.Fuzz(func(t *testing.T, i int, data []byte) {
		name := all[uint(i)%uint(len(all))]
		body, err := mcp.RequestBody(name, data)
		if err != nil {
			if !fault.Is(err, fault.InvalidRequest) && fault.From(err).HTTPStatus() != 400 {
				t.Errorf("%s of %q: %v", name, data, err)
			}
			return
		}
		if body == nil {
			return
		}
		again, err := mcp.RequestBody(name, data)
		if err != nil || string(again) != string(body) || !json.Valid(body) {
			t.Errorf("%s of %q gives %s, then %s, %v", name, data, body, again, err)
		}
	})
}

// TestTheToolsAreAsTheyWere compares what clients are told of the tools with
// testdata/tools.json: a change is to be seen. UPDATE=1 writes it anew.
func TestTheToolsAreAsTheyWere(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	list, err := s.client(t).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(list.Tools, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "tools.json")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("the tools are now\n%s", got)
	}
}
