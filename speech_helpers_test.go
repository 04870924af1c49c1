package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// talker is an upstream of speech that answers each call by the next of its
// answers.
type talker struct {
	answers []reading
	asked   []string // the inputs
	bodies  []string
	takes   []bool // whether WAV will do
}

// reading is one answer: audio, or an error.
type reading struct {
	audio io.Reader
	kind  string // its content type; WAV if empty
	err   error
	pipe  *io.PipeReader // within audio
}

func (u *talker) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	r, err := speech.ReadCall(call)
	if err != nil {
		return nil, err
	}
	data, _ := call.Body.Bytes()
	u.asked, u.bodies, u.takes = append(u.asked, r.Input), append(u.bodies, string(data)), append(u.takes, r.TakesWAV)
	if len(u.answers) == 0 {
		return nil, fault.New(fault.InternalError, "the talker has nothing more to say")
	}
	a := u.answers[0]
	u.answers = u.answers[1:]
	if a.err != nil {
		return nil, a.err
	}
	if a.kind == "" {
		a.kind = "audio/wav"
	}
	if a.pipe != nil { // the port's rule: what ends ctx ends the body
		context.AfterFunc(ctx, func() { _ = a.pipe.CloseWithError(context.Cause(ctx)) })
	}
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {a.kind}}, Body: &closing{Reader: a.audio}}, nil
}

// wav is a file of 24 kHz with these samples.
func wav(samples string) io.Reader {
	form := speech.PCM{Channels: 1, Rate: 24_000, Bits: 16}
	return strings.NewReader(string(form.Header()) + samples)
}

// choir is a house whose speech costs a micro-unit a character.
func choir(t testing.TB, up upstream.Upstream, credit string, edit func(*gateway.Options)) *house {
	t.Helper()
	p, err := billing.NewPrice(billing.Rate{Unit: billing.Character, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return newHouse(t, up, credit, func(o *gateway.Options) {
		o.Prices = billing.NewPriceList(map[string]*billing.Price{flash: p, instruct: p})
		o.Models = nil
		o.MP3 = &doubler{}
		if edit != nil {
			edit(o)
		}
	})
}

// doubler is an encoder whose MP3 is each byte twice.
type doubler struct {
	missing error
	form    speech.PCM
}

func (d *doubler) Ready() error { return d.missing }

func (d *doubler) Encode(_ context.Context, form speech.PCM, samples io.Reader) (io.ReadCloser, error) {
	d.form = form
	out, in := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 1); ; {
			n, err := samples.Read(buf)
			if n > 0 {
				_, _ = in.Write([]byte{buf[0], buf[0]})
			}
			if err != nil {
				_ = in.CloseWithError(err)
				return
			}
		}
	}()
	return &doubled{out, done}, nil
}

type doubled struct {
	*io.PipeReader
	done chan struct{}
}

func (d *doubled) Close() error {
	_ = d.PipeReader.Close()
	<-d.done
	return nil
}

// speak asks for speech and reads it to its end.
func (h *house) speak(t testing.TB, r *speech.Request) (string, *speech.Response, error) {
	t.Helper()
	response, err := h.Speech(t.Context(), r)
	if err != nil {
		return "", nil, err
	}
	defer response.Close()
	data, err := io.ReadAll(response)
	return string(data), response, err
}
