package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

func TestTheVendorOfAlphaPicturesIsAPreset(t *testing.T) {
	v := newEmbedder(t, `{"request_id":"theirs","output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://b.example/x.png"}]}}]},"usage":{"image_count":1}}`)
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
