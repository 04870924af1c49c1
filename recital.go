package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// speechStream reads the audio of a text's parts, one after the other, each by a call
// of its own. What it reads are the upstream's bytes, or those of one WAV file
// made of several, or the samples alone for an encoder. Its errors but io.EOF
// are *fault.Error. Read may run in another goroutine than the other methods.
type speechStream struct {
	c     *call
	parts []speech.Part
	want  string // the format that was asked for
	mp3   error  // why no MP3 can be made of WAV; nil if it can

	format string     // what the first part came in
	encode bool       // an encoder will read the samples
	form   speech.PCM // of the samples, where they are looked at
	head   []byte     // of the one WAV file, still to be read
	at     int        // which part is read
	end    error      // what reads say from now on

	mu     sync.Mutex // guards what follows against close
	answer io.Closer  // the part's
	audio  io.Reader  // the part's
	read   int64      // characters of the parts of which audio was read
	sent   int64      // characters of the parts that an upstream may have got and did not refuse
}

func newSpeechStream(c *call, op speechOperation, mp3 error) *speechStream {
	v := &speechStream{c: c, parts: op.parts(c.model), want: op.Format(), mp3: mp3}
	for _, p := range v.parts {
		p.Request.TakesWAV = v.want == speech.WAV || mp3 == nil
	}
	return v
}

// open asks for the audio of the part whose turn it is.
func (v *speechStream) open() (_ *upstream.Reply, err error) {
	defer guard(&err)
	p := v.parts[v.at]
	call := &upstream.Call{
		Op: upstream.Speech, Model: v.c.model.ID, RequestID: v.c.x.ID, Account: v.c.x.principal.Account, ContentType: "application/json",
		Body: p.Request.Body(), Request: p.Request, Accept: v.accept,
		Observe: func(a upstream.Attempt) { v.c.recordAttempt(a, speechOperation{Request: p.Request}) },
	}
	if v.at > 0 {
		call.MaxWait = partPatience
	}
	v.c.x.g.observer.watchAttempts(call)
	if v.at == 0 { // the caller waits for it
		defer v.c.x.spent(&v.c.x.record.phases.Upstream, v.c.x.clock())
	}
	v.addSent(p.Characters)
	reply, err := v.c.x.routes.router.Do(v.c.ctx, call)
	if err != nil && !maybeBillable(err) {
		v.addSent(-p.Characters)
	}
	return reply, err
}

// addSent counts characters that are sent to an upstream; a negative n takes those
// back that none got.
func (v *speechStream) addSent(n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sent += n
}

// sentCharacters is the characters of the parts that an upstream was asked for.
func (v *speechStream) sentCharacters() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sent
}

// accept judges the beginning of an answer. What fails here costs nothing.
func (v *speechStream) accept(_ context.Context, r *upstream.Reply) (*upstream.Reply, error) {
	const enough = 12 // bytes, to tell WAV by
	start := make([]byte, 512)
	n, err := io.ReadAtLeast(r.Body, start, enough)
	start = start[:n]
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, truncatedError(err)
	case n == 0:
		return nil, badGateway("The upstream's audio is empty.", err)
	}
	format, err := v.formatOf(start, r.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	audio := io.MultiReader(bytes.NewReader(start), r.Body)
	encode := format == speech.WAV && v.want == speech.MP3
	if encode && v.mp3 != nil {
		return nil, speech.Unspeakable(v.mp3)
	}
	form := v.form
	if format == speech.WAV && (encode || len(v.parts) > 1) {
		if form, audio, err = speech.Samples(audio); err != nil {
			return nil, badGateway("The upstream's WAV cannot be read.", err)
		}
	}
	if format == speech.WAV && !encode && len(v.parts) == 1 {
		audio = speech.Checked(start, audio)
	}
	if v.at > 0 && (format != v.format || form != v.form) {
		return nil, badGateway("The upstream's parts of the audio do not fit together.", nil)
	}
	v.setPart(r, audio, format, form, encode)
	return r, nil
}

// formatOf is the format of an answer.
func (v *speechStream) formatOf(start []byte, contentType string) (string, error) {
	format := speech.FormatOf(start, contentType)
	text := strings.HasPrefix(contentType, "application/json") || strings.HasPrefix(contentType, "text/")
	switch {
	case format == "" && (text || start[0] == '{'):
		return "", badGateway("The upstream answered a request for speech with "+clip(contentType)+".", nil)
	case format == "":
		return v.want, nil // an upstream that does not say
	case len(v.parts) > 1 && format != v.want && format != speech.WAV:
		return "", badGateway("The upstream's audio has another format than the one that was asked for.", nil)
	}
	return format, nil
}

// setPart makes the answer the part that is read.
func (v *speechStream) setPart(r *upstream.Reply, audio io.Reader, format string, form speech.PCM, encode bool) {
	if v.at == 0 {
		v.format, v.form, v.encode = format, form, encode
		if format == speech.WAV && len(v.parts) > 1 && !encode {
			v.head = form.Header()
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.audio, v.answer = audio, r.Body
}

// Read reads on, and opens the next part where one has ended.
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
		return truncatedError(err)
	}
	_ = v.answer.Close() // all of it was read
	if v.at++; v.at == len(v.parts) {
		return io.EOF
	}
	if _, err := v.open(); err != nil {
		return truncatedError(err)
	}
	return nil
}

// countRead counts the characters of the part that is read.
func (v *speechStream) countRead() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.read = 0
	for _, p := range v.parts[:v.at+1] {
		v.read += p.Characters
	}
}

// readCharacters is the characters of the parts of which audio was read.
func (v *speechStream) readCharacters() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.read
}

// close lets go of the part that is read. The call's context has ended.
func (v *speechStream) close() {
	v.mu.Lock()
	answer := v.answer
	v.mu.Unlock()
	if answer != nil {
		_ = answer.Close()
	}
}
