package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
)

// TestStoredResponsesOverHTTP is docs/faults.md, row 110: what one account has stored is
// there for it alone, whatever is asked about it.
func TestStoredResponsesOverHTTP(t *testing.T) {
	s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesOn }})
	foreign := s.stranger(t)
	made := s.do(t, "POST", "/v1/responses", `{"model":"m","input":[{"role":"user","content":"hi"},{"role":"user","content":"ho"}]}`)
	var first struct {
		ID     string
		Store  bool
		Output []struct{ ID string }
	}
	if err := json.Unmarshal([]byte(made.body), &first); err != nil || made.status != 200 || !first.Store || len(first.Output) == 0 {
		t.Fatalf("%d %s, %v", made.status, made.body, err)
	}
	path := "/v1/responses/" + first.ID
	follow := `{"model":"m","input":"x","previous_response_id":"` + first.ID + `"}`
	refer := `{"model":"m","input":[{"type":"item_reference","id":"` + first.Output[0].ID + `"},{"role":"user","content":"x"}]}`
	rows := []struct {
		name, method, path, body string
		status                   int // of the owner's
		want                     string
		foreign                  string // what another account gets
	}{
		{"show", "GET", path, "", 200, strings.TrimSpace(made.body), "404 not_found"},
		{"show as a stream", "GET", path + "?stream=true", "", 400, `"param":"stream"`, "400"},
		{"input", "GET", path + "/input_items", "", 200, `"ho","id":"item_1_` + first.ID, "404 not_found"},
		{"input in pages", "GET", path + "/input_items?limit=1&order=asc&after=item_0_" + first.ID, "", 200, `"has_more":false`, "404 not_found"},
		{"too many", "GET", path + "/input_items?limit=101", "", 400, `"param":"limit"`, "400"},
		{"no number", "GET", path + "/input_items?limit=x", "", 400, `"param":"limit"`, "400"},
		{"no order", "GET", path + "/input_items?order=up", "", 400, `"param":"order"`, "400"},
		{"after nothing", "GET", path + "/input_items?after=x", "", 400, `"param":"after"`, "404 not_found"},
		{"go on", "POST", "/v1/responses", follow, 200, `"previous_response_id":"` + first.ID + `"`, "400 previous_response_not_found"},
		{"refer to an item", "POST", "/v1/responses", refer, 200, `"store":true`, "400 item_not_found"},
		{"count", "POST", "/v1/responses/input_tokens", follow, 200, `"input_tokens":`, "400 previous_response_not_found"},
		{"delete", "DELETE", path, "", 200, `{"id":"` + first.ID + `","object":"response","deleted":true}`, "404 not_found"},
		{"show again", "GET", path, "", 404, `"code":"not_found"`, "404 not_found"},
		{"delete again", "DELETE", path, "", 404, `"code":"not_found"`, "404 not_found"},
		{"go on again", "POST", "/v1/responses", follow, 400, `"code":"previous_response_not_found"`, "400 previous_response_not_found"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			status, code, _ := strings.Cut(row.foreign, " ")
			if a := s.do(t, row.method, row.path, row.body, foreign); status != map[int]string{400: "400", 404: "404"}[a.status] || !strings.Contains(a.body, `"code":"`+code) || strings.Contains(a.body, "hi") {
				t.Errorf("another account: %d %s", a.status, a.body)
			}
			if a := s.do(t, row.method, row.path, row.body); a.status != row.status || !strings.Contains(a.body, row.want) {
				t.Errorf("its owner: %d %s, want %d %s", a.status, a.body, row.status, row.want)
			}
		})
	}
	for _, operation := range []string{"/v1/responses/compact", path + "/cancel"} {
		if a := s.do(t, "POST", operation, `{"model":"m"}`); a.status != 404 || a.header.Get("Allow") != "" {
			t.Errorf("%s: %d, Allow: %s", operation, a.status, a.header.Get("Allow"))
		}
	}
	if a := s.do(t, "PUT", path, ""); a.status != 405 || a.header.Get("Allow") != "GET, DELETE" {
		t.Errorf("another method: %d, Allow: %s", a.status, a.header.Get("Allow"))
	}
}

func TestWithoutAStoreThereIsNoResponseToShow(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	made := s.do(t, "POST", "/v1/responses", `{"model":"m","input":"hi","store":true}`)
	if made.status != 200 || !strings.Contains(made.body, `"store":false`) {
		t.Errorf("%d %s", made.status, made.body)
	}
	for _, row := range []struct{ method, path string }{{"GET", "/v1/responses/resp_1"}, {"DELETE", "/v1/responses/resp_1"}, {"GET", "/v1/responses/resp_1/input_items"}} {
		if a := s.do(t, row.method, row.path, ""); a.status != 404 || !strings.Contains(a.body, `"code":"not_found"`) || !strings.Contains(a.body, "does not show or delete stored responses") {
			t.Errorf("%s %s: %d %s", row.method, row.path, a.status, a.body)
		}
	}
}
