package anthropic

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

const hello = `{"model":"claude-a", "max_tokens":16,"messages":[{"role":"user","content":"hi"}]}`

func call(t testing.TB, stream bool) *upstream.Call {
	t.Helper()
	return &upstream.Call{
		Op: upstream.Messages, Model: "claude-a", Stream: stream, RequestID: "req_1", ContentType: "application/json; charset=utf-8",
		Body: vendortest.Body(t, hello),
	}
}

// Of the client's headers only those of the vendor's protocol travel.
func TestTheRequestHasNothingOfTheClientButTheVendorsOwn(t *testing.T) {
	client := http.Header{
		"X-Api-Key": {"sk-of-the-client"}, "Authorization": {"Bearer sk-of-the-client"}, "Cookie": {"c=1"}, "X-Anthropic-Beta": {"x"},
		"X-Stainless-Lang": {"js"}, "User-Agent": {"a client"}, "Accept": {"image/png"}, "Content-Type": {"text/plain"}, "Anthropics": {"x"},
	}
	with := func(more http.Header) http.Header {
		h := client.Clone()
		maps.Copy(h, more)
		return h
	}
	key := []secret.String{secret.New("sk-1")}
	for name, row := range map[string]struct {
		o      upstream.DriverOptions
		op     upstream.Op
		stream bool
		header http.Header
		query  string
		path   string
		want   http.Header
	}{
		"messages": {
			upstream.DriverOptions{Keys: key}, upstream.Messages, false, client, "", "/v1/messages",
			http.Header{"Accept": {"application/json"}, "X-Api-Key": {"sk-1"}, "Anthropic-Version": {"2023-06-01"}},
		},
		"messages as a stream": {
			upstream.DriverOptions{Keys: key}, upstream.Messages, true, nil, "beta=true", "/v1/messages?beta=true",
			http.Header{"Accept": {"text/event-stream"}, "X-Api-Key": {"sk-1"}, "Anthropic-Version": {"2023-06-01"}},
		},
		"a count of tokens": {
			upstream.DriverOptions{Keys: key}, upstream.CountTokens, false, client, "beta=true", "/v1/messages/count_tokens?beta=true",
			http.Header{"Accept": {"application/json"}, "X-Api-Key": {"sk-1"}, "Anthropic-Version": {"2023-06-01"}},
		},
		"a bearer token": {
			upstream.DriverOptions{Keys: key, Auth: upstream.Auth{By: upstream.ByBearer}}, upstream.Messages, false, client, "", "/v1/messages",
			http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer sk-1"}, "Anthropic-Version": {"2023-06-01"}},
		},
		"no key": {
			upstream.DriverOptions{Keys: []secret.String{}}, upstream.Messages, false, client, "", "/v1/messages",
			http.Header{"Accept": {"application/json"}, "Anthropic-Version": {"2023-06-01"}},
		},
		"what the vendor's clients say": {
			upstream.DriverOptions{Keys: key}, upstream.Messages, false,
			with(http.Header{"Anthropic-Version": {"2099-01-01"}, "Anthropic-Beta": {"a,b", "c"}, "anthropic-later": {"d"}}), "", "/v1/messages",
			http.Header{
				"Accept": {"application/json"}, "X-Api-Key": {"sk-1"}, "Anthropic-Version": {"2099-01-01"},
				"Anthropic-Beta": {"a,b", "c"}, "Anthropic-Later": {"d"},
			},
		},
		"an empty version": {
			upstream.DriverOptions{Keys: key}, upstream.Messages, false, with(http.Header{"Anthropic-Version": {""}}), "", "/v1/messages",
			http.Header{"Accept": {"application/json"}, "X-Api-Key": {"sk-1"}, "Anthropic-Version": {"2023-06-01"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got vendortest.Seen
			up := newDriver(t, vendortest.Recording(&got, "{}"), row.o)
			c := call(t, row.stream)
			c.Op, c.Header, c.Query = row.op, row.header, row.query
			_, _ = up.Do(t.Context(), c)
			row.want.Set("Content-Type", "application/json")
			row.want.Set("User-Agent", "tollhouse")
			got.Header.Del("Content-Length")
			if diff := cmp.Diff(row.want, got.Header); diff != "" {
				t.Error(diff)
			}
			if got.Method != "POST" || got.URI != row.path || got.Body != hello {
				t.Errorf("%s %s: %s", got.Method, got.URI, got.Body)
			}
		})
	}
}

func TestACallLeavesNoTraceInTheNext(t *testing.T) {
	var paths []string
	up := newDriver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.RequestURI+" "+strings.Join(r.Header["Anthropic-Beta"], ";"))
		vendortest.Responds(200, nil, "{}")(w, r)
	}), upstream.DriverOptions{})
	first := call(t, false)
	first.Query, first.Header = "beta=true", http.Header{"Anthropic-Beta": {"a"}}
	for _, c := range []*upstream.Call{first, call(t, false)} {
		reply, err := up.Do(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		_ = reply.Body.Close()
	}
	if diff := cmp.Diff([]string{"/v1/messages?beta=true a", "/v1/messages "}, paths); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(http.Header{"Anthropic-Beta": {"a"}}, first.Header); diff != "" {
		t.Errorf("the call was modified: %s", diff)
	}
}

// TestAnErrorAfterTheFirstEventPassesAsItIs says that only the HTTP status
// is the driver's business once a stream has begun.
func TestAnErrorAfterTheFirstEventPassesAsItIs(t *testing.T) {
	for name, body := range map[string]string{
		"in the middle": everyEvent[0] + event("error", `"error":{"type":"overloaded_error","message":"Overloaded"}`),
		"at once":       event("error", `"error":{"type":"api_error","message":"sk"}`),
	} {
		for _, kind := range []string{"text/event-stream", "text/event-stream; charset=utf-8"} {
			reply, err := newDriver(t, vendortest.Responds(200, map[string]string{"Content-Type": kind, "Request-Id": "req_theirs", "Set-Cookie": "a=b"}, body), upstream.DriverOptions{}).Do(t.Context(), call(t, true))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			data, err := io.ReadAll(reply.Body)
			if errors.Join(err, reply.Body.Close()) != nil || string(data) != body {
				t.Errorf("%s: %q, %v", name, data, err)
			}
			if diff := cmp.Diff(http.Header{"Content-Type": {kind}}, reply.Header); diff != "" || reply.Status != 200 {
				t.Errorf("%s: status %d, %s", name, reply.Status, diff)
			}
		}
	}
}

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
	d := vendortest.New(t, New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor), Keys: vendortest.Keys("sk-ant")})
	lister, ok := upstream.As[upstream.Lister](d)
	if !ok {
		t.Fatal("the driver has no list")
	}
	list, err := lister.ListModels(t.Context())
	if err != nil || len(list.Models) != 2 || list.Models[1] != (upstream.ListedModel{ID: "claude-b"}) {
		t.Errorf("got %+v, error %v", list, err)
	}
}
