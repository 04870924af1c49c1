// Package speech is the text-to-speech capability: its requests and answers, and
// models that are written in Go.
// A *gateway.Gateway answers requests; g stands for one here:
//
//	audio, err := g.Speech(ctx, &speech.Request{Model: "my-model", Input: "Hello."})
//	defer audio.Close()
//	_, err = io.Copy(file, audio)          // what it costs is known at its end: audio.Receipt
//	up := speech.Serve(handler)            // a model that is a Go function
package speech

import (
	"context"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The formats that the public API names. A model that no table describes may
// have the others of OpenAI's.
const (
	MP3 = "mp3"
	WAV = "wav"
)

// Request is a request for speech. A field that the API does not name goes into
// Extra and travels unchanged.
type Request struct {
	Model          string  `json:"model"`
	Input          string  `json:"input"` // the text to speak
	Voice          string  `json:"voice,omitzero"`
	ResponseFormat string  `json:"response_format,omitzero"` // [MP3] or [WAV]
	Instructions   string  `json:"instructions,omitzero"`    // tone, pace and emotion, in words
	Speed          float64 `json:"speed,omitzero"`           // has no effect on the models that the API names

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field

	// TakesWAV tells an upstream that it may answer with WAV whatever the format: the gateway
	// makes an MP3 of it. The gateway sets it.
	TakesWAV bool `json:"-"`
}

// MarshalJSON writes the members of Extra beside the others, also for the classic
// encoding/json, which does not know embedded members.
func (r Request) MarshalJSON() ([]byte, error) {
	type members Request
	return json.Marshal(members(r))
}

// Body is audio on its way, and what it cost.
type Body interface {
	io.ReadCloser
	// Receipt is what the call cost; false until it has ended.
	Receipt() (billing.Receipt, bool)
}

// Response is spoken text. Its bytes come as the upstream makes them; read them
// to io.EOF, by when the call is charged, and close it. Any other error means
// that the audio is not whole. It is for one goroutine.
type Response struct {
	ContentType string // "audio/mpeg", "audio/wav", …
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string

	Body // the audio
}

// Handler speaks in Go: it returns the audio and its content type. It is safe
// for concurrent use. An error that is a *fault.Error reaches the caller as it
// is; any other becomes an internal error without details. When ctx ends, a
// Read of the audio must end too. The request is read-only.
type Handler func(ctx context.Context, r *Request) (audio io.ReadCloser, contentType string, err error)

// Serve makes an upstream of a Go function.
func Serve(h Handler) upstream.Upstream { return served{h} }

type served struct{ speak Handler }

// Supports says that only speech is served.
func (served) Supports(op upstream.Op, _ string) bool { return op == upstream.Speech }

// Do calls the handler.
func (s served) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	r, err := funcmodel.View[Request](call)
	if err != nil {
		return nil, err
	}
	audio, kind, err := s.speak(ctx, r)
	if err != nil {
		return nil, fault.From(err)
	}
	return funcmodel.Reply(kind, audio), nil
}

// Encoder makes MP3 of samples. It is safe for concurrent use.
type Encoder interface {
	// Ready fails if no MP3 can be made. The gateway calls it before a request whose answer may
	// need encoding.
	Ready() error
	// Encode begins to read samples, from another goroutine, and returns the MP3. That ends
	// with io.EOF once samples did and all of it was encoded, and with another error whenever
	// it is not whole. Close ends it early and returns when samples are not read any more. The
	// caller ensures that a Read of them does not wait then. So does the end of ctx.
	Encode(ctx context.Context, form PCM, samples io.Reader) (io.ReadCloser, error)
}

// PCM is the form of the samples of a WAV file.
type PCM struct {
	Channels int
	Rate     int // samples per second
	Bits     int // of one sample
}
