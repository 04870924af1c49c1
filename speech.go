package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/deliver"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// encoderMemory is what the process that may be needed to encode an answer counts
// as in the memory budget of bodies, which one account never has all of.
const encoderMemory = 1 << 20

// speak asks for the audio of the first part and converts it to the client's
// format. The other parts are asked for as the client reads.
func (e *Entry) speak(req *speechop.Request) error {
	if err := e.reserve(e.order()); err != nil {
		return err
	}
	mp3 := e.g.options.MP3
	v := newSpeechStream(e, req, mp3.Ready())
	if v.want == speech.MP3 && v.mp3 == nil {
		if err := e.Reserve(encoderMemory); err != nil {
			return e.fail(err)
		}
	}
	reply, err := v.open()
	if err != nil {
		return e.fail(err)
	}
	spoken := deliver.Spoken{Source: v, Header: e.answered(reply, 0, nil), Whole: e.quote.Bound, Asking: v.asking}
	kind := v.format
	if v.encode {
		kind = speech.MP3
		if spoken.Encoder, err = mp3.Encode(e.ctx, v.form, v); err != nil {
			_ = v.Close()
			return e.fail(deliver.NoMP3(err))
		}
	}
	spoken.Header["Content-Type"] = []string{speechop.ContentType(kind)}
	audio := &Audio{deliver.NewAudio(e.handOver(), spoken)}
	e.respond(Response{Header: spoken.Header, Audio: audio, Dropped: reply.Dropped})
	return nil
}

// speechStream reads the audio of a text's parts, one after the other, each by a call
// of its own. What it reads are the upstream's bytes, or those of one WAV file
// made of several, or the samples alone for an encoder. Its errors but io.EOF
// are *fault.Error. Read may run in another goroutine than the other methods.
type speechStream struct {
	e     *Entry
	parts []speechop.Part
	want  string // the format that was asked for
	mp3   error  // why no MP3 can be made of WAV; nil if it can

	format string     // what the first part came in
	encode bool       // an encoder will read the samples
	form   speech.PCM // of the samples, where they are looked at
	head   []byte     // of the one WAV file, still to be read
	at     int        // which part is read
	end    error      // what reads say from now on

	asking chan struct{} // has an element while a part is asked for

	mu       sync.Mutex // guards what follows against close
	answer   io.Closer  // the part's
	audio    io.Reader  // the part's
	heard    int64      // characters of the parts of which audio was read
	answered int64      // characters of the parts that an upstream has answered
}

func newSpeechStream(e *Entry, req *speechop.Request, mp3 error) *speechStream {
	v := &speechStream{e: e, parts: req.Parts(e.model.Voices, e.model.Batch), want: req.Format(), mp3: mp3, asking: make(chan struct{}, 1)}
	for _, p := range v.parts {
		p.TakesWAV = v.want == speech.WAV || mp3 == nil
	}
	return v
}

// open asks for the audio of the next part.
func (v *speechStream) open() (*upstream.Reply, error) {
	p := v.parts[v.at]
	sent := v.e.outgoing(p.Outgoing(0))
	if sent.Caller = v.e.client.Done(); v.at > 0 {
		sent.MaxWait = partMaxWait
	}
	if v.at == 0 && v.e.observed { // the caller waits for it
		defer v.e.spent(&v.e.record.phases.Upstream, v.e.g.options.Now())
	}
	v.asking <- struct{}{}
	defer func() { <-v.asking }()
	part, reply, err := ask(v.e.ctx, &v.e.g.observers, v.e.routes, &sent, v.read)
	v.e.recordAttempts(p.Request, reply)
	if err == nil {
		v.setPart(part)
	}
	return reply, err
}

// Characters returns the characters of the parts of which audio was read, and of those that an
// upstream has answered.
func (v *speechStream) Characters() (heard, answered int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.heard, v.answered
}

// spokenPart is the answer to a part whose beginning is checked.
type spokenPart struct {
	answer io.Closer
	audio  io.Reader
	format string
	form   speech.PCM
	encode bool // an encoder will read the samples
}

