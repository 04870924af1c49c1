package openapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/internal/openapitest"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/server/openapi"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// document is the document as JSON.
func document(t *testing.T) map[string]any {
	t.Helper()
	data, err := openapi.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// handler is one whose gateway keeps books, so that it has every route.
func handler(t *testing.T) *server.Handler {
	t.Helper()
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{}), Meter: memory.NewLedger(memory.LedgerOptions{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.New(g, server.Options{})
}

// each calls visit for every object in v with its place.
func each(v any, at string, visit func(at string, o map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(at, v)
		for name, member := range v {
			each(member, at+"/"+name, visit)
		}
	case []any:
		for i, element := range v {
			each(element, fmt.Sprintf("%s/%d", at, i), visit)
		}
	}
}

func TestTheDocumentSaysItsVersion(t *testing.T) {
	doc := document(t)
	if version := doc["info"].(map[string]any)["version"]; doc["openapi"] != "3.1.0" || version != "1.0.0" {
		t.Errorf("OpenAPI %v, version %v", doc["openapi"], version)
	}
}

func TestTheDocumentHasExactlyTheRoutesOfTheHandler(t *testing.T) {
	spec, err := openapitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, o := range spec.Operations() {
		described = append(described, o.Method+" "+o.Path)
	}
	var served []string
	for _, r := range handler(t).Routes() {
		served = append(served, r.Method+" "+r.Path)
	}
	slices.Sort(described)
	slices.Sort(served)
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("the handler's routes (-) and the document's (+):\n%s", diff)
	}
}

func TestTheHandlerAnswersEveryRouteThatItNames(t *testing.T) {
	h := handler(t)
	for _, r := range h.Routes() {
		w := httptest.NewRecorder()
		path := strings.Replace(r.Path, "{id}", "x", 1)
		h.ServeHTTP(w, httptest.NewRequest(r.Method, path, nil))
		if w.Code == http.StatusMethodNotAllowed || strings.Contains(w.Body.String(), "Not found: ") {
			t.Errorf("%s %s: %d %s", r.Method, r.Path, w.Code, w.Body)
		}
	}
}

func TestEveryReferenceOfTheDocumentLeadsSomewhereAndEveryPartIsUsed(t *testing.T) {
	doc := document(t)
	used := make(map[string]bool)
	each(doc, "", func(at string, o map[string]any) {
		if ref, ok := o["$ref"].(string); ok {
			used[ref] = true
		}
	})
	defined := make(map[string]bool)
	for kind, parts := range doc["components"].(map[string]any) {
		for name := range parts.(map[string]any) {
			if kind != "securitySchemes" {
				defined["#/components/"+kind+"/"+name] = true
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(defined)), slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("defined (-) and used (+):\n%s", diff)
	}
}

func TestEveryOperationHasExamplesAndErrors(t *testing.T) {
	doc := document(t)
	for path, item := range doc["paths"].(map[string]any) {
		for method, raw := range item.(map[string]any) {
			o, at := raw.(map[string]any), method+" "+path
			for _, name := range []string{"operationId", "summary", "description"} {
				if text, _ := o[name].(string); text == "" {
					t.Errorf("%s has no %s", at, name)
				}
			}
			responses := o["responses"].(map[string]any)
			if strings.HasPrefix(path, "/v1/") {
				for _, status := range []string{"200", "401", "403", "429", "500", "503", "default"} {
					if responses[status] == nil {
						t.Errorf("%s has no response %s", at, status)
					}
				}
			}
			if body, ok := o["requestBody"]; ok == (method != "post") {
				t.Errorf("%s: body %v", at, body)
			}
		}
	}
	bytesOnly := regexp.MustCompile(`^audio/`)
	each(doc, "", func(at string, o map[string]any) {
		content, ok := o["content"].(map[string]any)
		for media, m := range content {
			m, is := m.(map[string]any)
			if ok && is && m["schema"] != nil && m["examples"] == nil && !bytesOnly.MatchString(media) {
				t.Errorf("%s/content/%s has no example", at, media)
			}
		}
	})
}

func TestEveryExampleIsAsItsSchemaSays(t *testing.T) {
	spec, err := openapitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	err = spec.Examples(func(at string, err error) {
		count++
		if err != nil {
			t.Errorf("%s: %v", at, err)
		}
	})
	if err != nil || count < 100 {
		t.Errorf("%d examples (%v)", count, err)
	}
}

func TestNamesOfOperationsAreUnique(t *testing.T) {
	seen := make(map[string]string)
	each(document(t)["paths"], "", func(at string, o map[string]any) {
		if id, ok := o["operationId"].(string); ok {
			if seen[id] != "" {
				t.Errorf("%s and %s are both %s", seen[id], at, id)
			}
			seen[id] = at
		}
	})
}

func TestTheDocumentIsServedWithoutAKey(t *testing.T) {
	h := handler(t)
	want, err := openapi.JSON()
	if err != nil {
		t.Fatal(err)
	}
	get := func(method string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/openapi.json", nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	w := get(http.MethodGet)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || !bytes.Equal(w.Body.Bytes(), want) {
		t.Errorf("%d %v, %d bytes", w.Code, w.Header(), w.Body.Len())
	}
	tag := w.Header().Get("ETag")
	if again := get(http.MethodGet, "If-None-Match", "W/"+tag); tag == "" || again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("again: %d, %d bytes", again.Code, again.Body.Len())
	}
	if other := get(http.MethodGet, "If-None-Match", `"x"`); other.Code != http.StatusOK {
		t.Errorf("with the tag of another document: %d", other.Code)
	}
	if post := get(http.MethodPost); post.Code != http.StatusMethodNotAllowed || post.Header().Get("Allow") != "GET" {
		t.Errorf("POST: %d %v", post.Code, post.Header())
	}
	server := httptest.NewServer(h)
	defer server.Close()
	head, err := openapitest.Client(t).Head(server.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(head.Body.Close()); err != nil || head.ContentLength != int64(len(want)) {
		t.Errorf("HEAD tells a length of %d, not %d (%v)", head.ContentLength, len(want), err)
	}
}
