package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// TestStoredResponsesOverHTTP is docs/reference/faults.md, row 110: what one account has stored is
// there for it alone, whatever is asked about it.
func TestStoredResponsesOverHTTP(t *testing.T) {
	s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesOn }})
	foreign := s.otherAccount(t)
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
		{"input", "GET", path + "/input_items", "", 200, `"content":"ho","id":"item_1_` + first.ID, "404 not_found"},
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

// vendorOfResponses is a vendor that keeps responses for its two accounts, and logs how it is
// asked for them.
type vendorOfResponses struct {
	mu      sync.Mutex
	made    map[string]string // id of a response to the key that made it
	asked   []string
	answers map[string]http.HandlerFunc // instead of its own, by the last word of the path
}

func (v *vendorOfResponses) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := r.Header.Get("Authorization")
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/responses/"), "/")
	w.Header().Set("Content-Type", "application/json")
	if r.Method == "POST" {
		id = fmt.Sprintf("resp_%d", len(v.made)+1)
		v.made[id] = key
		_, _ = fmt.Fprintf(w, `{"id":"%s","object":"response","created_at":1,"status":"completed","model":"vendor-m","store":true,"output":[{"id":"msg_%[1]s","type":"message","role":"assistant","content":[]}],"usage":{"input_tokens":1,"output_tokens":1}}`, id)
		return
	}
	v.asked = append(v.asked, r.Method+" "+r.URL.RequestURI()+" "+key)
	if answer := v.answers[r.Method+rest]; answer != nil {
		answer(w, r)
		return
	}
	if v.made[id] != key {
		w.WriteHeader(404)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"Response with id '%s' not found, ask vendor.example.","type":"invalid_request_error","param":null,"code":null}}`, id)
		return
	}
	switch {
	case r.Method == "DELETE":
		delete(v.made, id)
		v.made["deleted "+id] = ""
		_, _ = fmt.Fprintf(w, `{"id":"%s","object":"response","deleted":true}`, id)
	case rest == "input_items":
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"msg_0","type":"message","role":"user","content":[]}],"first_id":"msg_0","last_id":"msg_0","has_more":false}`)
	default:
		_, _ = fmt.Fprintf(w, `{"id":"%s","object":"response","status":"completed","model":"vendor-m","created_at":1,"output":[],"new":1.0}`, id)
	}
}