// read checks the beginning of an answer. What fails here costs nothing, and can be asked of
// another channel.
func (v *speechStream) read(_ context.Context, r *upstream.Reply) (part spokenPart, err error) {
	defer fault.Recover(&err)
	const enough = 12 // bytes, by which WAV is known
	start := make([]byte, 512)
	n, err := io.ReadAtLeast(r.Body, start, enough)
	start = start[:n]
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return part, deliver.Truncated(err)
	case n == 0:
		return part, upstream.BadAnswer("The upstream's audio is empty.", err)
	}
	format, err := v.formatOf(start, r.Header.Get("Content-Type"))
	if err != nil {
		return part, speechop.ErrorInstead(io.MultiReader(bytes.NewReader(start), r.Body), err)
	}
	audio := io.MultiReader(bytes.NewReader(start), r.Body)
	encode := format == speech.WAV && v.want == speech.MP3
	if encode && v.mp3 != nil {
		return part, speechop.CannotEncode(v.mp3)
	}
	form := v.form
	if format == speech.WAV && (encode || len(v.parts) > 1) {
		if form, audio, err = speechop.Samples(audio); err != nil {
			return part, upstream.BadAnswer("The upstream's WAV cannot be read.", err)
		}
	}
	if format == speech.WAV && !encode && len(v.parts) == 1 {
		audio = speechop.Checked(start, audio)
	}
	if v.at > 0 && (format != v.format || form != v.form) {
		return part, upstream.BadAnswer("The upstream's parts of the audio do not fit together.", nil)
	}
	return spokenPart{r.Body, audio, format, form, encode}, nil
}

// formatOf is the format of an answer.
func (v *speechStream) formatOf(start []byte, contentType string) (string, error) {
	format := speechop.FormatOf(start, contentType)
	text := strings.HasPrefix(contentType, "application/json") || strings.HasPrefix(contentType, "text/")
	switch {
	case format == "" && (text || start[0] == '{'):
		return "", upstream.BadAnswer("The upstream answered a request for speech with "+clip(contentType)+".", nil)
	case format == "":
		return v.want, nil // an upstream that does not say
	case len(v.parts) > 1 && format != v.want && format != speech.WAV:
		return "", upstream.BadAnswer("The upstream's audio has another format than the one that was asked for.", nil)
	}
	return format, nil
}

// setPart makes the answer the one that is read. The first part decides the format of all.
func (v *speechStream) setPart(p spokenPart) {
	if v.at == 0 {
		v.format, v.form, v.encode = p.format, p.form, p.encode
		if p.format == speech.WAV && len(v.parts) > 1 && !p.encode {
			v.head = speechop.WAVHeader(p.form)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.audio, v.answer = p.audio, p.answer
	v.answered += v.parts[v.at].Characters
}

// Read reads on, and opens the next part when one has ended.
func (v *speechStream) Read(p []byte) (int, error) {
	for v.end == nil {
		if len(v.head) > 0 {
			n := copy(p, v.head)
			v.head = v.head[n:]
			return n, nil
		}
		n, err := v.audio.Read(p)
		if n > 0 {
			v.countRead()
		}
		if err != nil {
			v.end = v.next(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, v.end
}

// next goes on after the part's audio has ended with err.
func (v *speechStream) next(err error) error {
	if err != io.EOF { // one that is wrapped is a failure, see io.Reader
		return deliver.Truncated(err)
	}
	_ = v.answer.Close() // all of it was read
	if v.at++; v.at == len(v.parts) {
		return io.EOF
	}
	if _, err := v.open(); err != nil {
		return deliver.Truncated(err)
	}
	return nil
}

// countRead counts the characters of the parts of which audio was read.
func (v *speechStream) countRead() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = 0
	for _, p := range v.parts[:v.at+1] {
		v.heard += p.Characters
	}
}

// Close closes the part that is read. The call's context has ended.
func (v *speechStream) Close() error {
	v.mu.Lock()
	answer := v.answer
	v.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer.Close()
}
