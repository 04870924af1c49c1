package faultlab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// repeated is a body of about size bytes: before, piece after piece, after.
func repeated(before, piece, after string) func(size int) string {
	return func(size int) string {
		n := max(1, (size-len(before)-len(after))/(len(piece)+1))
		return before + strings.TrimSuffix(strings.Repeat(piece+",", n), ",") + after
	}
}

// numbered is the same with a number in each piece.
func numbered(before, piece, after string) func(size int) string {
	return func(size int) string {
		var b strings.Builder
		b.WriteString(before)
		for i := 0; b.Len() < size-len(after); i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, piece, i)
		}
		return b.String() + after
	}
}

// filled is one long text.
func filled(before, piece, after string) func(size int) string {
	return func(size int) string {
		return before + strings.Repeat(piece, max(1, (size-len(before)-len(after))/len(piece))) + after
	}
}

const (
	chatPath, messagesPath, imagesPath  = "/v1/chat/completions", "/v1/messages", "/v1/images/generations"
	responsesPath                       = "/v1/responses"
	videosPath, vectorsPath, speechPath = "/v1/videos/generations", "/v1/embeddings", "/v1/audio/speech"
	rankPath, ranker                    = "/v1/rerank", "ranker-1"
	asksRank                            = `{"model":"ranker-1","query":"a",`
	asksChat                            = `{"model":"sim-chat","messages":[{"role":"user","content":"hi"}],`
	asksResponse                        = `{"model":"sim-chat","input":"hi",`
	asksMessage                         = `{"model":"native-chat","max_tokens":5,"messages":[{"role":"user","content":"hi"}],`
	unknown                             = `"x%07d":1`
)

// bodyResult is whether a large body of a kind is refused.
type bodyResult int

const (
	served bodyResult = iota
	refused
	either
)

// bodies are requests of which a small part makes much work, and some of which
// every byte is honest. A request of many small members or elements must be
// refused.
var bodies = []struct {
	name, path string
	body       func(size int) string
	want       bodyResult
}{
	{"one long message", chatPath, filled(`{"model":"sim-chat","messages":[{"role":"user","content":"`, "word ", `"}]}`), served},
	{"a picture in base64", chatPath, filled(`{"model":"sim-chat","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`, "AAAA", `"}}]}]}`), served},
	{"messages of 1 KiB", chatPath, repeated(`{"model":"sim-chat","messages":[`, `{"role":"user","content":"`+strings.Repeat("a", 1<<10)+`"}`, `]}`), served},
	{"a long text to embed", vectorsPath, filled(`{"model":"voyage-3","input":"`, "word ", `"}`), served},
	{"a message of escapes", chatPath, filled(`{"model":"sim-chat","messages":[{"role":"user","content":"`, `\u0041`, `"}]}`), served},
	{"messages that are empty objects", chatPath, repeated(`{"model":"sim-chat","messages":[`, `{}`, `]}`), refused},
	{"short messages", chatPath, repeated(`{"model":"sim-chat","messages":[`, `{"role":"user","content":"a"}`, `]}`), refused},
	{"blocks that are empty objects", chatPath, repeated(`{"model":"sim-chat","messages":[{"role":"user","content":[`, `{}`, `]}]}`), refused},
	{"calls that are empty objects", chatPath, repeated(`{"model":"sim-chat","messages":[{"role":"assistant","tool_calls":[`, `{}`, `]}]}`), refused},
	{"tools that are empty objects", chatPath, repeated(asksChat+`"tools":[`, `{}`, `]}`), refused},
	{"a schema with many values", chatPath, repeated(asksChat+`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"enum":[`, `{}`, `]}}}}`), refused},
	{"a schema with many properties", chatPath, numbered(asksChat+`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"properties":{`, `"x%07d":{}`, `}}}}}`), refused},
	{"many members of a conversation", chatPath, numbered(asksChat, unknown, `}`), refused},
	{"one member many times", chatPath, repeated(asksChat, `"user":"a"`, `}`), refused},
	{"many escaped members", chatPath, numbered(asksChat, `"\u0078%07d":1`, `}`), refused},
	{"an unknown list", chatPath, repeated(asksChat+`"x":[`, `1`, `]}`), either},
	{"an unknown text", chatPath, filled(asksChat+`"x":"`, `\n`, `"}`), served},
	{"brackets without end", chatPath, filled(asksChat+`"x":`, `[`, `}`), refused},
	{"turns that are empty objects", messagesPath, repeated(`{"model":"native-chat","max_tokens":5,"messages":[`, `{}`, `]}`), refused},
	{"blocks of a turn that are empty objects", messagesPath, repeated(`{"model":"native-chat","max_tokens":5,"messages":[{"role":"user","content":[`, `{}`, `]}]}`), refused},
	{"empty blocks of a system", messagesPath, repeated(asksMessage+`"system":[`, `{}`, `]}`), refused},
	{"empty tools of a message", messagesPath, repeated(asksMessage+`"tools":[`, `{}`, `]}`), refused},
	{"many members of a message", messagesPath, numbered(asksMessage, unknown, `}`), refused},
	{"one long input", responsesPath, filled(`{"model":"sim-chat","input":"`, "word ", `"}`), served},
	{"items that are empty objects", responsesPath, repeated(`{"model":"sim-chat","input":[`, `{}`, `]}`), refused},
	{"short items", responsesPath, repeated(`{"model":"sim-chat","input":[`, `{"role":"user","content":"a"}`, `]}`), refused},
	{"parts that are empty objects", responsesPath, repeated(`{"model":"sim-chat","input":[{"role":"user","content":[`, `{}`, `]}]}`), refused},
	{"calls without outputs", responsesPath, repeated(`{"model":"sim-chat","input":[`, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`, `]}`), refused},
	{"empty tools of a response", responsesPath, repeated(asksResponse+`"tools":[`, `{}`, `]}`), refused},
	{"short tools of a response", responsesPath, repeated(asksResponse+`"tools":[`, `{"type":"custom","name":"f"}`, `]}`), refused},
	{"namespaces in namespaces", responsesPath, filled(asksResponse+`"tools":`, `[{"type":"namespace","name":"n","tools":`, `}`), refused},
	{"many members of a response", responsesPath, numbered(asksResponse, unknown, `}`), refused},
	{"many members of a speech", speechPath, numbered(`{"model":"alpha3-tts-flash","input":"a","response_format":"wav",`, unknown, `}`), refused},
	{"many members of a picture", imagesPath, numbered(`{"model":"picture-1","prompt":"a",`, unknown, `}`), refused},
	{"empty blocks of a picture", imagesPath, repeated(`{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":[`, `{}`, `]}]}}`), refused},
	{"many members of a video", videosPath, numbered(`{"model":"beta2.6-t2v","input":{"prompt":"a"},`, unknown, `}`), refused},
	{"many members of a video's parameters", videosPath, numbered(`{"model":"beta2.6-t2v","input":{"prompt":"a"},"parameters":{`, unknown, `}}`), refused},
	{"empty blocks of a video", videosPath, repeated(`{"model":"gamma-2-0-260128","content":[`, `{}`, `]}`), refused},
	{"many members of embeddings", vectorsPath, numbered(`{"model":"voyage-3","input":"a",`, unknown, `}`), refused},
	{"short texts to embed", vectorsPath, repeated(`{"model":"voyage-3","input":[`, `"a"`, `]}`), refused},
	{"a long document", rankPath, filled(asksRank+`"return_documents":true,"documents":["`, "word ", `"]}`), served},
	{"documents of 1 KiB", rankPath, repeated(asksRank+`"documents":[`, `{"text":"`+strings.Repeat("a", 1<<10)+`"}`, `]}`), served},
	{"short documents", rankPath, repeated(asksRank+`"documents":[`, `"a"`, `]}`), refused},
	{"documents that are empty objects", rankPath, repeated(asksRank+`"documents":[`, `{}`, `]}`), refused},
	{"a member that is ranked many times", rankPath, filled(asksRank+`"rank_fields":["a"`+strings.Repeat(`,"a"`, 63)+`],"documents":[{"a":"`, "word ", `"}]}`), refused},
	{"a member that is a list of quotes", rankPath, repeated(asksRank+`"rank_fields":["a","b"],"documents":[{"a":[`, `"`+strings.Repeat(`\"`, 40)+`"`, `]}]}`), either},
	{"a long name of a member to rank", rankPath, filled(asksRank+`"documents":[{"b":1}],"rank_fields":["`, "\x7f", `"]}`), refused},
	{"many members of a ranking", rankPath, numbered(asksRank+`"documents":["a"],`, unknown, `}`), refused},
	{"tokens to embed", vectorsPath, repeated(`{"model":"voyage-3","input":[`, `1`, `]}`), either},
}

