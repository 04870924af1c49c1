package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image/png"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	openai "github.com/openai/openai-go/v3"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

const generations = "/v1/images/generations"

// newImagesFixture serves image models; a picture costs a tenth.
func newImagesFixture(t *testing.T, o fixtureOptions) *fixture {
	t.Helper()
	if o.upstream == nil {
		o.upstream = sim.New(sim.Options{})
	}
	up := o.upstream
	o.gateway = func(options *gateway.Options) {
		models, prices := map[string]string{}, map[string]*billing.Price{}
		for _, id := range []string{"alpha-image-2.0", "alpha-image-edit", "imagegen-2", "imagegen-legacy-2", "delta-k3"} {
			models[id], prices[id] = id, rates(t, "image", "0.1")
		}
		options.Upstream, options.Prices = channels(t, router.Channel{Upstream: up, Models: models}), billing.NewPriceList(prices)
	}
	return newFixture(t, o)
}

const redCube = `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"a red cube"}]}]},"parameters":{"size":"1280*720"}}`

func TestTheAlphaFormGetsALinkAndOurRequestID(t *testing.T) {
	s := newImagesFixture(t, fixtureOptions{})
	a := s.do(t, "POST", generations, redCube)
	var r struct {
		RequestID string `json:"request_id"`
		Output    struct {
			Choices []struct {
				FinishReason string `json:"finish_reason"`
				Message      struct {
					Role    string
					Content []struct{ Image string }
				}
			}
		}
		Usage map[string]int64
	}
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || a.status != 200 || len(r.Output.Choices) != 1 {
		t.Fatalf("%d %.200s, %v", a.status, a.body, err)
	}
	c := r.Output.Choices[0]
	if r.RequestID != a.header.Get("X-Request-Id") || c.FinishReason != "stop" || c.Message.Role != "assistant" || !maps.Equal(r.Usage, map[string]int64{"image_count": 1, "width": 1280, "height": 720}) {
		t.Errorf("%s, %+v, usage %v", a.header, r.RequestID, r.Usage)
	}
	data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(c.Message.Content[0].Image, "data:image/png;base64,"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := png.Decode(bytes.NewReader(data)); err != nil || m.Bounds().Dx() != 1280 || m.Bounds().Dy() != 720 {
		t.Errorf("the picture is no PNG of its size: %v", err)
	}
	if s.posted(t) != billing.One-billing.One/10 || a.header.Get("X-Gateway-Charge") != "0.10" {
		t.Errorf("posted %s, %s", s.posted(t), a.header.Get("X-Gateway-Charge"))
	}
}

// keyed are the members of an object, sorted.
func keyed(t *testing.T, raw []byte) []string {
	t.Helper()
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return slices.Sorted(maps.Keys(o))
}

func TestEveryErrorOfGenerationsHasBothForms(t *testing.T) {
	vendor := &fault.Error{
		Code: "InvalidParameter", Message: "size is wrong", Status: 400, Body: []byte(`{"request_id":"theirs","code":"InvalidParameter","message":"size is wrong","more":1.0}`),
		Err: &upstream.Failure{Status: 400, Sent: true},
	}
	official := vendor.With(func(e *fault.Error) {
		e.Code, e.Body = "invalid_value", []byte(`{"error":{"message":"size is wrong","type":"image_generation_user_error","code":"invalid_value"}}`)
	})
	busy := (&upstream.Failure{Status: 429, Sent: true, Refused: true}).Fault()
	for _, row := range []struct {
		name, body string
		up         error
		edit       func(*fixtureOptions)
		header     []string
		status     int
		code, kind string
		members    string
	}{
		{name: "a rule", body: strings.Replace(redCube, "1280*720", "1*1", 1), status: 400, code: "invalid_request_error", kind: "invalid_request_error"},
		{name: "no JSON", body: `{`, status: 400, code: "invalid_request_error", kind: "invalid_request_error"},
		{name: "no key", body: redCube, header: []string{"Authorization: Bearer sk-no"}, status: 401, code: "unauthorized", kind: "authentication_error"},
		{name: "no money", body: redCube, edit: func(o *fixtureOptions) { o.credit = 1 }, status: 402, code: "insufficient_balance", kind: "insufficient_balance"},
		{name: "the vendor's rate", body: redCube, up: busy, status: 429, code: "Throttling.RateQuota", kind: "rate_limit_error"},
		{name: "the vendor's words", body: redCube, up: vendor, status: 400, code: "InvalidParameter", kind: "invalid_request_error", members: "more"},
		{name: "OpenAI's words", body: `{"model":"imagegen-2","prompt":"a"}`, up: official, status: 400, code: "invalid_value", kind: "image_generation_user_error"},
		{name: "a vendor that is away", body: redCube, up: (&upstream.Failure{}).Fault(), status: 502, code: "service_unavailable", kind: "api_error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var o fixtureOptions
			if row.up != nil {
				o.upstream = failing{row.up}
			}
			if row.edit != nil {
				row.edit(&o)
			}
			s := newImagesFixture(t, o)
			a := s.do(t, "POST", generations, row.body, row.header...)
			var flat struct {
				Code, Message string
				RequestID     string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(a.body), &flat); err != nil {
				t.Fatal(err)
			}
			e := a.errorOf(t)
			if a.status != row.status || flat.Code != row.code || e.Code != row.code || e.Type != row.kind || flat.Message != e.Message || flat.RequestID != a.header.Get("X-Request-Id") {
				t.Errorf("%d %s", a.status, a.body)
			}
			want := []string{"code", "error", "message", "request_id"}
			if row.members != "" {
				want = slices.Sorted(slices.Values(append(want, row.members)))
			}
			if got := keyed(t, []byte(a.body)); !slices.Equal(got, want) {
				t.Errorf("members %v, want %v", got, want)
			}
		})
	}
}

