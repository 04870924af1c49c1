package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// vendor is an upstream that speaks OpenAI's wire and produces exactly as many
// tokens as it is asked for, each of four letters, as the gateway estimates
// them. It counts the calls.
type vendor struct {
	url   string
	calls atomic.Int64
	// answer, if set, sees each call first; it returns false to have it
	// answered as ever. Set it before the first call.
	answer func(w http.ResponseWriter, r *http.Request, c vendorCall) bool
	// token, if set, is called before each token of a stream.
	token func(r *http.Request, c vendorCall, i int64)
}

// vendorCall is what a call asks for.
type vendorCall struct {
	Model     string `json:"model"`
	Stream    bool   `json:"stream"`
	MaxTokens int64  `json:"max_tokens"`
	Messages  []struct {
		Content any `json:"content"`
	} `json:"messages"`
}

// text is the last message.
func (c vendorCall) text() string {
	s, _ := c.Messages[len(c.Messages)-1].Content.(string)
	return s
}

// output is how many tokens are produced.
func (c vendorCall) output() int64 {
	if c.MaxTokens > 0 {
		return c.MaxTokens
	}
	return 12
}

func newVendor(t testing.TB) *vendor {
	t.Helper()
	v := &vendor{}
	s := httptest.NewServer(v)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	v.url = s.URL + "/v1"
	return v
}

// ServeHTTP implements http.Handler.
func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	var c vendorCall
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil || len(c.Messages) == 0 {
		http.Error(w, "the vendor cannot read this", http.StatusBadRequest)
		return
	}
	v.calls.Add(1)
	switch {
	case v.answer != nil && v.answer(w, r, c):
	case c.Stream:
		v.stream(w, r, c)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"length"}],"usage":%s}`,
			c.Model, strings.Repeat("word", int(c.output())), usage(c.output()))
	}
}

// prompt is how many input tokens each call is said to have, of which some were
// cached.
const prompt, cachedPrompt = 19, 4

func usage(output int64) string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`,
		prompt, output, prompt+output, cachedPrompt)
}

func (v *vendor) stream(w http.ResponseWriter, r *http.Request, c vendorCall) {
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(delta, finish, rest string) {
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":%q,\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]%s}\n\n",
			c.Model, delta, finish, rest)
		_ = http.NewResponseController(w).Flush()
	}
	for i := range c.output() {
		if v.token != nil {
			v.token(r, c, i)
		}
		if r.Context().Err() != nil {
			return
		}
		chunk(`{"role":"assistant","content":"word"}`, "null", "")
	}
	if v.token != nil {
		v.token(r, c, c.output())
	}
	chunk(`{}`, `"length"`, "")
	_, _ = fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":%q,\"choices\":[],\"usage\":%s}\n\ndata: [DONE]\n\n", c.Model, usage(c.output()))
}
