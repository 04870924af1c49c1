package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// studio is a vendor of videos that notes the last call.
type studio struct {
	base string

	mu        sync.Mutex
	uri, body string
	key       string
}

func newStudio(t *testing.T) *studio {
	t.Helper()
	v := new(studio)
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.base = s.URL
	return v
}

// ServeHTTP takes everything.
func (v *studio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	v.uri, v.body, v.key = r.Method+" "+r.RequestURI, string(data), r.Header.Get("Authorization")
	v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"t-1","output":{"task_id":"t-1","task_status":"PENDING"}}`)
}

// got is what the vendor noted.
func (v *studio) got() (uri, body, key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.uri, v.body, v.key
}

func TestEveryModelOfVideosGoesToItsVendor(t *testing.T) {
	alibaba, volcano := newStudio(t), newStudio(t)
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
		vendor       *studio
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
	for _, f := range video.Families() {
		if f.Name == family && len(f.Models) > 0 {
			return f.Models
		}
	}
	t.Fatalf("the family %s has no models", family)
	return nil
}
