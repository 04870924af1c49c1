package gateway_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// A vendor may charge for a field of its own, or answer by something that no client can
// read. What the gateway does not know is therefore not sent where billing is prepaid.
func TestFieldsThatAreNotKnownAreLeftOutInPrepaidOnly(t *testing.T) {
	const body, extra = `"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]`, `"deferred":true,"num_completions":3`
	const without, all = `{` + body + `}`, `{` + body + `,` + extra + `}`
	for _, c := range []struct {
		name       string
		edit       func(*gateway.Options)
		channel    router.Channel
		sent, told string
	}{
		{"in prepaid", inPrepaid, router.Channel{}, without, "deferred, num_completions"},
		{"passed", inPrepaid, router.Channel{Pass: []string{"deferred", "num_completions"}}, all, ""},
		{"one is passed", inPrepaid, router.Channel{Pass: []string{"deferred"}}, `{` + body + `,"deferred":true}`, "num_completions"},
		{"renamed", inPrepaid, router.Channel{Rename: map[string]string{"deferred": "of_the_vendor"}}, `{` + body + `,"of_the_vendor":true}`, "num_completions"},
		{"counted billing", func(*gateway.Options) {}, router.Channel{}, all, ""},
	} {
		up := &scriptedUpstream{text: chatAnswer(reported)}
		c.channel.Name, c.channel.Upstream, c.channel.Models = "c", answering{upstream.ChatCompletion, up}, map[string]string{"m": "m"}
		h := newTestGateway(t, newRouter(t, c.channel), "1.00", c.edit)
		r := h.must(t, upstream.ChatCompletion, all)
		if got := up.sent(t); got != c.sent || r.Header.Get("X-Gateway-Dropped") != c.told {
			t.Errorf("%s: sent %s, told %q, want %s, %q", c.name, got, r.Header.Get("X-Gateway-Dropped"), c.sent, c.told)
		}
	}
	// A translation leaves them out too.
	up := &scriptedUpstream{text: messageAnswer}
	h := newTestGateway(t, newRouter(t, router.Channel{Name: "c", Upstream: answering{upstream.Messages, up}, Models: map[string]string{"m": "m"}}), "1.00", inPrepaid)
	if r := h.must(t, upstream.ChatCompletion, all); strings.Contains(up.sent(t), "deferred") || r.Header.Get("X-Gateway-Dropped") != "deferred, num_completions" {
		t.Errorf("translated: sent %s, told %q", up.sent(t), r.Header.Get("X-Gateway-Dropped"))
	}
}

// A request that is split leaves them out of each part.
func TestFieldsThatAreNotKnownAreLeftOutOfEachPart(t *testing.T) {
	var mu sync.Mutex // parts are sent at once
	var sent []string
	up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		body, err := c.Body.Bytes()
		mu.Lock()
		sent = append(sent, string(body))
		mu.Unlock()
		must(t, err)
		return vectorsFor(ctx, c)
	})
	h := newTestGateway(t, up, "1", func(o *gateway.Options) { inPrepaid(o); inBatches(1)(o) })
	r, err := h.do(t.Context(), upstream.Embeddings, `{"model":"m","embedding_types":["int8"],"input":["a","b"]}`)
	if err != nil || len(sent) != 2 || strings.Contains(strings.Join(sent, ""), "embedding_types") || r.Header.Get("X-Gateway-Dropped") != "embedding_types" {
		t.Errorf("sent %q, told %q, %v", sent, r.Header.Get("X-Gateway-Dropped"), err)
	}
}
