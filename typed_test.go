package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/rerank"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/video"
)

// A program may marshal a request by encoding/json, to send it to a gateway elsewhere.
func TestTheClassicPackageWritesTheExtraMembersOfARequest(t *testing.T) {
	extra := jsontext.Value(`{"x":1}`)
	for _, request := range []any{
		chat.Request{Extra: extra}, &chat.Request{Extra: extra}, messages.Request{Extra: extra}, responses.Request{Extra: extra}, images.Request{Extra: extra},
		embeddings.Request{Extra: extra}, rerank.Request{Extra: extra}, speech.Request{Extra: extra}, video.Request{Extra: extra},
	} {
		got, err := json.Marshal(request)
		if err != nil || !strings.Contains(string(got), `"x":1`) || strings.Contains(string(got), "Extra") {
			t.Errorf("%T: %s, %v", request, got, err)
		}
	}
	nested := chat.Request{Messages: []chat.Message{{Role: "user", Content: chat.Text("hi"), Extra: extra}}}
	if got, err := json.Marshal(nested); err != nil || !strings.Contains(string(got), `"content":"hi","x":1`) {
		t.Errorf("%s, %v", got, err)
	}
}

// TestTypedCallsGoTheSameWay makes each typed call, whose response has its content and
// what it cost.
func TestTypedCallsGoTheSameWay(t *testing.T) {
	const usage = `,"usage":{"prompt_tokens":20,"completion_tokens":30},"x":1`
	hi := &messages.Request{Model: "m", MaxTokens: 100, Messages: []messages.Message{{Role: "user", Content: messages.Text("say four words")}}}
	cube := &images.Input{Messages: []images.Message{{Role: "user", Content: []images.Block{{Text: "a red cube"}}}}}
	source := images.BytesFile("", blank(t, 16, 16))
	type result struct {
		charge  billing.Money
		id      string
		content string
	}
	pictures := func(r *images.Response, err error) (result, error) {
		if err != nil {
			return result{}, err
		}
		file, err := r.Images()[0].Bytes()
		return result{r.Charge, r.RequestID, fmt.Sprintf("%d %.4s", len(r.Images()), file)}, err
	}
	for name, row := range map[string]struct {
		up      upstream.Upstream
		call    func(ctx context.Context, h *testGateway) (result, error)
		charge  billing.Money
		content string
	}{
		"chat": {&scriptedUpstream{text: chatAnswer(usage)}, func(ctx context.Context, h *testGateway) (result, error) {
			r, err := h.Chat(ctx, chatRequest())
			return result{r.Charge, r.RequestID, r.Model + r.Choices[0].Message.Content.String() + string(r.Extra)}, err
		}, micro(50), `mone two three four{"x":1}`},
		"messages": {speaker{&scriptedUpstream{text: messageAnswer}, onlyMessages}, func(ctx context.Context, h *testGateway) (result, error) {
			r, err := h.Messages(ctx, hi)
			return result{r.Charge, r.RequestID, r.Model + r.Content[0].Text}, err
		}, micro(50), "mone two three four"},
		"stream of messages": {speaker{&scriptedUpstream{text: strings.Join(messageEvents, "")}, onlyMessages}, func(ctx context.Context, h *testGateway) (result, error) {
			s, err := h.MessagesStream(ctx, hi)
			if err != nil {
				return result{}, err
			}
			m, err := s.Message()
			return result{m.Charge, s.RequestID, m.Content[0].Text}, err
		}, micro(50), "one two three four"},
		"responses": {&scriptedUpstream{text: responseAnswer}, func(ctx context.Context, h *testGateway) (result, error) {
			r, err := h.Responses(ctx, &responses.Request{Model: "m", Input: responses.Text("say four words"), Stream: true})
			return result{r.Charge, r.RequestID, r.Model + r.Text() + string(r.Extra)}, err
		}, micro(50), `mone two three four{"x":1.0}`},
		"stream of responses": {&scriptedUpstream{text: strings.Join(responseEvents, "")}, func(ctx context.Context, h *testGateway) (result, error) {
			s, err := h.ResponsesStream(ctx, &responses.Request{Model: "m", Input: responses.Text("say four words")})
			if err != nil {
				return result{}, err
			}
			r, err := s.Response()
			return result{r.Charge, s.RequestID, r.Model + r.Text()}, err
		}, micro(50), "mone two three four"},
		"embeddings": {upstream.Func(vectorsFor), func(ctx context.Context, h *testGateway) (result, error) {
			r, err := h.Embeddings(ctx, &embeddings.Request{Model: "m", Input: embeddings.Texts("a", "bc")})
			return result{r.Charge, r.RequestID, fmt.Sprint(r.Data[1].Embedding)}, err
		}, micro(6), "[2 98]"},
		"embeddings of Go code": {embeddings.Serve(func(_ context.Context, r *embeddings.Request) (*embeddings.Response, error) {
			var answer embeddings.Response
			for i, text := range r.Inputs() {
				answer.Data = append(answer.Data, embeddings.Embedding{Index: int64(i), Embedding: embeddings.Vector{float32(len(text)), -0.5}})
			}
			answer.Usage = embeddings.Usage{PromptTokens: 6, TotalTokens: 6}
			return &answer, nil
		}), func(ctx context.Context, h *testGateway) (result, error) {
			r, err := h.Embeddings(ctx, &embeddings.Request{Model: "m", Input: embeddings.Texts("a", "bc"), EncodingFormat: "base64"})
			return result{r.Charge, r.RequestID, fmt.Sprint(r.Data[1].Embedding)}, err
		}, micro(6), "[2 -0.5]"},
		"a ranking of Go code": {rerank.Serve(func(_ context.Context, r *rerank.Request) (*rerank.Response, error) {
			answer := rerank.Response{Usage: rerank.Usage{TotalTokens: 6}}
			for i, text := range r.Documents {
				answer.Results = append(answer.Results, rerank.Result{Index: int64(i), RelevanceScore: float64(len(text)) / 2})
			}
			return &answer, nil
		}), func(ctx context.Context, h *testGateway) (result, error) {
			r, err := h.Rerank(ctx, &rerank.Request{Model: "m", Query: "q", Documents: []string{"a", "abc", "ab"}, TopN: 2})
			return result{r.Charge, r.RequestID, fmt.Sprint(len(r.Results), r.Results[0].Index, r.Results[1].RelevanceScore)}, err
		}, micro(6), "2 1 1"},
		"pictures": {sim.New(sim.Options{}), func(ctx context.Context, h *testGateway) (result, error) {
			return pictures(h.Images(ctx, &images.Request{Model: "alpha-image-2.0", Input: cube, Parameters: &images.Parameters{Size: "1280*720"}}))
		}, 35_000_000, "1 \x89PNG"},
		"pictures, not streamed": {sim.New(sim.Options{}), func(ctx context.Context, h *testGateway) (result, error) {
			return pictures(h.Images(ctx, &images.Request{Model: "imagegen-2", Prompt: "a red cube", N: 2, Stream: true}))
		}, 2 * 1056 * 1000, "2 \x89PNG"},
		"an edit": {sim.New(sim.Options{}), func(ctx context.Context, h *testGateway) (result, error) {
			return pictures(h.EditImage(ctx, &images.Edit{Model: "imagegen-2", Prompt: "blue", Images: []images.File{source, source}, Mask: &source, N: 2, Quality: "hd", Stream: true}))
		}, 2 * 1056 * 1000, "2 \x89PNG"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestGateway(t, row.up, "10", func(o *gateway.Options) {
				o.Prices = billing.NewPriceList(map[string]*billing.Price{
					"m": price(t, "1", "1"), "alpha-image-2.0": rates(t, "image", "0.035"), "imagegen-2": rates(t, "image_output", "1"),
				})
			})
			r, err := row.call(t.Context(), h)
			if err != nil || r.charge != row.charge || r.content != row.content {
				t.Fatalf("%+v, %v, want a charge of %s for %s", r, err, row.charge, row.content)
			}
			if receipt, err := h.ledger.Receipt(t.Context(), "local", r.id); err != nil || receipt.Charge != row.charge {
				t.Errorf("receipt %+v, %v", receipt, err)
			}
		})
	}
}

