package goopenai

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"

	"github.com/sashabaranov/go-openai"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	driver "github.com/tollhouse-ai/gateway/upstream/openai"
)

// Upstream makes an upstream of a client: chat completions, whole and streamed, embeddings,
// images and speech. Give it to gateway.Options, or to a channel of a router beside others. Edits
// of images are not among them: go-openai sends fields with them that vendors refuse.
//
// Errors are those of any vendor. A 400 is the caller's; a 401, a 429, a 5xx and a broken
// connection lead to another channel. A request that the client itself refuses is not sent, nor
// is one with a part that go-openai cannot carry (audio, files). Another channel is asked then;
// without one the caller gets a 400.
//
// Members of a request that go-openai has no field for are left out and listed in the Reply's
// Dropped, as "top_k" or "messages.content.cache_control". A stream keeps all members of the
// vendor's answer; a whole answer keeps those that go-openai has a field for.
//
// The usage of a stream is always asked for. go-openai does not tell whether a stream ended with
// "[DONE]", so a stream counts as complete if each candidate has a finish_reason.
//
// The client belongs to the caller. The Upstream needs no Close and is safe for concurrent use.
func Upstream(c *openai.Client) upstream.Upstream {
	// The driver of OpenAI's API makes errors and streams of the client's answers. It fails for
	// no such options.
	d, err := driver.New(upstream.DriverOptions{
		BaseURL: "http://client.invalid/v1", Transport: roundTripper{}, DoneOptional: true, Wire: []upstream.Op{upstream.ChatCompletion},
	})
	return &clientUpstream{c, d, err}
}

// clientUpstream is an upstream that asks a client.
type clientUpstream struct {
	client *openai.Client
	driver upstream.Driver
	err    error // of the driver
}

// Supports reports whether the client has a method for the operation.
func (u *clientUpstream) Supports(op upstream.Op, _ string) bool {
	switch op {
	case upstream.ChatCompletion, upstream.Embeddings, upstream.GenerateImage, upstream.Speech:
		return true
	}
	return false
}

// Do asks the client once.
func (u *clientUpstream) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if u.err != nil || !u.Supports(call.Op, call.Model) {
		return nil, fault.Wrap(fault.InternalError, "The gateway sent the request to a channel that cannot serve it.", u.err)
	}
	ask, dropped, err := u.question(call)
	if err != nil {
		return nil, notSent(err)
	}
	reply, err := u.driver.Do(context.WithValue(ctx, questionContext{}, ask), call)
	switch {
	case errors.Is(err, openai.ErrChatCompletionInvalidModel):
		return nil, notSent(err)
	case err != nil:
		return nil, err
	}
	reply.Dropped = dropped
	return reply, nil
}

// notSent is the error of a request that cannot be put to the client, or that it refuses.
func notSent(err error) error {
	return upstream.NotSent(fault.Wrap(fault.InvalidRequest, "The request cannot be made with go-openai's client: "+err.Error()+".", err))
}

// question puts one request to the client, and makes the vendor's response of what it
// returns.
type question func(ctx context.Context) (*http.Response, error)

type questionContext struct{}

// roundTripper answers the driver's requests by the question in their context.
type roundTripper struct{}

// RoundTrip asks the client.
func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close() // the question has the request
	}
	ask, ok := r.Context().Value(questionContext{}).(question)
	if !ok {
		return nil, errors.New("there is no question in the context")
	}
	return ask(r.Context())
}

// question reads a request of the public wire into the client's type. dropped are the members
// that the type cannot carry.
func (u *clientUpstream) question(call *upstream.Call) (ask question, dropped []string, err error) {
	body, err := object(call.Body)
	switch {
	case err != nil:
		return nil, nil, err
	case call.Stream && call.Op != upstream.ChatCompletion:
		return nil, nil, errors.New("it streams chat completions only")
	}
	switch call.Op {
	case upstream.Embeddings:
		r := embeddingRequest(body)
		return func(ctx context.Context) (*http.Response, error) { return u.embed(ctx, r) }, nil, nil
	case upstream.GenerateImage:
		var r openai.ImageRequest
		dropped, err = read(body, &r, "prompt")
		return func(ctx context.Context) (*http.Response, error) { return u.image(ctx, r) }, dropped, err
	case upstream.Speech:
		var r openai.CreateSpeechRequest
		dropped, err = read(body, &r, "input", "voice")
		return func(ctx context.Context) (*http.Response, error) { return u.speak(ctx, r) }, dropped, err
	}
	r, dropped, err := chatRequest(body)
	if err == nil && errors.Is(openai.NewReasoningValidator().Validate(r), openai.ErrReasoningModelMaxTokensDeprecated) {
		r, dropped, err = chatRequest(body.Rename("max_tokens", "max_completion_tokens")) // which bound the same
	}
	if err != nil {
		return nil, nil, err
	}
	ask = func(ctx context.Context) (*http.Response, error) { return u.chat(ctx, r) }
	if call.Stream {
		r.Stream, r.StreamOptions = true, &openai.StreamOptions{IncludeUsage: true}
		ask = func(ctx context.Context) (*http.Response, error) { return u.stream(ctx, r) }
	}
	return ask, dropped, openai.NewReasoningValidator().Validate(r)
}

