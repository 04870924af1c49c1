package translate

import (
	"bytes"
	"context"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/upstream"
)

// speaks is an upstream that speaks one dialect, and keeps what it got.
type speaks struct {
	op   upstream.Op
	text string
	got  *upstream.Call
}

func (s *speaks) Supports(op upstream.Op, _ string) bool { return op == s.op }

func (s *speaks) Do(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
	s.got = call
	return funcmodel.Reply("application/json", io.NopCloser(strings.NewReader(s.text))), nil
}

var update = flag.Bool("update", false, "write the golden files anew")

func calling(t *testing.T, body string) *upstream.Call {
	t.Helper()
	r, err := messagesapi.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &upstream.Call{Op: upstream.Messages, Model: "m", Body: r.Body, Request: r.Request}
}

func TestTheBridgeAddsTheOtherWiresOfConversations(t *testing.T) {
	conversations := []upstream.Op{upstream.ChatCompletion, upstream.Messages, upstream.Responses}
	for _, c := range []struct {
		speaks   upstream.Op
		supports []upstream.Op
	}{
		{upstream.ChatCompletion, conversations},
		{upstream.Messages, conversations},
		{upstream.Responses, conversations},
		{upstream.CountTokens, []upstream.Op{upstream.CountTokens}},
		{upstream.CountInput, []upstream.Op{upstream.CountInput}},
		{upstream.Embeddings, []upstream.Op{upstream.Embeddings}},
	} {
		up := Bridge(Options{})(&speaks{op: c.speaks})
		var got []upstream.Op
		for _, op := range upstream.Ops() {
			if upstream.Supports(up, op, "m") {
				got = append(got, op)
			}
		}
		if !slices.Equal(got, c.supports) {
			t.Errorf("over %s: %v, want %v", c.speaks, got, c.supports)
		}
	}
}

func TestThoughtsOfAChatUpstreamDoNotReachANativeOne(t *testing.T) {
	const own = `{"type":"thinking","thinking":"hm","signature":"` + syntheticSignature + `"}`
	const hers = `{"type":"thinking","thinking":"hm","signature":"hers"}`
	const word = `{ "role" : "user", "content" : "what is \u0022` + syntheticSignature + `\u0022?", "z" : 1.0 }`
	const image = `{"role":"user","content":[ {"type":"image","x":1.0,"source":{"type":"base64","media_type":"image/png","data":"\/AAA"}} ]}`
	body := func(turns string) string {
		return `{"model":"m","max_tokens":9,"x":1.0,"messages":[` + turns + `]}`
	}
	turn := func(blocks string) string {
		return body(word + `,{"role":"assistant", "content":[` + blocks + `],"y" : 2.0},` + image)
	}
	for name, c := range map[string]struct{ sent, want string }{
		"one among others": {turn(own + `,{"type":"text","text":"t"}`), turn(`{"type":"text","text":"t"}`)},
		"two in one turn":  {turn(own + `, {"type":"text","text":"\u0061"} ,` + own), turn(`{"type":"text","text":"\u0061"}`)},
		"nothing else":     {turn(own), body(word + `,` + image)},
		"the vendor's own": {turn(hers + `, {"type":"text","text":"t"}`), ""},
		"a word of hers":   {turn(hers + `, { "type":"text", "text":"` + syntheticSignature + `" }`), ""},
		"a text as signed": {turn(`{"type":"text","text":"t","signature":"` + syntheticSignature + `"}`), ""},
		"no such turn":     {body(word + ` , ` + image), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, op := range []upstream.Op{upstream.Messages, upstream.CountTokens} {
				up := &speaks{op: op}
				call := calling(t, c.sent)
				call.Op = op
				reply, err := Bridge(Options{})(up).Do(t.Context(), call)
				if err != nil {
					t.Fatal(err)
				}
				_ = reply.Body.Close()
				want := c.want
				if want == "" {
					want = c.sent
					if up.got != call {
						t.Error("the call was copied")
					}
				}
				got, err := up.got.Body.Bytes()
				if err != nil || string(got) != want {
					t.Errorf("%s: got %s, %v\nwant %s", op, got, err, want)
				}
			}
		})
	}
}

func TestATranslatedErrorLosesTheOtherDialectsBody(t *testing.T) {
	refusal := (&upstream.Failure{Status: 400, Sent: true}).Fault().With(func(e *fault.Error) { e.Body = []byte(`{"error":{}}`) })
	_, err := bridged(t, only{refuses(refusal), upstream.ChatCompletion}, upstream.Call{Op: upstream.Messages}, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}]}`)
	if f := fault.From(err); f == nil || f.Body != nil || f.HTTPStatus() != 400 {
		t.Errorf("error %v", err)
	}
}

// only is an upstream that says that it speaks one dialect.
type only struct {
	upstream.Upstream
	op upstream.Op
}

func (o only) Supports(op upstream.Op, _ string) bool { return op == o.op }

func TestASignatureThatDoesNotFitItsThoughtIsNotSent(t *testing.T) {
	for _, tt := range []struct{ text, pieces string }{
		{"a", ""}, {"", "t1.0."}, {"a", "t2.0."}, {"ab", "t1.0."}, {"a", "t1.4.sig"}, {"a", "t1.3.sigx"}, {"a", "t-1.0."},
		{"a", "t1"}, {"a", "t1."}, {"a", "t1.."}, {"a", "t.0."}, {"a", "t99999999999999999999.0."}, {"", "r3.ab"}, {"", "x0."}, {"", "r"},
	} {
		if blocks, ok := thinkingBlocks(tt.text, tt.pieces); ok {
			t.Errorf("%q, %q: %+v", tt.text, tt.pieces, blocks)
		}
	}
}

func TestAnEmptyThoughtKeepsItsText(t *testing.T) {
	blocks, ok := thinkingBlocks("", "t0.1.s")
	raw, err := json.Marshal(blocks)
	if err != nil || !ok || !bytes.Contains(raw, []byte(`"thinking":""`)) {
		t.Errorf("%s, %v", raw, err)
	}
}