func TestAnAnswerOfAnotherFormIsAnErrorBesideItsCharge(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{text: `{"data":[{"index":0,"embedding":[1,oops]}],"usage":{"prompt_tokens":2,"total_tokens":2}}`}, "1", nil)
	r, err := h.Embeddings(t.Context(), &embeddings.Request{Model: "m", Input: embeddings.Text("hello")})
	if !fault.Is(err, fault.BadGateway) || r == nil || r.Charge != micro(2) || len(r.Raw) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestATypedRequestIsCheckedAsARawOne(t *testing.T) {
	h := newTestGateway(t, sim.New(sim.Options{}), "1", nil)
	for want, call := range map[string]func() error{
		"max_completion_tokens": func() error {
			_, err := h.Chat(t.Context(), &chat.Request{Model: "m", MaxTokens: 1, MaxCompletionTokens: 30_000, Messages: chatRequest().Messages})
			return err
		},
		"input": func() error {
			_, err := h.Images(t.Context(), &images.Request{Model: "alpha-image-2.0", Prompt: "a"})
			return err
		},
		"image": func() error {
			_, err := h.EditImage(t.Context(), &images.Edit{Model: "imagegen-2", Prompt: "blue"})
			return err
		},
	} {
		if f := fault.From(call()); f == nil || f.Code != fault.InvalidRequest || f.Param != want {
			t.Errorf("%v, want a refusal of %s", f, want)
		}
	}
}