// TestMemoryPerRequestIsBoundByItsSize counts what is allocated in all while one
// request after the other is served. It is not what is held at one time, which is
// less: but what is allocated is also what has to be worked for.
func TestMemoryPerRequestIsBoundByItsSize(t *testing.T) {
	const fixed, perByte = 16 << 20, 8 // a request may have some thousands of small members
	handler := answering(t)
	for _, c := range bodies {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			serve(handler, c.path, c.body(1<<10)) // what is made once is made
			for _, size := range []int{1 << 18, 1 << 22} {
				body := c.body(size)
				status, allocated := serve(handler, c.path, body)
				t.Logf("%d bytes: status %d, %d bytes allocated, %.1f for each", len(body), status, allocated, float64(allocated)/float64(len(body)))
				if most := uint64(fixed + perByte*len(body)); allocated > most {
					t.Errorf("a body of %d bytes had %d bytes allocated (%d for each), more than %d", len(body), allocated, allocated/uint64(len(body)), most)
				}
				was := served
				if status >= 400 && status < 500 {
					was = refused
				}
				if size == 1<<22 && c.want != either && c.want != was {
					t.Errorf("a body of %d bytes has the status %d; that it is refused is %t", len(body), status, c.want == refused)
				}
			}
		})
	}
}

// serve serves a request, and counts what was allocated.
func serve(h http.Handler, path, body string) (status int, allocated uint64) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	h.ServeHTTP(w, r)
	runtime.ReadMemStats(&after)
	return w.Code, after.TotalAlloc - before.TotalAlloc
}

// answering is a gateway whose upstream refuses everything that gets so far with
// a 503, which is none of the gateway's refusals.
func answering(t *testing.T) http.Handler {
	t.Helper()
	prices := maps.Clone(hostilePrices)
	prices[ranker] = row{{Unit: billing.SearchUnit, Amount: "0.002"}}
	list, err := newPriceList(prices)
	if err != nil {
		t.Fatal(err)
	}
	up := upstream.Func(func(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
		return &upstream.Reply{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	})
	channel := router.Channel{Name: "any", Upstream: up, Models: map[string]string{}}
	for model := range prices {
		channel.Models[model] = model
	}
	routing, err := router.New([]router.Channel{channel}, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Upstream: routing, Prices: list, RequirePrice: true, Models: append(models(), gateway.Model{ID: ranker, Kind: gateway.KindRerank}), MP3: noEncoder{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return server.New(g, server.Options{})
}
