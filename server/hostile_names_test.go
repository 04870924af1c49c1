package server_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/servertest"
)

// connectionLog listens on loopback, where nobody must come.
type connectionLog struct {
	address string
	seen    atomic.Int64
}

func newConnectionLog(t *testing.T) *connectionLog {
	t.Helper()
	b := new(connectionLog)
	b.address = servertest.Listen(t, func(net.Conn) { b.seen.Add(1) })
	return b
}

// linked are bodies with an address in every place where one may stand; URL
// stands for it. What no endpoint knows passes, and nobody may look at it.
var linked = map[string][]string{
	"/v1/chat/completions": {
		`{"model":"delta-k3","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"URL"}},{"type":"video_url","video_url":{"url":"URL"}},{"type":"audio_url","audio_url":{"url":"URL"}},` +
			`{"type":"input_audio","input_audio":{"data":"URL","format":"wav"}},{"type":"file","file":{"file_data":"URL","file_id":"URL","filename":"URL","file_url":"URL"}}]}]}`,
		`{"model":"delta-k3","messages":[{"role":"user","content":"URL"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"$ref":"URL","$schema":"URL"}}}],` +
			`"user":"URL","metadata":{"url":"URL"},"webhook_url":"URL","callback_url":"URL","web_search_options":{"url":"URL"},"mcp_servers":[{"url":"URL"}]}`,
		`{"model":"delta-k3","messages":[{"role":"user","content":"URL"}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"$ref":"URL#/a"}}}}`,
		`{"model":"delta-k3","messages":[{"role":"user","content":"URL"}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"$schema":"URL","$id":"URL","type":"object"}}}}`,
	},
	"/v1/messages": {
		`{"model":"delta-k3","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"URL"}}]}],"tools":[{"name":"f","input_schema":{"type":"object","$ref":"URL","$schema":"URL"}}]}`,
		`{"model":"delta-k3","max_tokens":5,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"URL"}}]}],"mcp_servers":[{"type":"url","url":"URL","name":"x"}],"container":"URL"}`,
	},
	"/v1/messages/count_tokens": {`{"model":"delta-k3","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"URL"}}]}]}`},
	responsesPath: {
		`{"model":"delta-k3","input":[{"role":"user","content":[{"type":"input_image","image_url":"URL"}]}],"instructions":"URL","user":"URL","metadata":{"url":"URL"},"webhook_url":"URL"}`,
		`{"model":"delta-k3","input":[{"role":"user","content":[{"type":"input_file","file_url":"URL"},{"type":"input_audio","audio_url":"URL"},{"type":"input_file","file_data":"URL","filename":"URL"}]}]}`,
		`{"model":"delta-k3","input":"a","tools":[{"type":"function","name":"f","parameters":{"$ref":"URL","$schema":"URL"}},{"type":"mcp","server_label":"x","server_url":"URL"}]}`,
		`{"model":"delta-k3","input":"a","text":{"format":{"type":"json_schema","name":"s","schema":{"$ref":"URL#/a"}}}}`,
	},
	countInputPath: {`{"model":"delta-k3","input":[{"role":"user","content":[{"type":"input_image","image_url":"URL"}]}]}`},
	generations: {
		`{"model":"imagegen-2","prompt":"URL","image":"URL","mask":"URL","user":"URL","webhook_url":"URL"}`,
		`{"model":"alpha-image-edit","input":{"messages":[{"role":"user","content":[{"image":"URL"},{"text":"a"}]}],"ref_img":"URL"},"parameters":{"image":"URL"}}`,
	},
	videos: {
		`{"model":"beta2.7-t2v","duration":5,"resolution":"720p","input":{"prompt":"a","audio_url":"URL"},"callback_url":"URL"}`,
		`{"model":"beta2.6-i2v","duration":5,"resolution":"720p","input":{"prompt":"a","img_url":"URL"}}`,
		`{"model":"beta2.6-r2v","duration":5,"resolution":"720p","input":{"prompt":"a","reference_urls":["URL"],"reference_video_urls":["URL"]}}`,
		`{"model":"gamma-2-0-260128","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"URL"},"role":"first_frame"}],"callback_url":"URL"}`,
		`{"model":"gamma-2-0-260128","content":[{"type":"text","text":"a"},{"type":"video_url","video_url":{"url":"URL"}},{"type":"audio_url","audio_url":{"url":"URL"}}]}`,
		`{"model":"beta2.7-t2v","duration":5,"resolution":"720p","input":{"prompt":"a"},"webhook_url":"URL"}`,
	},
	"/v1/embeddings":   {`{"model":"text-embedding-v4","input":["URL"],"image":"URL","user":"URL"}`},
	"/v1/rerank":       {`{"model":"rerank-v3.5","query":"URL","documents":["URL",{"text":"a","image":"URL"}],"callback_url":"URL"}`},
	"/v2/rerank":       {`{"model":"rerank-v3.5","query":"a","documents":[{"image":"URL"}]}`},
	"/rerank":          {`{"model":"rerank-v3.5","query":"URL","texts":["URL"],"truncate":"URL"}`},
	"/v1/audio/speech": {`{"model":"alpha3-tts-flash","input":"URL","response_format":"wav","reference_audio":"URL","ref_audio_url":"URL"}`},
}