func TestATypedStreamYieldsChunksAndItsErrorLast(t *testing.T) {
	for _, c := range []struct {
		name, text string
		chunks     int
		code       fault.Code
	}{
		{"complete", chatStream(usageChunk(20, 30)), 6, ""},
		{"cut", chunk(`{"content":"four"}`), 1, fault.BadGateway},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTestGateway(t, &scriptedUpstream{text: c.text}, "1.00", nil)
			s, err := h.ChatStream(t.Context(), &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}})
			must(t, err)
			n := 0
			var last error
			for chunk, err := range s.Chunks() {
				if last = err; err == nil && chunk.Model == "m" {
					n++
				}
			}
			if n != c.chunks || (c.code != "") != fault.Is(last, c.code) {
				t.Errorf("%d chunks, then %v", n, last)
			}
			if _, ok := s.Receipt(); !ok {
				t.Error("there is no receipt")
			}
		})
	}
}

func TestBreakingOutOfATypedStreamSettlesIt(t *testing.T) {
	var stopped atomic.Bool
	h := newTestGateway(t, chat.ServeStream(exactly, endless(&stopped)), "1.00", nil)
	s, err := h.ChatStream(t.Context(), &chat.Request{Model: "m", MaxTokens: 500, Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}})
	must(t, err)
	for _, err := range s.Chunks() {
		must(t, err)
		break
	}
	if r, ok := s.Receipt(); !ok || r.Reason != billing.ReasonClientGone || r.Usage.Output == 0 || r.Charge == 0 {
		t.Errorf("receipt %+v", r)
	}
	if !stopped.Load() {
		t.Error("the upstream goes on")
	}
}

// TestAModelInGoOfOneWireAnswersTheOthers asks models that are functions, of each wire,
// by the typed methods of all.
func TestAModelInGoOfOneWireAnswersTheOthers(t *testing.T) {
	for name, up := range map[string]upstream.Upstream{
		"chat": chat.Serve(func(_ context.Context, r *chat.Request) (*chat.Response, error) {
			said := "you said " + r.Messages[len(r.Messages)-1].Content.String()
			return &chat.Response{Choices: []chat.Choice{{Message: chat.Message{Role: "assistant", Content: chat.Text(said)}, FinishReason: "stop"}}, Usage: &chat.Usage{PromptTokens: 3, CompletionTokens: 2}}, nil
		}),
		"messages": messages.Serve(func(_ context.Context, r *messages.Request) (*messages.Response, error) {
			said := "you said " + r.Messages[len(r.Messages)-1].Content.String()
			end := "end_turn"
			return &messages.Response{Type: "message", Role: "assistant", Content: []messages.Block{{Type: "text", Text: said}}, StopReason: &end, Usage: messages.Usage{InputTokens: 3, OutputTokens: 2}}, nil
		}),
		"responses": responses.Serve(func(_ context.Context, r *responses.Request) (*responses.Response, error) {
			items, err := r.Input.Items()
			if err != nil {
				return nil, err
			}
			said := "you said " + items[len(items)-1].Content.String()
			return &responses.Response{
				Object: "response", Status: "completed",
				Output: []responses.Item{{Type: "message", Role: "assistant", Content: responses.Parts(responses.Part{Type: "output_text", Text: said})}},
				Usage:  &responses.Usage{InputTokens: 3, OutputTokens: 2, TotalTokens: 5},
			}, nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			const want = "you said hi"
			h := newTestGateway(t, up, "1", nil)
			completion, err := h.Chat(t.Context(), &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}})
			if err != nil || completion.Choices[0].Message.Content.String() != want {
				t.Errorf("chat: %+v, %v", completion, err)
			}
			message, err := h.Messages(t.Context(), &messages.Request{Model: "m", MaxTokens: 50, Messages: []messages.Message{{Role: "user", Content: messages.Text("hi")}}})
			if err != nil || message.Content[0].Text != want {
				t.Errorf("messages: %+v, %v", message, err)
			}
			response, err := h.Responses(t.Context(), &responses.Request{Model: "m", Input: responses.Text("hi")})
			if err != nil || response.Text() != want {
				t.Errorf("responses: %+v, %v", response, err)
			}
			if spent := h.spent(t); spent != 3*5*1_000 {
				t.Errorf("paid %s", spent)
			}
		})
	}
}

