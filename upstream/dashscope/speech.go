package dashscope

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// pcmFormat is what the vendor calls 24 kHz PCM.
func pcmFormat() speech.PCM { return speech.PCM{Channels: 1, Rate: 24_000, Bits: 16} }

// synthesizeSpeech asks for speech as a stream of events and replies with the WAV file that
// they carry. It translates the request: `input` and `voice` keep their names, and
// `instructions` goes to the models that take it. `response_format`, `speed`, and every field
// that docs/reference/http-api.md does not name have no place in the vendor's wire.
func (d *driver) synthesizeSpeech(ctx context.Context, call *upstream.Call, to *url.URL) (*upstream.Reply, error) {
	r, err := speechop.ReadCall(call)
	if err != nil {
		return nil, err
	}
	if !r.TakesWAV {
		return nil, speechop.CannotEncode(nil)
	}
	data, err := json.Marshal(translate(call.Model, r))
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request cannot be written as JSON.", err)
	}
	ctx = httpdo.TrackOrigin(ctx)
	h := httpdo.Header("text/event-stream", "application/json")
	h.Set("X-DashScope-SSE", "enable")
	resp, key, err := d.Post(ctx, call, to, h, upstream.BytesBody(data))
	if err != nil {
		return nil, err
	}
	body, err := d.readAudio(ctx, call, resp)
	if err != nil {
		key.Report(call, err)
		return nil, publicSpeechError(err)
	}
	return &upstream.Reply{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {speechop.ContentType(speech.WAV)}}, Body: body,
		Key: key.ID(), Used: key, Dropped: droppedFields(r),
	}, nil
}

// droppedFields are the fields that the vendor's wire lacks. The format is not among them: the
// gateway handles it.
func droppedFields(r *speechop.Request) []string {
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

func translate(model string, r *speechop.Request) speechRequest {
	return speechRequest{model, speechInput{
		Text: r.Input, Voice: r.Voice, Language: "Auto", Instructions: r.Instructions,
	}}
}

// mismatchCodes are those of an unsupported model, an unknown voice or an empty
// input.
var mismatchCodes = map[fault.Code]bool{
	"BadRequest.EmptyInput": true, "BadRequest.EmptyModel": true, "InternalError.Algo.InvalidParameter": true,
	"InvalidParameter": true, "ModelNotFound": true, "model_not_supported": true,
}

// publicSpeechError gives a refusal the code that it has on this endpoint, and keeps
// the vendor's message.
func publicSpeechError(err error) error {
	e := fault.From(err)
	if !mismatchCodes[e.Code] {
		return err
	}
	return e.With(func(e *fault.Error) { e.Code, e.Status = fault.EndpointModelMismatch, http.StatusBadRequest })
}

// readAudio is the WAV file of an answer: of its events, or of one document.
func (d *driver) readAudio(ctx context.Context, call *upstream.Call, resp *http.Response) (io.ReadCloser, error) {
	body, err := d.Body(resp)
	if err != nil {
		return nil, err
	}
	switch kind := resp.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/event-stream"):
		return d.streamAudio(ctx, body)
	case kind == "", strings.HasPrefix(kind, "application/json"):
		return d.audioOfDocument(ctx, call, body, resp.Header)
	default:
		_ = body.Close()
		return nil, d.Malformed(resp.StatusCode, fmt.Errorf("a request for speech was answered with content type %q", d.Excerpt(kind)))
	}
}

// audioOfDocument is that of the answer of a vendor that does not stream: the audio is in it,
// or behind its link.
func (d *driver) audioOfDocument(ctx context.Context, call *upstream.Call, body io.ReadCloser, h http.Header) (io.ReadCloser, error) {
	const most = 256 << 20
	data, memory, err := httpdo.ReadReserved(ctx, call, body, most)
	if err != nil {
		return nil, d.BrokenOff(ctx, http.StatusOK, err)
	}
	p, err := d.parseChunk(data, h)
	if err == nil && len(p.audio) > 0 {
		return httpdo.Kept{Reader: io.MultiReader(bytes.NewReader(headerOf(p.audio)), bytes.NewReader(p.audio)), Closer: memory}, nil
	}
	_ = memory.Close()
	switch {
	case err != nil:
		return nil, err
	case p.link != "":
		return d.fetchLink(ctx, p.link)
	}
	return nil, d.Malformed(http.StatusOK, fmt.Errorf("an answer without audio: %s", d.Excerpt(string(data))))
}

