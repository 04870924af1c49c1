package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/video"
)

// film is the model of the tests, which a vendor on this machine makes.
const film = "gamma-2-0-260128"

// filmer is a vendor of videos whose tasks are in one state from the beginning.
func filmer(t *testing.T, state string) (base string) {
	t.Helper()
	var tasks atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			_, _ = fmt.Fprintf(w, `{"id":"cgt-%d"}`, tasks.Add(1))
			return
		}
		id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		end := `"content":{"video_url":"https://cdn.example/a.mp4"},"usage":{"completion_tokens":1000,"total_tokens":1000}`
		if state == "failed" {
			end = `"error":{"code":"OutputVideoSensitiveContentDetected","message":"The output was flagged."}`
		}
		_, _ = fmt.Fprintf(w, `{"id":"%s","model":"theirs","status":"%s",%s}`, id, state, end)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// filmed is a file with that vendor.
func filmed(base string) string {
	return `channels:
  - {name: film, driver: ark, base_url: "` + base + `", models: {gamma-2-0-260128: theirs}}
prices:
  gamma-2-0-260128: {output: "7.00"}
accounts:
  - {name: acme, credit: "25.00", keys: [{env: ACME_KEY}]}
video: {poll: 1ms}
`
}

// submitVideo submits a task whose end webhook is told of, and waits for it.
func (i *instance) submitVideo(key, model, prompt, webhook string) *video.Response {
	i.t.Helper()
	body := fmt.Sprintf(`{"model":%q,%s,"duration":5,"resolution":"720p","webhook_url":%q,"wait":true}`, model, prompt, webhook)
	status, answer := i.ask(http.MethodPost, videosPath, key, body)
	r := new(video.Response)
	if err := json.Unmarshal([]byte(answer), r); err != nil || status/100 != 2 || !r.Status.Terminal() {
		i.t.Fatalf("%s: %d %.500s, %v", model, status, answer, err)
	}
	return r
}

const (
	videosPath = "/v1/videos/generations"
	betaBoat   = `"input":{"prompt":"A boat."}`
	gammaBoat  = `"content":[{"type":"text","text":"A boat."}]`
)

func TestTheDemoShowsTheWholeLifeOfAVideo(t *testing.T) {
	i := startEdited(t, hasty, nil, "--demo")
	key := demoKey(t, i)
	url, got := receiver(t, http.StatusOK)
	for n, row := range []struct{ model, prompt string }{{"beta2.6-t2v", betaBoat}, {film, gammaBoat}} {
		r := i.submitVideo(key, row.model, row.prompt, url)
		if r.Status != video.Succeeded || r.Model != row.model || len(r.Content) != 1 || !strings.HasPrefix(r.Content[0].VideoURL, "data:video/mp4;base64,") {
			t.Fatalf("%s: %+v", row.model, r)
		}
		h := <-got
		verified(t, secretOf(t, i, demoAccount), h)
		if !strings.Contains(string(h.body), `"type":"video.generation.succeeded","data":{"id":"`+r.ID+`"`) {
			t.Errorf("%s: the webhook is %.200s", row.model, h.body)
		}
		if n == 0 {
			if _, body := i.ask(http.MethodGet, "/v1/balance", key, ""); !strings.Contains(body, `"posted":"24.50","held":"0.00"`) {
				t.Errorf("after 5 seconds at 0.10 the balance is %s", body)
			}
		}
	}
}