// failing is an upstream that always fails the same way.
type failing struct{ err error }

func (f failing) Do(context.Context, *upstream.Call) (*upstream.Reply, error) { return nil, f.err }

func TestARateRefusalOfOursIsThrottlingOnGenerations(t *testing.T) {
	s := newImagesFixture(t, fixtureOptions{key: auth.KeyOptions{Limits: auth.Limits{RPM: 1}}})
	if a := s.do(t, "POST", generations, redCube); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a := s.do(t, "POST", generations, redCube)
	if e := a.errorOf(t); a.status != 429 || e.Code != "Throttling.RateQuota" || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
}

func isPNG(t *testing.T, b64 string) {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := png.DecodeConfig(bytes.NewReader(data)); err != nil {
		t.Errorf("no PNG: %v", err)
	}
}

func TestOpenAIGoMakesPictures(t *testing.T) {
	s := newImagesFixture(t, fixtureOptions{})
	c := openAIClient(s)
	r, err := c.Images.Generate(t.Context(), openai.ImageGenerateParams{
		Model: "imagegen-2", Prompt: "a red cube", N: openai.Int(2), Size: openai.ImageGenerateParamsSize1024x1024, Quality: openai.ImageGenerateParamsQualityLow,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Data) != 2 || r.Usage.OutputTokens == 0 || r.Usage.InputTokensDetails.TextTokens == 0 || r.Created == 0 || s.posted(t) != billing.One*8/10 {
		t.Errorf("%d pictures, usage %+v, posted %s", len(r.Data), r.Usage, s.posted(t))
	}
	isPNG(t, r.Data[1].B64JSON)
	legacy, err := c.Images.Generate(t.Context(), openai.ImageGenerateParams{
		Model: "imagegen-legacy-2", Prompt: "a", Size: "256x256", ResponseFormat: openai.ImageGenerateParamsResponseFormatURL,
	})
	if err != nil || !strings.HasPrefix(legacy.Data[0].URL, "data:image/png;base64,") {
		t.Errorf("%+v, %v", legacy, err)
	}
	_, err = c.Images.Generate(t.Context(), openai.ImageGenerateParams{Model: "imagegen-2", Prompt: "a", N: openai.Int(11)})
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != 400 || e.Param != "n" || e.Code != "invalid_request_error" || e.Message == "" {
		t.Errorf("%+v", err)
	}
}

func TestOpenAIGoStreamsPartialPictures(t *testing.T) {
	s := newImagesFixture(t, fixtureOptions{})
	c := openAIClient(s)
	st := c.Images.GenerateStreaming(t.Context(), openai.ImageGenerateParams{Model: "imagegen-2", Prompt: "a red cube", PartialImages: openai.Int(2)})
	var kinds []string
	for st.Next() {
		e := st.Current()
		kinds = append(kinds, e.Type)
		isPNG(t, e.B64JSON)
	}
	want := []string{"image_generation.partial_image", "image_generation.partial_image", "image_generation.completed"}
	if st.Err() != nil || !slices.Equal(kinds, want) {
		t.Errorf("%v, %v", kinds, st.Err())
	}
	if s.posted(t) != billing.One*9/10 {
		t.Errorf("posted %s", s.posted(t))
	}
}

// A vendor makes the pictures that it was asked for, whoever leaves.
func TestAClientThatHangsUpBeforeItsPicturesPaysForThemWithAKeyToo(t *testing.T) {
	for _, key := range []string{"", "Idempotency-Key: k"} {
		t.Run(key, func(t *testing.T) {
			asked, gone := make(chan struct{}), make(chan struct{})
			s := newImagesFixture(t, fixtureOptions{upstream: upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
				close(asked)
				<-ctx.Done()
				close(gone)
				return nil, (&upstream.Failure{Sent: true, Err: ctx.Err()}).Fault()
			})})
			const body = `{"model":"imagegen-2","prompt":"a red cube","n":2}`
			before := s.posted(t)
			ctx, cancel := context.WithCancel(t.Context())
			req := s.request(t, ctx, generations, strings.NewReader(body))
			if name, value, ok := strings.Cut(key, ": "); ok {
				req.Header.Set(name, value)
			}
			done := make(chan error, 1)
			go func() {
				_, err := s.client.Do(req)
				done <- err
			}()
			<-asked
			cancel()
			<-gone
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			for s.g.Load().Running > 0 { // its end is not the client's to see
				select {
				case <-t.Context().Done():
					t.Fatal("the call does not end")
				case <-time.After(time.Millisecond):
				}
			}
			if spent := before - s.posted(t); spent != 2*billing.One/10 {
				t.Errorf("spent %s", spent)
			}
			if key == "" {
				return
			}
			a := s.do(t, "POST", generations, body, key)
			if a.status != 409 || a.errorOf(t).Code != "idempotency_conflict" || a.header.Get("X-Should-Retry") != "false" {
				t.Errorf("a duplicate: %d %v %s", a.status, a.header, a.body)
			}
		})
	}
}
