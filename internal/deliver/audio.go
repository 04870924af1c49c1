package deliver

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Source is the audio of a text, part by part, as vendors answer. Its errors but io.EOF are
// *fault.Error. Its methods may run at the same time.
type Source interface {
	io.ReadCloser
	// Characters returns how many characters the parts have of which audio was read, and how
	// many those that a vendor has answered.
	Characters() (heard, answered int64)
}

// Spoken is what an Audio delivers.
type Spoken struct {
	Source  Source
	Encoder io.ReadCloser // reads the Source and makes what the client gets; nil for none
	Header  http.Header   // what the client is sent
	Whole   billing.Usage // of the audio, once all of it was delivered
	// Asking has an element while a vendor is asked for a part, which it makes and bills even
	// if the client disconnects.
	Asking chan struct{}
}

// Audio is spoken text on its way to the client. Next, Read and Close are for one goroutine.
type Audio struct {
	delivery
	spoken Spoken
	body   io.Reader // what the client gets: the source, or what is made of it

	buf       []byte // reused by Next
	last      byte   // held back until it is known whether more comes
	hasLast   bool   // there is such a byte
	delivered int64  // characters of the parts of which the client was given audio
}

// NewAudio begins to deliver.
func NewAudio(o Options, spoken Spoken) *Audio {
	a := &Audio{delivery: delivery{o: o, header: spoken.Header}, spoken: spoken, body: spoken.Source, buf: make([]byte, 32<<10)}
	if spoken.Encoder != nil {
		a.body = spoken.Encoder
	}
	a.pieces = a
	a.mu.Lock() // what is watched may end at once
	defer a.mu.Unlock()
	a.watch(a.clientLeft)
	return a
}

// Next returns the bytes that are ready, valid until the next call. The last
// byte leaves when the request is settled, so that io.EOF, which comes after it,
// means that all is well. Any other error is a *fault.Error: the audio is not
// whole, and what was delivered is charged.
func (a *Audio) Next() (out []byte, err error) {
	if !a.enter() {
		if err := a.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	n, err := a.readPiece()
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.leave()
	switch {
	case err == io.EOF: // a part that ended at once is a failure that wraps it
		return a.finish(n)
	case err != nil:
		var known *fault.Error
		if a.spoken.Encoder != nil && !errors.As(err, &known) { // the parts' errors are faults
			err = NoMP3(err)
		}
		return nil, a.fail(err)
	}
	if !a.hasLast {
		a.first = a.o.Now()
	}
	a.last, a.hasLast = a.buf[n-1], true
	a.delivered, _ = a.spoken.Source.Characters()
	a.copyForReplay(a.buf[:n-1])
	return a.buf[:n-1], nil
}

// NoMP3 is the error of an encoder that failed.
func NoMP3(err error) error {
	return fault.Wrap(fault.InternalError, "The gateway failed to make an MP3.", err)
}

// readPiece reads at least one byte behind the one that was held back, which comes first.
func (a *Audio) readPiece() (n int, err error) {
	defer fault.Recover(&err)
	if a.hasLast {
		a.buf[0], n = a.last, 1
	}
	for n < 2 && err == nil {
		var more int
		more, err = a.body.Read(a.buf[n:])
		n += more
	}
	if n > 1 { // the next Read says so again
		err = nil
	}
	return n, err
}

// finish settles the request, and only then returns the last n bytes.
func (a *Audio) finish(n int) ([]byte, error) {
	if n == 0 {
		return nil, a.fail(upstream.BadAnswer("The upstream's audio is empty.", nil))
	}
	a.copyForReplay(a.buf[:n])
	failed := a.settle(a.spoken.Whole, billing.ReasonComplete, money.Outcome{Answer: a.kept(a.copied)}, nil)
	a.free()
	if failed != nil {
		return nil, failed
	}
	return a.buf[:n], nil
}

// fail ends the audio badly. An encoder that fails leaves the parts: all that makes the audio
// ends before the settlement, since a part may note a failed attempt. What is charged is the
// characters of the parts that were delivered. If the client disconnected, or a part was
// refused, it is those of all parts that a vendor has answered. A duplicate does not get the
// audio.
func (a *Audio) fail(err error) error {
	if a.ended {
		return a.err
	}
	reason, err := a.endOf(err)
	a.unwatch()
	a.stop()
	used := billing.Usage{Characters: a.delivered}
	if a.gone || CallersOwn(err) {
		_, used.Characters = a.spoken.Source.Characters()
	}
	_ = a.settle(used, reason, money.Outcome{Answer: a.kept(nil)}, err) // Err has its error
	a.o.Request.Close()
	return a.err
}

// clientLeft runs when the client has disconnected. It ends the request once the part that
// is being asked for is there: its vendor makes and bills it.
func (a *Audio) clientLeft(cause error) {
	a.spoken.Asking <- struct{}{}
	defer func() { <-a.spoken.Asking }()
	a.o.Cancel(cause)
}

// free ends all that makes the audio, and gives back what the request still has.
func (a *Audio) free() {
	a.stop()
	a.o.Request.Close()
}

// stop ends all that makes the audio. When it returns, no goroutine of it is left.
func (a *Audio) stop() {
	a.o.Cancel(ErrCalledOff) // a part that is being opened
	_ = a.spoken.Source.Close()
	if a.spoken.Encoder != nil {
		_ = a.spoken.Encoder.Close() // the end was judged before
		_ = a.spoken.Source.Close()  // of a part that it began meanwhile
	}
}

// Read reads the same bytes as Next gives.
func (a *Audio) Read(p []byte) (int, error) { return a.read(p, a.Next) }

// Close ends the audio. Before its end that settles the request as one whose client
// disconnected. It is safe to call more than once.
func (a *Audio) Close() {
	a.clientLeft(context.Canceled)
	a.close()
}
