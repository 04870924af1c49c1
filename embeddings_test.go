package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// vectorsFor answers a call as a vendor would: the vector of a text is its
// length and its first byte, and each text is three tokens.
func vectorsFor(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, err
	}
	var r struct{ Input []string }
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	var items []string
	for i, text := range r.Input {
		items = append(items, fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":[%d,%d]}`, i, len(text), text[0]))
	}
	return jsonReply(fmt.Sprintf(`{"object":"list","data":[%s],"model":"v","usage":{"prompt_tokens":%d,"total_tokens":%[2]d}}`, strings.Join(items, ","), 3*len(r.Input))), nil
}

// inBatches makes "m" a model whose upstream takes so many texts at a time.
func inBatches(n int) func(*gateway.Options) {
	return func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "m", Kind: gateway.KindEmbeddings, Batch: n}}
	}
}

// texts are n of them, of one letter each.
func texts(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%q", string(rune('a'+i)))
	}
	return `{"model":"m","input":[` + strings.Join(list, ",") + `]}`
}

func TestALargeBatchIsSplitAndJoined(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	var now, most int
	up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		mu.Lock()
		now++
		most = max(most, now)
		sizes = append(sizes, len(c.Request.(*embeddings.Request).Inputs()))
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			now--
		}()
		return vectorsFor(ctx, c)
	})
	h := newTestGateway(t, up, "1", inBatches(2))
	r, err := h.do(t.Context(), upstream.Embeddings, texts(23))
	must(t, err)
	var got embeddings.Response
	must(t, json.Unmarshal(r.Body, &got))
	for i, e := range got.Data {
		if e.Index != int64(i) || e.Embedding[1] != float32('a'+i) {
			t.Errorf("item %d is %+v", i, e)
		}
	}
	if len(got.Data) != 23 || got.Usage.PromptTokens != 69 || got.Usage.TotalTokens != 69 || got.Model != "m" {
		t.Errorf("%d items, %+v, model %s", len(got.Data), got.Usage, got.Model)
	}
	slices.Sort(sizes)
	if len(sizes) != 12 || sizes[0] != 1 || sizes[1] != 2 || sizes[11] != 2 || most > 4 {
		t.Errorf("calls of %v texts, %d at a time", sizes, most)
	}
	if receipt, ok := r.Receipt(); !ok || receipt.Usage.Input != 69 || h.spent(t) != micro(69) {
		t.Errorf("receipt %+v, spent %s", receipt, h.spent(t))
	}
}

// waiting is an upstream that answers no call but those of the text "a", which
// fail when all others wait.
func waiting(others int, end func() (*upstream.Reply, error)) (up upstream.Func, cancelled *atomic.Int32) {
	var here sync.WaitGroup
	here.Add(others)
	cancelled = new(atomic.Int32)
	return func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		if c.Request.(*embeddings.Request).Inputs()[0] == "a" {
			here.Wait()
			return end()
		}
		here.Done()
		<-ctx.Done()
		cancelled.Add(1)
		return nil, fault.From(ctx.Err())
	}, cancelled
}

func TestOneFailedPartFailsTheRequestForFree(t *testing.T) {
	failing := func(f upstream.Failure) func() (*upstream.Reply, error) {
		return func() (*upstream.Reply, error) { return nil, f.Fault() }
	}
	for name, row := range map[string]struct {
		end  func() (*upstream.Reply, error)
		code fault.Code
	}{
		"a panic":         {func() (*upstream.Reply, error) { panic("sk-secret") }, fault.InternalError},
		"its fault":       {failing(upstream.Failure{Status: 500, Sent: true}), fault.InternalServerError},
		"a lost answer":   {failing(upstream.Failure{Sent: true, Err: errors.New("cut")}), fault.BadGateway},
		"a broken answer": {func() (*upstream.Reply, error) { return jsonReply(`{"data":[]}`), nil }, fault.BadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			up, cancelled := waiting(3, row.end)
			h := newTestGateway(t, up, "1", inBatches(1))
			x, err := h.do(t.Context(), upstream.Embeddings, texts(9))
			if f := fault.From(err); f == nil || f.Code != row.code || strings.Contains(f.Message, "sk-secret") {
				t.Errorf("%v, want %s", err, row.code)
			}
			if receipt, ok := x.Receipt(); h.spent(t) != 0 || !ok || receipt.Charge != 0 {
				t.Errorf("spent %s, receipt %+v", h.spent(t), receipt)
			}
			if cancelled.Load() != 3 {
				t.Errorf("%d others were cancelled", cancelled.Load())
			}
			codes := make(map[string]int)
			for _, a := range h.tries(t, x.ID) {
				codes[a.Code]++
			}
			if len(codes) != 2 || codes[string(row.code)] != 1 || codes[string(fault.CalledOff)] != 3 {
				t.Errorf("the tries ended as %v, want one %s and three that were called off", codes, row.code)
			}
		})
	}
}