// TestNothingThatARequestNamesIsFetched is docs/reference/faults.md, rows 33 and 34: an address
// is passed on or refused. Notices are the one exception; package webhook has
// their tests.
func TestNothingThatARequestNamesIsFetched(t *testing.T) {
	b := newConnectionLog(t)
	s, w := newJSONFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { // notices would be delivered by it
		defer close(ran)
		_ = s.g.Run(ctx)
	}()
	accepted := 0
	for path, good := range jsonRequests(t) {
		bodies := linked[path]
		if bodies == nil { // an endpoint whose requests name nothing, or whose package has them
			bodies = []string{strings.TrimSuffix(good.body, "}") + `,"image":"URL","url":"URL","callback_url":"URL"}`}
		}
		for _, body := range bodies {
			for _, url := range []string{"http://" + b.address + "/x.png", "https://" + b.address + "/x", "http://user:pass@" + b.address + "/", "//" + b.address, "file:///etc/passwd", "gopher://" + b.address + "/_x", "data:image/png;base64,AA=="} {
				a := s.do(t, "POST", path, strings.ReplaceAll(body, "URL", url),
					"X-Forwarded-Host: "+b.address, "Forwarded: host="+b.address, "X-Original-URL: "+url, "X-Rewrite-URL: "+url, "Referer: "+url, "Origin: http://"+b.address)
				if a.status >= 500 {
					t.Errorf("%s %s with %s: %d %.200s", path, body, url, a.status, a.body)
				}
				if a.status < 300 {
					accepted++
				}
			}
		}
	}
	cancel()
	<-ran
	if n := b.seen.Load(); n != 0 || accepted < 50 || w.asked.Load() < 50 {
		t.Errorf("%d connections to what was named; %d requests were good, %d asked", n, accepted, w.asked.Load())
	}
	conn, err := net.Dial("tcp", b.address) // and it does listen
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// TestAnEditFetchesNothing is the same for a form.
func TestAnEditFetchesNothing(t *testing.T) {
	b := newConnectionLog(t)
	s := newImagesFixture(t, fixtureOptions{})
	for _, field := range []string{"image", "image[]", "image_url", "mask", "prompt", "user", "model", "webhook_url"} {
		for _, sign := range []string{"=", "@"} {
			if a := s.edit(t, cube(t, fmt.Sprintf("%s%shttp://%s/x.png", field, sign, b.address))...); a.status >= 500 {
				t.Errorf("%s: %d %s", field, a.status, a.body)
			}
		}
	}
	if n := b.seen.Load(); n != 0 {
		t.Errorf("%d connections to what was named", n)
	}
}

// TestTheHostOfARequestDecidesNothing is docs/reference/faults.md, rows 33 and 36: whatever a
// client says of itself, the vendor is the one of the configuration.
func TestTheHostOfARequestDecidesNothing(t *testing.T) {
	b := newConnectionLog(t)
	s, w := newJSONFixture(t)
	req := s.request(t, t.Context(), "/v1/chat/completions", strings.NewReader(small))
	req.Host = b.address
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || b.seen.Load() != 0 || w.asked.Load() != 1 {
		t.Errorf("%d, %d connections to the host of the request", resp.StatusCode, b.seen.Load())
	}
}

// otherAccount adds an account with a key and gives the header of it.
func (s *fixture) otherAccount(t *testing.T) string {
	t.Helper()
	if err := s.ledger.CreateAccount(t.Context(), "other", billing.One); err != nil {
		t.Fatal(err)
	}
	key, token, err := auth.NewKey(auth.KeyOptions{Account: "other"})
	if err == nil {
		err = s.keys.Add(t.Context(), key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + token.Reveal()
}

// spellings of an id are what might be taken for it by a careless reader.
func spellings(id string) []string {
	return []string{
		id, strings.ToLower(id), strings.ToUpper(id), id + "/", "/" + id, "./" + id, "x/../" + id, id + "%00", id + "%20", "%20" + id, id + "?account=1", id + ";account=1", id + "%2f..%2f" + id,
		url.QueryEscape("' OR '1'='1"), url.QueryEscape(`" OR ""="`), "%25", "_", "*", id[:len(id)-1] + "%25", id[:len(id)-1] + "_", id + "%27--", "0", "-1", "null", strings.Repeat("x", 3000),
	}
}

// TestNoIdOfAnotherAccountLeadsAnywhere is docs/reference/faults.md, row 35: two tenants at
// every endpoint that takes an id.
func TestNoIdOfAnotherAccountLeadsAnywhere(t *testing.T) {
	c := newVideoFixture(t, nil)
	foreign := c.otherAccount(t)
	_, beta := c.submit(t, boat)
	_, gamma := c.submit(t, gammaBoat)
	done := c.do(t, "POST", "/v1/chat/completions", strings.Replace(small, `"m"`, `"delta-k3"`, 1))
	if done.status != 200 {
		t.Fatalf("%d %s", done.status, done.body)
	}
	ids := map[string]string{"a receipt": done.header.Get("X-Request-Id"), "beta": beta.ID, "gamma": gamma.ID}
	tried := 0
	for _, r := range c.h.Routes() {
		prefix, has := strings.CutSuffix(r.Path, "{id}")
		if !has || prefix == "/v1/models/" || r.Method != http.MethodGet { // models belong to nobody
			continue
		}
		tried++
		for name, id := range ids {
			for _, spelled := range spellings(id) {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					a := c.do(t, method, prefix+spelled, "", foreign)
					if a.status != 404 && a.status != 400 || strings.Contains(a.body, "acme") || len(a.body) > 1000 {
						t.Errorf("%s %s%.100s (%s): %d %.500s", method, prefix, spelled, name, a.status, a.body)
					}
				}
				if spelled == id {
					continue
				}
				// Not even the owner is understood in another spelling.
				if a := c.do(t, "GET", prefix+spelled, ""); a.status == 200 && !strings.HasPrefix(spelled, id+"?") {
					t.Errorf("%s%s: %d %s", prefix, spelled, a.status, a.body)
				}
			}
		}
	}
	if tried != 3 {
		t.Errorf("%d routes take an id", tried)
	}
	for _, id := range []string{ids["beta"], ids["gamma"]} {
		if a := c.do(t, "GET", videos+"/"+id, ""); a.status != 200 {
			t.Errorf("its owner: %d %s", a.status, a.body)
		}
	}
	c.finish(t, beta.ID)
	c.finish(t, gamma.ID)
}

// TestAnIdempotencyKeyIsItsAccountsOwn is docs/reference/faults.md, row 35: the same key and
// body of another account is another request.
func TestAnIdempotencyKeyIsItsAccountsOwn(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	foreign := s.otherAccount(t)
	first := s.do(t, "POST", "/v1/chat/completions", small, "Idempotency-Key: k")
	again := s.do(t, "POST", "/v1/chat/completions", small, "Idempotency-Key: k")
	other := s.do(t, "POST", "/v1/chat/completions", small, "Idempotency-Key: k", foreign)
	clash := s.do(t, "POST", "/v1/chat/completions", strings.Replace(small, "hi", "ho", 1), "Idempotency-Key: k", foreign)
	if again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("X-Request-Id") != first.header.Get("X-Request-Id") {
		t.Errorf("its own: %v", again.header)
	}
	if other.status != 200 || other.header.Get("Idempotent-Replayed") != "" || other.header.Get("X-Request-Id") == first.header.Get("X-Request-Id") {
		t.Errorf("another account's: %d %v", other.status, other.header)
	}
	if clash.status != 409 || strings.Contains(clash.body, first.header.Get("X-Request-Id")) {
		t.Errorf("another account's second: %d %s", clash.status, clash.body)
	}
	if a := s.do(t, "GET", "/v1/receipts/"+other.header.Get("X-Request-Id"), ""); a.status != 404 {
		t.Errorf("the receipt of another account's call: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/v1/balance", "/v1/usage", "/v1/usage?account=acme", "/v1/balance?account=acme"} {
		if a := s.do(t, "GET", path, "", foreign); a.status == 200 && (strings.Contains(a.body, "acme") || strings.Contains(a.body, `"requests":2`)) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}