// TestWhatAVendorKeepsIsShownAndDeletedForItsOwner is docs/reference/faults.md, row 127: a vendor's
// account is shared by all who use its key.
func TestWhatAVendorKeepsIsShownAndDeletedForItsOwner(t *testing.T) {
	v := &vendorOfResponses{made: map[string]string{}}
	up, _ := vendorOfWire(t, upstream.Responses, v.ServeHTTP, secret.New("sk-1"), secret.New("sk-2"))
	s := newFixture(t, fixtureOptions{upstream: up, gateway: func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesNative }})
	foreign := s.otherAccount(t)
	for range 2 { // by one key and by the other
		if a := s.do(t, "POST", "/v1/responses", `{"model":"m","input":"hi"}`); a.status != 200 || !strings.Contains(a.body, `"store":true`) {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	paid := s.posted(t)
	for id, key := range maps.Clone(v.made) {
		path := "/v1/responses/" + id
		for _, row := range []struct {
			name, method, path string
			status             int
			want, asked        string
		}{
			{"show", "GET", path, 200, `{"id":"` + id + `","object":"response","status":"completed","model":"m","created_at":1,"output":[],"new":1.0}`, "GET " + path},
			{"as a stream", "GET", path + "?stream=true", 400, `"param":"stream"`, ""},
			{"the rest of a stream", "GET", path + "?starting_after=3", 400, `"param":"starting_after"`, ""},
			{"input", "GET", path + "/input_items", 200, `"data":[{"id":"msg_0"`, "GET " + path + "/input_items?limit=20&order=desc"},
			{"a page of it", "GET", path + "/input_items?limit=1&order=asc&after=msg_0&include[]=reasoning.encrypted_content&x=y", 200, `"data":[{"id":"msg_0"`, "GET " + path + "/input_items?after=msg_0&include%5B%5D=reasoning.encrypted_content&limit=1&order=asc"},
			{"with something else", "GET", path + "/input_items?include=all", 400, `"param":"include"`, ""},
			{"an item", "GET", "/v1/responses/msg_" + id, 404, `"code":"not_found"`, ""},
			{"cancel", "POST", path + "/cancel", 404, `"code":"not_found"`, ""},
			{"delete", "DELETE", path, 200, `{"id":"` + id + `","object":"response","deleted":true}`, "DELETE " + path},
			{"show again", "GET", path, 404, `"code":"not_found"`, ""},
		} {
			v.asked = nil
			if a := s.do(t, row.method, row.path, "", foreign); a.status < 400 || strings.Contains(a.body, "vendor") || len(v.asked) > 0 {
				t.Errorf("%s: another account: %d %s, asked %q", row.name, a.status, a.body, v.asked)
			}
			a := s.do(t, row.method, row.path, "")
			if a.status != row.status || !strings.Contains(a.body, row.want) {
				t.Errorf("%s: %d %s, want %d %s", row.name, a.status, a.body, row.status, row.want)
			}
			if got, want := strings.Join(v.asked, ","), row.asked+" "+key; got != strings.TrimSpace(want) && !(row.asked == "" && got == "") {
				t.Errorf("%s: the vendor was asked %q, want %q", row.name, got, want)
			}
		}
	}
	if got := s.posted(t); got != paid {
		t.Errorf("it cost %s", paid-got)
	}
}

func TestWhatAVendorSaysOfAResponseIsChecked(t *testing.T) {
	v := &vendorOfResponses{made: map[string]string{}, answers: map[string]http.HandlerFunc{}}
	up, _ := responsesVendor(t, v.ServeHTTP)
	s := newFixture(t, fixtureOptions{upstream: up, gateway: func(o *gateway.Options) {
		o.Responses.Mode, o.MaxAnswer = gateway.ResponsesNative, 1<<20
	}})
	const path = "/v1/responses/resp_1"
	if a := s.do(t, "POST", "/v1/responses", `{"model":"m","input":"hi"}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, row := range []struct {
		name, method, path string
		vendor             http.HandlerFunc
		status             int
		want               string
	}{
		{"another response", "GET", path, responds(200, jsonType, `{"id":"resp_2","object":"response","output":["secret"]}`), 502, `not the response that it was asked for`},
		{"a list for a response", "GET", path, responds(200, jsonType, `{"id":"resp_1","object":"list"}`), 502, `not the response`},
		{"no JSON", "GET", path, responds(200, jsonType, `<html>`), 502, `not JSON`},
		{"nothing", "GET", path, responds(200, jsonType, ``), 502, `is empty`},
		{"too much", "GET", path, responds(200, jsonType, `{"id":"resp_1","object":"response","x":"`+strings.Repeat("x", 2<<20)+`"}`), 502, `larger than the gateway allows`},
		{"its error", "GET", path, responds(200, jsonType, `{"id":"resp_1","object":"response","created_at":1,"status":"failed","output":[],"model":"v","error":{"code":"quota","message":"org-1 has no money"}}`), 200, `"code":"server_error"`},
		{"its fault", "GET", path, responds(500, jsonType, `{"error":{"message":"secret"}}`), 500, `"error"`},
		{"its key", "GET", path, responds(401, jsonType, `{"error":{"message":"secret sk-vendor","code":"invalid_api_key"}}`), 502, `"error"`},
		{"a list of words", "GET", path + "/input_items", responds(200, jsonType, `{"object":"list","data":["secret"]}`), 502, `not a list of items`},
		{"no list", "GET", path + "/input_items", responds(200, jsonType, `{"object":"list","data":{}}`), 502, `not a list of items`},
		{"a wrong page", "GET", path + "/input_items?after=x", responds(400, jsonType, `{"error":{"message":"No such item.","type":"invalid_request_error","param":"after","code":"bad"}}`), 400, `"param":"after"`},
		{"a failed deletion", "DELETE", path, responds(503, jsonType, `{}`), 503, `"error"`},
		{"which it can have again", "GET", path, nil, 200, `"id":"resp_1"`},
		{"a deletion of what the vendor has no more", "DELETE", path, responds(404, jsonType, `{"error":{"message":"secret"}}`), 200, `"deleted":true`},
		{"which is gone", "GET", path, nil, 404, `"not_found"`},
	} {
		_, rest, _ := strings.Cut(strings.TrimPrefix(row.path, path), "/")
		rest, _, _ = strings.Cut(rest, "?")
		v.answers = map[string]http.HandlerFunc{}
		if row.vendor != nil {
			v.answers[row.method+rest] = row.vendor
		}
		if a := s.do(t, row.method, row.path, ""); a.status != row.status || !strings.Contains(a.body, row.want) || strings.Contains(a.body, "secret") || strings.Contains(a.body, "org-1") {
			t.Errorf("%s: %d %.300s, want %d %s", row.name, a.status, a.body, row.status, row.want)
		}
	}
}