// audioChunk is one document of an answer.
type audioChunk struct {
	audio []byte
	link  string
	last  bool
}

func (d *driver) parseChunk(data []byte, h http.Header) (p audioChunk, err error) {
	if _, bad := parseRefusal(data); bad {
		return p, d.refusedWith200(data, h)
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
		err = fmt.Errorf("a document without output: %s", d.Excerpt(string(data)))
	}
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil {
		return p, d.Malformed(http.StatusOK, err)
	}
	a := answer.Output.Audio
	return audioChunk{a.Data, a.URL, answer.Output.Finish != "" && answer.Output.Finish != "null"}, nil
}

// headerOf is what makes a WAV file of samples that come bare; nil where they have it.
func headerOf(audio []byte) []byte {
	if speechop.FormatOf(audio, "") == speech.WAV {
		return nil
	}
	return speechop.WAVHeader(pcmFormat())
}

// streamAudio reads a stream of events up to the first audio, so that an earlier error is an
// ordinary one. It returns the file that the events make.
func (d *driver) streamAudio(ctx context.Context, body io.ReadCloser) (io.ReadCloser, error) {
	s := &audioStream{d: d, ctx: ctx, body: body, events: sse.NewReader(body, 0)}
	link, err := s.begin()
	if err == nil && link == "" {
		return s, nil
	}
	_ = s.Close()
	if err != nil {
		return nil, err
	}
	return d.fetchLink(ctx, link)
}

// audioStream is audio that comes as base64 in events.
type audioStream struct {
	d      *driver
	ctx    context.Context
	body   io.ReadCloser
	events *sse.Reader
	ready  []byte
	done   bool
	err    error
}

// begin waits for the first audio. A stream that ends without any has a link.
func (s *audioStream) begin() (link string, err error) {
	for {
		p, err := s.next()
		switch {
		case err != nil:
			return "", err
		case len(p.audio) > 0:
			s.ready, s.done = append(headerOf(p.audio), p.audio...), p.last
			return "", nil
		case p.last && p.link != "":
			return p.link, nil
		case p.last:
			return "", s.d.Malformed(http.StatusOK, errors.New("the answer has no audio"))
		}
	}
}

// next is the next event.
func (s *audioStream) next() (audioChunk, error) {
	event, err := s.events.Next()
	switch {
	case errors.Is(err, io.EOF):
		return audioChunk{}, s.d.BrokenOff(s.ctx, http.StatusOK, io.ErrUnexpectedEOF)
	case err != nil:
		return audioChunk{}, s.d.BrokenOff(s.ctx, http.StatusOK, err)
	case event.Name == "error":
		return audioChunk{}, s.d.refusedWith200(event.Data, nil)
	}
	return s.d.parseChunk(event.Data, nil)
}

// Read gives the audio as it comes. An end before the vendor says that it is
// done is an error.
func (s *audioStream) Read(p []byte) (int, error) {
	for len(s.ready) == 0 {
		switch {
		case s.err != nil:
			return 0, s.err
		case s.done:
			s.err = io.EOF
			continue
		}
		next, err := s.next()
		if err != nil {
			s.err = err
			continue
		}
		s.ready, s.done = next.audio, next.last
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// Close closes the vendor's answer.
func (s *audioStream) Close() error { return s.body.Close() }

// fetchLink fetches a file from the vendor's store. The link grants access, so no key is sent.
func (d *driver) fetchLink(ctx context.Context, link string) (io.ReadCloser, error) {
	resp, err := d.FetchLink(ctx, link)
	if err != nil {
		return nil, d.BrokenOff(ctx, http.StatusOK, err) // the vendor has done, and billed, its work
	}
	body, err := httpdo.Decompress(resp)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the audio cannot be fetched: status %d", resp.StatusCode)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, d.Malformed(http.StatusOK, err)
	}
	return body, nil
}
