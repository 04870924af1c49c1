package dashscope

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// spoken is what the vendor calls 24 kHz PCM.
func spoken() speech.PCM { return speech.PCM{Channels: 1, Rate: 24_000, Bits: 16} }

// speak asks for speech as a stream of events, and replies with the WAV file
// that they carry. The request is translated: `input` and `voice` keep their
// names, `instructions` goes to the models that take it, and `response_format`,
// `speed` and every field that api.md does not name have no place in the
// vendor's wire.
func (u *Upstream) speak(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	r, err := speech.ReadCall(call)
	if err != nil {
		return nil, err
	}
	if !r.TakesWAV {
		return nil, speech.CannotEncode(nil)
	}
	data, err := json.Marshal(translate(call.Model, r))
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request cannot be written as JSON.", err)
	}
	ctx = httpdo.Following(ctx)
	h := header("Accept", "text/event-stream", "X-DashScope-SSE", "enable")
	resp, key, err := u.client.Post(ctx, u.generate, h, upstream.BytesBody(data))
	if err != nil {
		return nil, err
	}
	body, err := u.audio(ctx, resp)
	httpdo.Judge(key, err)
	if err != nil {
		return nil, worded(err)
	}
	return &upstream.Reply{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {speech.ContentType(speech.WAV)}}, Body: body,
		Dropped: droppedFields(r),
	}, nil
}

// droppedFields are the fields that the vendor's wire has no place for, but for the
// format, which is the gateway's business.
func droppedFields(r *speech.Request) []string {
	carried := []string{"model", "input", "voice", "instructions", "response_format", "stream_format"}
	return dropped.Bounded(slices.DeleteFunc(r.Names(), func(name string) bool { return slices.Contains(carried, name) }))
}

// speechRequest is the vendor's form.
type speechRequest struct {
	Model string      `json:"model"`
	Input speechInput `json:"input"`
}

type speechInput struct {
	Text         string `json:"text"`
	Voice        string `json:"voice,omitzero"`
	Language     string `json:"language_type"`
	Instructions string `json:"instructions,omitzero"`
}

func translate(model string, r *speech.Request) speechRequest {
	return speechRequest{model, speechInput{
		Text: r.Input, Voice: r.Voice, Language: "Auto", Instructions: r.Instructions,
	}}
}

// mismatches are the codes of what api.md calls an unsupported model, an
// unknown voice or an empty input.
var mismatches = map[fault.Code]bool{
	"BadRequest.EmptyInput": true, "BadRequest.EmptyModel": true, "InternalError.Algo.InvalidParameter": true,
	"InvalidParameter": true, "ModelNotFound": true, "model_not_supported": true,
}

// worded gives a refusal the word that api.md has for it on this endpoint, and
// keeps the vendor's message.
func worded(err error) error {
	e := fault.From(err)
	if !mismatches[e.Code] {
		return err
	}
	return e.With(func(e *fault.Error) { e.Code, e.Status = fault.EndpointModelMismatch, http.StatusBadRequest })
}

// audio is the WAV file of an answer: of its events, or of one document.
func (u *Upstream) audio(ctx context.Context, resp *http.Response) (io.ReadCloser, error) {
	body, err := u.client.Body(resp, u.refused)
	if err != nil {
		return nil, err
	}
	switch kind := resp.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/event-stream"):
		return u.pieces(ctx, body)
	case kind == "", strings.HasPrefix(kind, "application/json"):
		return u.document(ctx, body, resp.Header)
	default:
		_ = body.Close()
		return nil, u.client.Malformed(resp.StatusCode, fmt.Errorf("a request for speech was answered with content type %q", u.client.Excerpt(kind)))
	}
}

// document is the answer of a vendor that does not stream: the audio is in it,
// or behind its link.
func (u *Upstream) document(ctx context.Context, body io.ReadCloser, h http.Header) (io.ReadCloser, error) {
	const most = 256 << 20
	data, err := io.ReadAll(io.LimitReader(body, most))
	_ = body.Close()
	if err != nil {
		return nil, u.cut(ctx, err)
	}
	p, err := u.piece(data, h)
	switch {
	case err != nil:
		return nil, err
	case len(p.audio) > 0:
		return io.NopCloser(strings.NewReader(string(framed(p.audio)))), nil
	case p.link != "":
		return u.fetch(ctx, p.link)
	}
	return nil, u.client.Malformed(http.StatusOK, fmt.Errorf("an answer without audio: %s", u.client.Excerpt(string(data))))
}

// cut is the error of an answer that broke off.
func (u *Upstream) cut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.From(ctx.Err()).With(func(e *fault.Error) { e.Err = &upstream.Failure{Sent: true, Err: err} })
	}
	return u.client.Malformed(http.StatusOK, err)
}

// piece is one document of an answer.
type piece struct {
	audio []byte
	link  string
	last  bool
}

func (u *Upstream) piece(data []byte, h http.Header) (p piece, err error) {
	if _, bad := parseRefusal(data); bad {
		return p, u.failed(data, h)
	}
	var answer struct {
		Output struct {
			Finish string `json:"finish_reason"`
			Audio  struct {
				Data []byte `json:"data"`
				URL  string `json:"url"`
			} `json:"audio"`
		} `json:"output"`
	}
	o, err := rawjson.Index(data, nil, nil) // strictly, since a cut document must not pass
	if err == nil && rawjson.IsNull(o.Raw("output")) {
		err = fmt.Errorf("a document without output: %s", u.client.Excerpt(string(data)))
	}
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil {
		return p, u.client.Malformed(http.StatusOK, err)
	}
	a := answer.Output.Audio
	return piece{a.Data, a.URL, answer.Output.Finish != "" && answer.Output.Finish != "null"}, nil
}

// framed puts samples that come bare into a WAV file.
func framed(audio []byte) []byte {
	if speech.FormatOf(audio, "") == speech.WAV {
		return audio
	}
	return append(spoken().Header(), audio...)
}
