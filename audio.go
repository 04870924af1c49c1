package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Audio is spoken text on its way to the client. Next, Read and Close are for
// one goroutine.
type Audio struct {
	delivery
	parts   *speechStream
	body    io.Reader     // what the client gets: the parts, or MP3 made of them
	encoder io.ReadCloser // makes the MP3; nil for none

	buf       []byte // reused by Next
	last      byte   // held back until it is known whether more comes
	hasLast   bool   // there is such a byte
	delivered int64  // characters of the parts of which the client was given audio
}

// encoderMemory is what the process that may be needed to encode an answer counts
// as in the memory budget of bodies, which one account never has all of.
const encoderMemory = 1 << 20

// speak asks for the audio of the first part and converts it to the client's
// format. The other parts are asked for as the client reads.
func (e *Entry) speak(req *speechop.Request) (*Response, error) {
	if err := e.reserve(e.order()); err != nil {
		return nil, err
	}
	mp3 := e.g.options.MP3
	v := newSpeechStream(e, req, mp3.Ready())
	if v.want == speech.MP3 && v.mp3 == nil {
		if err := e.Reserve(encoderMemory); err != nil {
			return nil, e.fail(err)
		}
	}
	reply, err := v.open()
	if err != nil {
		return nil, e.fail(err)
	}
	e.channel = reply.Channel
	a := &Audio{delivery: delivery{e: e, header: resultHeader(reply, 0)}, parts: v, body: v, buf: make([]byte, 32<<10)}
	a.pieces, e.body = a, v
	kind := v.format
	if v.encode {
		kind = speech.MP3
		if a.encoder, err = mp3.Encode(e.ctx, v.form, v); err != nil {
			_ = v.Close()
			return nil, e.fail(noMP3(err))
		}
		a.body = a.encoder
	}
	a.header["Content-Type"] = []string{speechop.ContentType(kind)}
	e.model.announce(a.header)
	a.mu.Lock() // what is watched over may end at once
	defer a.mu.Unlock()
	a.watch()
	e.follow(a.clientLeft)
	return e.respond(Response{Header: a.header, Audio: a, Dropped: reply.Dropped}), nil
}

// noMP3 is the error of an encoder that failed.
func noMP3(err error) error {
	return fault.Wrap(fault.InternalError, "The gateway failed to make an MP3.", err)
}

// Next returns the bytes that are ready, valid until the next call. The last
// byte leaves when the call is settled, so that io.EOF, which comes after it,
// means that all is well. Any other error is a *fault.Error: the audio is not
// whole, and what was delivered is charged.
func (a *Audio) Next() (out []byte, err error) {
	if !a.enter() {
		if err := a.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	defer a.leave()
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, a.failed(fault.FromPanic(p))
		}
	}()
	n := 0
	if a.hasLast {
		a.buf[0], n = a.last, 1
	}
	for {
		more, err := a.body.Read(a.buf[n:])
		n += more
		switch {
		case n > 1:
			return a.emit(n - 1), nil
		case more > 0:
		case err == io.EOF: // a part that ended at once is a failure that wraps it
			return a.finish(n)
		case err != nil:
			return nil, a.failed(err)
		}
	}
}

// emit returns the first n bytes and holds back the one behind them.
func (a *Audio) emit(n int) []byte {
	if !a.hasLast {
		a.e.markFirstByte(a.e.g.options.Now())
	}
	a.last, a.hasLast = a.buf[n], true
	a.delivered = a.parts.readCharacters()
	a.copyForReplay(a.buf[:n])
	return a.buf[:n]
}

// finish settles the call, and only then returns the last n bytes.
func (a *Audio) finish(n int) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n == 0 {
		return nil, a.fail(upstream.BadAnswer("The upstream's audio is empty.", nil))
	}
	a.copyForReplay(a.buf[:n])
	err := a.end(a.e.quote.Bound, billing.ReasonComplete, a.e.answerRecord(a.header, a.copied), nil)
	a.stop()
	a.e.close()
	if err != nil {
		return nil, err
	}
	return a.buf[:n], nil
}

// failed ends the audio with an error.
func (a *Audio) failed(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var known *fault.Error
	if a.encoder != nil && !errors.As(err, &known) { // the parts' errors are faults
		err = noMP3(err)
	}
	return a.fail(err)
}

// clientLeft runs when the client has disconnected. It ends the call once the part that
// is being asked for is there: its vendor makes and bills it.
func (a *Audio) clientLeft(cause error) {
	a.parts.asking <- struct{}{}
	defer func() { <-a.parts.asking }()
	a.e.cancel(cause)
}

// Close ends the answer. Before its end that settles the call as one whose client
// disconnected. It is safe to call more than once, and returns nil.
func (a *Audio) Close() error {
	a.clientLeft(context.Canceled)
	return a.delivery.Close()
}

// breakOff ends all that makes the audio: an encoder that fails leaves the parts, of
// which one may note a failed attempt. A duplicate does not get the audio.
func (a *Audio) breakOff(error) *idempotency.Record {
	a.unwatch()
	a.stop()
	return a.e.answerRecord(a.header, nil)
}

// used is the characters of the parts that were delivered. If the client disconnected, or
// a part was refused, it is those of all parts that an upstream has answered.
func (a *Audio) used(err error) billing.Usage {
	if a.gone || callersOwn(err) {
		return billing.Usage{Characters: a.parts.answeredCharacters()}
	}
	return billing.Usage{Characters: a.delivered}
}

// withhold does nothing: the last byte was not let out.
func (a *Audio) withhold(error) {}

// stop ends all that makes the audio. When it returns, no goroutine of it is left.
func (a *Audio) stop() {
	a.e.cancel(errCalledOff) // a part that is being opened
	_ = a.parts.Close()
	if a.encoder != nil {
		_ = a.encoder.Close() // the end was judged before
		_ = a.parts.Close()   // of a part that it began meanwhile
	}
}

// Read reads the same bytes as Next gives.
func (a *Audio) Read(p []byte) (int, error) { return a.read(p, a.Next) }

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

// answeredCharacters is the characters of the parts that an upstream has answered.
func (v *speechStream) answeredCharacters() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.answered
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
		return part, truncatedError(err)
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

// countRead counts the characters of the parts of which audio was read.
func (v *speechStream) countRead() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = 0
	for _, p := range v.parts[:v.at+1] {
		v.heard += p.Characters
	}
}

// readCharacters is the characters of the parts of which audio was read.
func (v *speechStream) readCharacters() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.heard
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
