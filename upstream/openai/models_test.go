package openai_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// listed are the ids of the list of a vendor behind a handler.
func listed(t *testing.T, vendor http.Handler, path string) (string, error) {
	t.Helper()
	d := vendortest.New(t, openai.New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor) + path, Keys: vendortest.Keys("sk-vendor-key-1")})
	lister, ok := upstream.As[upstream.Lister](d)
	if !ok {
		t.Fatal("the driver has no list")
	}
	list, err := lister.ListModels(t.Context())
	if err != nil {
		return "", err
	}
	var ids []string
	for _, m := range list.Models {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " "), nil
}

func TestAListIsAskedForWithKeyAndPages(t *testing.T) {
	var asked []string
	vendor := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		page := map[string]string{"": `{"data":[{"id":"a"}],"has_more":true,"last_id":"a"}`, "a": `{"data":[{"id":"b"}],"has_more":true,"last_id":"b"}`}[r.URL.Query().Get("after")]
		if page == "" { // the same again and again
			page = `{"data":[{"id":"b"}],"has_more":true,"last_id":"c"}`
		}
		_, _ = w.Write([]byte(page))
	})
	got, err := listed(t, vendor, "/openai/v1")
	want := []string{
		"GET /openai/v1/models Bearer sk-vendor-key-1", "GET /openai/v1/models?after=a Bearer sk-vendor-key-1", "GET /openai/v1/models?after=b Bearer sk-vendor-key-1",
	}
	if err != nil || got != "a b" || !slices.Equal(asked, want) {
		t.Errorf("got %q, error %v, asked %q", got, err, asked)
	}
}

func TestOllamaIsAskedForItsOwnListWhereItHasNoOther(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/tags", vendortest.Responds(200, nil, `{"models":[{"name":"qwen3:8b"}]}`))
	if got, err := listed(t, mux, "/v1"); err != nil || got != "qwen3:8b" {
		t.Errorf("got %q, error %v", got, err)
	}
	var f *upstream.Failure
	if _, err := listed(t, http.NotFoundHandler(), "/v1"); !errors.As(err, &f) || f.Status != 404 {
		t.Errorf("without either the error is %v", err)
	}
}

// A key that may not see the list may still make calls.
func TestAListSaysNothingOfItsKeys(t *testing.T) {
	vendor := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/models" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(r.Header.Get("Authorization")))
	})
	d := vendortest.New(t, openai.New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor), Keys: vendortest.Keys("sk-one", "sk-two")})
	lister, _ := upstream.As[upstream.Lister](d)
	for range 5 {
		if _, err := lister.ListModels(t.Context()); err == nil || strings.Contains(err.Error(), "sk-one") {
			t.Fatalf("the error is %v", err)
		}
	}
	var used []string
	for range 2 {
		_, got := vendortest.Answer(t, d, &upstream.Call{Op: upstream.ChatCompletion, Model: "m", Body: vendortest.Body(t, `{"model":"m"}`)})
		used = append(used, got)
	}
	if want := []string{"Bearer sk-one", "Bearer sk-two"}; !slices.Equal(used, want) {
		t.Errorf("calls used the keys %q, want %q", used, want)
	}
}