// TestACallInProcessReturnsWithItsContext has a vendor that answers after the context of its
// caller has ended: the call runs on, is charged, and kept under its key.
func TestACallInProcessReturnsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			time.Sleep(10 * time.Second) // virtual
			return (&scriptedUpstream{text: chatAnswer(reported)}).Do(ctx, c)
		})
		h := newTestGateway(t, up, "1.00", nil)
		ctx := gateway.WithIdempotencyKey(t.Context(), "k")
		timed, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		before := time.Now()
		_, err := h.Chat(timed, chatRequest())
		if took := time.Since(before); !errors.Is(err, context.DeadlineExceeded) || !fault.Is(err, fault.RequestTimeout) || took != time.Second {
			t.Errorf("%v after %s", err, took)
		}
		time.Sleep(time.Minute)
		if h.spent(t) != micro(50) {
			t.Errorf("spent %s", h.spent(t))
		}
		if _, err := h.Chat(ctx, chatRequest()); err != nil || time.Since(before) > 2*time.Minute || h.spent(t) != micro(50) {
			t.Errorf("again %v, spent %s", err, h.spent(t))
		}
	})
}

// TestAStreamInProcessFailsWithItsContext reads half of a stream in each form. What the client
// got must not look whole.
func TestAStreamInProcessFailsWithItsContext(t *testing.T) {
	read := map[string]func(ctx context.Context, h *testGateway, half func()) error{
		"chat": func(ctx context.Context, h *testGateway, half func()) error {
			s, err := h.ChatStream(ctx, chatRequest())
			for _, failed := range s.Chunks() {
				half()
				err = failed
			}
			return err
		},
		"messages": func(ctx context.Context, h *testGateway, half func()) error {
			s, err := h.MessagesStream(ctx, &messages.Request{Model: "m", MaxTokens: 100, Messages: []messages.Message{{Role: "user", Content: messages.Text("hi")}}})
			for _, failed := range s.Events() {
				half()
				err = failed
			}
			return err
		},
		"responses": func(ctx context.Context, h *testGateway, half func()) error {
			s, err := h.ResponsesStream(ctx, &responses.Request{Model: "m", Input: responses.Text("hi")})
			for _, failed := range s.Events() {
				half()
				err = failed
			}
			return err
		},
		"raw": func(ctx context.Context, h *testGateway, half func()) error {
			x, err := h.ask(ctx, askChatStream)
			if err != nil {
				return err
			}
			defer x.Close()
			for {
				_, err := x.Stream.Next()
				if err != nil {
					if err == io.EOF {
						return nil
					}
					return err
				}
				half()
			}
		},
	}
	for name, read := range read {
		for _, drain := range []time.Duration{0, 30 * time.Second} {
			for how, end := range map[string]error{"deadline": context.DeadlineExceeded, "cancel": context.Canceled} {
				t.Run(fmt.Sprintf("%s, %s, drain %s", name, how, drain), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						vendor := answering{upstream.ChatCompletion, &reasoningVendor{pause: 10 * time.Second}}
						h := newTestGateway(t, newRouter(t, router.Channel{Name: "c0", Upstream: vendor, Models: map[string]string{"m": "m"}, Drain: drain}), "1.00", nil)
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						defer cancel()
						err := read(ctx, h, func() {
							if how == "cancel" {
								cancel()
							}
						})
						var f *fault.Error
						if !errors.Is(err, end) || !errors.As(err, &f) {
							t.Errorf("%v, want %v", err, end)
						}
					})
				})
			}
		}
	}
}