// chat asks for a whole answer. What go-openai marks as missing by a zero value is left out:
// counts above all, which would make the answer free.
func (u *clientUpstream) chat(ctx context.Context, r openai.ChatCompletionRequest) (*http.Response, error) {
	answer, err := u.client.CreateChatCompletion(ctx, r)
	type choice struct {
		openai.ChatCompletionChoice
		ContentFilterResults *openai.ContentFilterResults `json:"content_filter_results,omitempty"`
	}
	choices := make([]choice, len(answer.Choices))
	for i, c := range answer.Choices {
		choices[i] = choice{c, unlessZero(c.ContentFilterResults)}
	}
	return document(answer.Header(), err, struct {
		openai.ChatCompletionResponse
		Choices []choice      `json:"choices"`
		Usage   *openai.Usage `json:"usage,omitempty"`
	}{answer, choices, unlessZero(answer.Usage)})
}

// stream asks for a stream.
func (u *clientUpstream) stream(ctx context.Context, r openai.ChatCompletionRequest) (*http.Response, error) {
	s, err := u.client.CreateChatCompletionStream(ctx, r)
	if err != nil {
		return refusal(nil, err)
	}
	return response(http.StatusOK, nil, "text/event-stream", &events{stream: s}), nil
}

// embed asks for vectors, which are in base64 if the caller wants them so.
func (u *clientUpstream) embed(ctx context.Context, r openai.EmbeddingRequest) (*http.Response, error) {
	answer, err := u.client.CreateEmbeddings(ctx, r)
	type vector struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	vectors := make([]vector, len(answer.Data))
	for i, v := range answer.Data {
		vectors[i] = vector{v.Object, v.Index, v.Embedding}
		if r.EncodingFormat == openai.EmbeddingEncodingFormatBase64 {
			var packed []byte
			for _, x := range v.Embedding {
				packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(x))
			}
			vectors[i].Embedding = base64.StdEncoding.EncodeToString(packed)
		}
	}
	return document(answer.Header(), err, struct {
		Object string                `json:"object"`
		Data   []vector              `json:"data"`
		Model  openai.EmbeddingModel `json:"model"`
		Usage  *openai.Usage         `json:"usage,omitempty"`
	}{answer.Object, vectors, answer.Model, unlessZero(answer.Usage)})
}

// image asks for images.
func (u *clientUpstream) image(ctx context.Context, r openai.ImageRequest) (*http.Response, error) {
	answer, err := u.client.CreateImage(ctx, r)
	return document(answer.Header(), err, struct {
		openai.ImageResponse
		Usage *openai.ImageResponseUsage `json:"usage,omitempty"`
	}{answer, unlessZero(answer.Usage)})
}

// speak asks for audio, which streams.
func (u *clientUpstream) speak(ctx context.Context, r openai.CreateSpeechRequest) (*http.Response, error) {
	answer, err := u.client.CreateSpeech(ctx, r)
	if err != nil {
		return refusal(nil, err)
	}
	return response(http.StatusOK, answer.Header(), answer.Header().Get("Content-Type"), answer), nil
}

// unlessZero is v, or nil if it is zero.
func unlessZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// document is the response with a whole answer, or with the error that the client returned.
func document(h http.Header, err error, answer any) (*http.Response, error) {
	if err != nil {
		return refusal(h, err)
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return response(http.StatusOK, nil, "application/json", io.NopCloser(bytes.NewReader(data))), nil
}

// refusal is the response of which the client made an error. Any other error is of the
// connection, or of an answer without its form. h may be nil.
func refusal(h http.Header, err error) (*http.Response, error) {
	var said *openai.APIError
	var unread *openai.RequestError
	var status int
	var body []byte
	switch {
	case errors.As(err, &said):
		status = said.HTTPStatusCode
		body, _ = json.Marshal(openai.ErrorResponse{Error: said})
	case errors.As(err, &unread):
		status, body = unread.HTTPStatusCode, unread.Body
	default:
		return nil, err
	}
	return response(status, h, "application/json", io.NopCloser(bytes.NewReader(body))), nil
}

// response is a response of the vendor with those of its headers that the driver reads.
func response(status int, from http.Header, contentType string, body io.ReadCloser) *http.Response {
	h := http.Header{"Content-Type": {contentType}}
	for _, name := range []string{"Retry-After", "Retry-After-Ms"} {
		if values := from[name]; values != nil {
			h[name] = values
		}
	}
	return &http.Response{StatusCode: status, Header: h, Body: body, ContentLength: -1}
}

// events is a stream of the client as server-sent events. Only Close is safe for concurrent
// use.
type events struct {
	stream *openai.ChatCompletionStream
	rest   []byte // of the event that was received last
	err    error  // after it
}

// Read receives the next event. An error that the vendor reports within the stream is an
// event.
func (e *events) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		data, err := e.stream.RecvRaw()
		var said *openai.APIError
		if errors.As(err, &said) {
			data, _ = json.Marshal(openai.ErrorResponse{Error: said})
			e.err = io.EOF
		} else if err != nil {
			e.err = err
			continue
		}
		e.rest = append(append(append(e.rest[:0], "data: "...), data...), "\n\n"...)
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// Close ends the stream.
func (e *events) Close() error { return e.stream.Close() }
