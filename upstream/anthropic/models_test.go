package anthropic_test

import (
	"net/http"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

func TestTheListOfModelsIsReadPageByPage(t *testing.T) {
	vendor := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/v1/models" || r.Header.Get("X-Api-Key") != "sk-ant" || r.Header.Get("Anthropic-Version") == "" || q.Get("limit") != "1000" {
			t.Errorf("asked %s with %v", r.URL, r.Header)
		}
		page := `{"data":[{"type":"model","id":"claude-a","display_name":"A"}],"has_more":true,"first_id":"claude-a","last_id":"claude-a"}`
		if q.Get("after_id") == "claude-a" {
			page = `{"data":[{"type":"model","id":"claude-b"}],"has_more":false,"last_id":"claude-b"}`
		}
		_, _ = w.Write([]byte(page))
	})
	d := vendortest.New(t, anthropic.New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor), Keys: vendortest.Keys("sk-ant")})
	lister, ok := upstream.As[upstream.Lister](d)
	if !ok {
		t.Fatal("the driver has no list")
	}
	list, err := lister.ListModels(t.Context())
	if err != nil || len(list.Models) != 2 || list.Models[1] != (upstream.ListedModel{ID: "claude-b"}) {
		t.Errorf("got %+v, error %v", list, err)
	}
}