func TestPartsTogetherAreNotLargerThanOneAnswerMayBe(t *testing.T) {
	var asked atomic.Int32
	up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		asked.Add(1)
		return vectorsFor(ctx, c)
	})
	h := newTestGateway(t, up, "1", func(o *gateway.Options) { inBatches(1)(o); o.MaxAnswer = 1000 })
	if _, err := h.do(t.Context(), upstream.Embeddings, texts(5)); err != nil {
		t.Fatal(err)
	}
	before, calls := h.spent(t), asked.Load()
	_, err := h.do(t.Context(), upstream.Embeddings, texts(20))
	if made := int64(asked.Load() - calls); !fault.Is(err, fault.InvalidRequest) || made == 20 || h.spent(t)-before != micro(3*made) {
		t.Errorf("%v, %d parts were made, spent %s", err, made, h.spent(t)-before)
	}
}

// A request of many parts stops at the first that fails. A refusal is the caller's own, who
// could have all others made for nothing: he pays for those that are answered. What a vendor's
// failure leaves is the operator's waste, in one row.
func TestAFailedPartStopsTheOthers(t *testing.T) {
	for name, row := range map[string]struct {
		failure upstream.Failure
		fails   func(call int32) bool
		asked   int32
		charge  int64 // parts
		waste   int64 // parts
	}{
		"four are refused":                     {upstream.Failure{Status: 400, Sent: true}, func(n int32) bool { return n > 8 }, 12, 8, 0},
		"one is refused, three are made":       {upstream.Failure{Status: 400, Sent: true}, func(n int32) bool { return n == 9 }, 12, 11, 0},
		"the vendor fails":                     {upstream.Failure{Status: 500, Sent: true}, func(n int32) bool { return n > 8 }, 12, 0, 8},
		"the operator's key is refused":        {upstream.Failure{Status: 401, Sent: true, Fatal: true}, func(n int32) bool { return n > 8 }, 12, 0, 8},
		"the first of all, before any is made": {upstream.Failure{Status: 400, Sent: true}, func(n int32) bool { return n <= 4 }, 4, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				h := newTestGateway(t, upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
					n := calls.Add(1)
					if n > 8 || row.fails(n) {
						time.Sleep(time.Second) // virtual: the others have been asked for
					}
					if row.fails(n) {
						return nil, row.failure.Fault()
					}
					if n > 8 {
						time.Sleep(time.Second) // the other has been refused
					}
					return vectorsFor(ctx, c)
				}), "1", inBatches(1))
				x, err := h.do(t.Context(), upstream.Embeddings, texts(26))
				if err == nil || h.spent(t) != micro(3*row.charge) {
					t.Fatalf("%v, spent %s", err, h.spent(t))
				}
				if n := calls.Load(); n != row.asked {
					t.Errorf("%d parts were asked for, want %d", n, row.asked)
				}
				waste := billing.Money(0)
				for _, a := range h.tries(t, x.ID) {
					if a.Code == string(fault.CalledOff) && a.Used.Input > 0 {
						waste += a.Waste
					}
				}
				if waste != micro(3*row.waste) {
					t.Errorf("a waste of %s, want %d parts", waste, row.waste)
				}
			})
		})
	}
}

func TestAClientDisconnectEndsNoPart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		if asked.Add(1) == 3 {
			cancel()
		}
		return vectorsFor(ctx, c)
	})
	h := newTestGateway(t, up, "1", inBatches(1))
	x, err := h.do(ctx, upstream.Embeddings, texts(26))
	receipt, ok := x.Receipt()
	if err != nil || !ok || receipt.Reason != billing.ReasonComplete || asked.Load() != 26 || h.spent(t) == 0 || h.spent(t) != receipt.Charge {
		t.Errorf("%v, receipt %+v, %d parts, spent %s", err, receipt, asked.Load(), h.spent(t))
	}
}

func TestAModelServesItsEndpointOnly(t *testing.T) {
	routing := newRouter(t, router.Channel{
		Name: "c", Upstream: sim.New(sim.Options{}), Models: map[string]string{"m": "m", "talks": "talks", "vox-4": "vox-4", "any": "any", "delta-k3": "delta-k3", "alpha-image-max": "max"},
	})
	h := newTestGateway(t, routing, "1", func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "m", Kind: gateway.KindEmbeddings}, {ID: "talks", Kind: gateway.KindChat}}
	})
	const chat = `"messages":[{"role":"user","content":"hi"}]}`
	for _, row := range []struct {
		op     upstream.Op
		body   string
		status int
		code   fault.Code
	}{
		{upstream.Embeddings, `{"model":"m","input":"a"}`, 0, ""},
		{upstream.Embeddings, `{"model":"vox-4","input":"a"}`, 0, ""},
		{upstream.Embeddings, `{"model":"any","input":"a"}`, 0, ""},
		{upstream.ChatCompletion, `{"model":"any",` + chat, 0, ""},
		{upstream.Embeddings, `{"model":"talks","input":"a"}`, 400, fault.InvalidRequest},
		{upstream.Embeddings, `{"model":"delta-k3","input":"a"}`, 400, fault.InvalidRequest},
		{upstream.ChatCompletion, `{"model":"m",` + chat, 400, fault.InvalidRequest},
		{upstream.ChatCompletion, `{"model":"vox-4",` + chat, 400, fault.InvalidRequest},
		{upstream.Embeddings, `{"model":"nobody","input":"a"}`, 404, fault.ModelNotFound},
		{upstream.GenerateImage, `{"model":"delta-k3","prompt":"a"}`, 400, fault.InvalidRequest},
		{upstream.GenerateImage, `{"model":"alpha-image-9","input":{}}`, 400, fault.ModelNotFound},
		{upstream.ChatCompletion, `{"model":"alpha-image-max",` + chat, 400, fault.InvalidRequest},
	} {
		_, err := h.do(t.Context(), row.op, row.body)
		if row.status == 0 {
			if err != nil {
				t.Errorf("%s: %v", row.body, err)
			}
			continue
		}
		if f := fault.From(err); f == nil || f.HTTPStatus() != row.status || f.Code != row.code || row.status == 400 && f.Param != "model" || row.code == fault.InvalidRequest && !strings.Contains(f.Message, ": call /v1/") {
			t.Errorf("%s: %v, want %d %s", row.body, err, row.status, row.code)
		}
	}
}

func TestTheNamesOfDroppedFieldsAreBounded(t *testing.T) {
	up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		r, err := vectorsFor(ctx, c)
		r.Dropped = []string{"größe", "a\r\nb", strings.Repeat("a", 100)} // which are the caller's own
		for i := range 200_000 {
			r.Dropped = append(r.Dropped, fmt.Sprintf("x%06d", i))
		}
		return r, err
	})
	h := newTestGateway(t, up, "1", inBatches(1))
	for _, inputs := range []int{1, 3} {
		r, err := h.do(t.Context(), upstream.Embeddings, texts(inputs))
		if err != nil || len(r.Dropped) != 33 || r.Dropped[32] != "others" || len(r.Header.Get("X-Gateway-Dropped")) > 400 {
			t.Errorf("dropped %d of %d inputs: %v", len(r.Dropped), inputs, err)
		}
	}
}

// BenchmarkEmbeddings is the pipeline alone for 64 texts, whose vectors pass.
func BenchmarkEmbeddings(b *testing.B) {
	answer := []byte(`{"object":"list","data":[`)
	var input []string
	for i := range 64 {
		input = append(input, "a cart with two horses")
		answer = fmt.Appendf(answer, `%s{"object":"embedding","index":%d,"embedding":[0.0123456%s]}`, strings.Repeat(",", min(i, 1)), i, strings.Repeat(",-0.0123456", 1023))
	}
	answer = append(answer, `],"model":"m","usage":{"prompt_tokens":384,"total_tokens":384}}`...)
	g, ctx := newBenchmarkGateway(b, "application/json", answer)
	for _, format := range []string{"float", "base64"} {
		body := []byte(`{"model":"m","input":` + string(embeddings.Texts(input...)) + `,"encoding_format":"` + format + `"}`)
		b.Run(format, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Do(ctx, gateway.Caller{}, &gateway.Request{Op: upstream.Embeddings, Body: body}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAllPartsOfARequestPassAChannelThatTakesFewAtOnce(t *testing.T) {
	for name, edit := range map[string]func(*router.Channel){
		"at once":  func(c *router.Channel) { c.MaxConcurrent = 1 },
		"a minute": func(c *router.Channel) { c.RPM = 30 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := router.Channel{Name: "tight", Models: map[string]string{"m": "m"}}
				c.Upstream = upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
					time.Sleep(1200 * time.Millisecond)
					return vectorsFor(ctx, call)
				})
				edit(&c)
				h := newTestGateway(t, newRouter(t, c), "1", inBatches(1))
				if _, err := h.do(t.Context(), upstream.Embeddings, texts(8)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
