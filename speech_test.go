package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

const (
	flash    = "alpha3-tts-flash"
	instruct = "alpha3-tts-instruct-flash"
	sentence = "Ten words. "
)

func TestLongSpeechIsCutAndJoined(t *testing.T) {
	up := &fakeSpeechVendor{answers: []reading{{audio: wav("aaaa")}, {audio: wav("bb")}, {audio: wav("cccc")}}}
	h := newSpeechGateway(t, up, func(o *gateway.Options) { o.Models = []gateway.Model{{ID: flash, Batch: 25}} })
	input := strings.Repeat(sentence, 5) // 11 characters each
	data, r, err := h.speak(t.Context(), &speech.Request{Model: flash, Input: input, ResponseFormat: "wav"})
	head := string(speechop.WAVHeader(speech.PCM{Channels: 1, Rate: 24_000, Bits: 16}))
	if err != nil || data != head+"aaaabbcccc" || r.ContentType != "audio/wav" {
		t.Errorf("%v, %s %q", err, r.ContentType, data)
	}
	if got := strings.Join(up.asked, "|"); got != "Ten words. Ten words.|Ten words. Ten words.|Ten words." {
		t.Errorf("asked %q", got)
	}
	if h.spent(t) != micro(55) {
		t.Errorf("spent %s", h.spent(t))
	}
}

func TestAnMP3IsMadeOfWAV(t *testing.T) {
	up := &fakeSpeechVendor{answers: []reading{{audio: wav("ab")}, {audio: wav("cd")}, {audio: strings.NewReader("ID3native"), kind: "audio/mpeg"}}}
	encoder := &doubler{}
	h := newSpeechGateway(t, up, func(o *gateway.Options) {
		o.MP3, o.Models = encoder, []gateway.Model{{ID: flash, Batch: 11}}
	})

	data, r, err := h.speak(t.Context(), &speech.Request{Model: flash, Input: sentence + sentence})
	if err != nil || data != "aabbccdd" || r.ContentType != "audio/mpeg" || encoder.form.Rate != 24_000 {
		t.Errorf("%v, %q, %+v, form %+v", err, data, r, encoder.form)
	}
	if data, r, err = h.speak(t.Context(), &speech.Request{Model: flash, Input: "a"}); err != nil || data != "ID3native" || r.ContentType != "audio/mpeg" {
		t.Errorf("an upstream's own MP3: %v, %q", err, data)
	}
}

func TestWithoutAnEncoderAnMP3OfWAVIsRefusedAndCostsNothing(t *testing.T) {
	for name, up := range map[string]upstream.Upstream{
		"an upstream that knows": sim.New(sim.Options{}),
		"one that does not":      &fakeSpeechVendor{answers: []reading{{audio: wav("abcd")}, {audio: wav("abcd")}}},
	} {
		h := newSpeechGateway(t, up, func(o *gateway.Options) { o.MP3 = &doubler{missing: errors.New("no lame here")} })
		_, _, err := h.speak(t.Context(), &speech.Request{Model: flash, Input: "a"})
		f := fault.From(err)
		if f == nil || f.HTTPStatus() != 400 || f.Param != "response_format" || !strings.Contains(f.Message, `"wav"`) || h.spent(t) != 0 {
			t.Errorf("%s: %v, spent %s", name, err, h.spent(t))
		}
		if _, _, err = h.speak(t.Context(), &speech.Request{Model: flash, Input: "a", ResponseFormat: "wav"}); err != nil {
			t.Errorf("%s, WAV: %v", name, err)
		}
		if talks, ok := up.(*fakeSpeechVendor); ok && (talks.takes[0] || !talks.takes[1]) {
			t.Errorf("the upstream was told that WAV will do: %v", talks.takes)
		}
	}
}

var errCable = errors.New("the cable was cut")

func TestWhatSpeechCostsThatEndsBadly(t *testing.T) {
	long := strings.Repeat(sentence, 4)
	cable := func(s string) io.Reader { return io.MultiReader(wav(s), brokenReader{}) }
	for name, row := range map[string]struct {
		answers []reading
		format  string
		data    string // what is read of the samples
		charge  int64
		code    fault.Code
		early   bool // before the first byte
	}{
		"nothing":                       {[]reading{{audio: strings.NewReader("")}}, "wav", "", 0, fault.BadGateway, true},
		"an error object":               {[]reading{{audio: strings.NewReader(`{"error":{"message":"no"}}`), kind: "application/json"}}, "wav", "", 0, fault.BadGateway, true},
		"an error object of a caller's": {[]reading{{audio: strings.NewReader(`{"error":{"message":"no","code":400}}`), kind: "application/json"}}, "wav", "", 0, fault.InvalidRequest, true},
		"the same, called a text":       {[]reading{{audio: strings.NewReader(`{"error":{"message":"no","type":"invalid_request_error"}}`), kind: "text/plain"}}, "wav", "", 0, "invalid_request_error", true},
		"no WAV":                        {[]reading{{audio: strings.NewReader("hello hello hello")}}, "wav", "", 0, fault.BadGateway, true},
		"refused":                       {[]reading{{err: (&upstream.Failure{Status: 429, Sent: true, Refused: true}).Fault()}}, "wav", "", 0, fault.UpstreamRateLimit, true},
		"cut in the first part":         {[]reading{{audio: cable("aaaa")}}, "wav", "aaa", 22, fault.BadGateway, false},
		"second part refused":           {[]reading{{audio: wav("aaaa")}, {err: (&upstream.Failure{Status: 500, Sent: true}).Fault()}}, "wav", "aaa", 22, fault.InternalServerError, false},
		"second part cut":               {[]reading{{audio: wav("aaaa")}, {audio: cable("bbbb")}}, "wav", "aaaabbb", 44, fault.BadGateway, false},
		"second part of another form":   {[]reading{{audio: wav("aaaa")}, {audio: strings.NewReader("ID3xxxxxxxxxxxxxx"), kind: "audio/mpeg"}}, "wav", "aaa", 22, fault.BadGateway, false},
		"second part of another rate":   {[]reading{{audio: wav("aaaa")}, {audio: strings.NewReader(string(speechop.WAVHeader(speech.PCM{Channels: 1, Rate: 8_000, Bits: 16})) + "bbbb")}}, "wav", "aaa", 22, fault.BadGateway, false},
		"second part refused, with MP3": {[]reading{{audio: wav("aaaa")}, {err: (&upstream.Failure{Status: 500, Sent: true}).Fault()}}, "mp3", "aaaaaaa", 22, fault.InternalServerError, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // which fails if a goroutine stays
				up := &fakeSpeechVendor{answers: row.answers}
				h := newSpeechGateway(t, up, func(o *gateway.Options) { o.Models = []gateway.Model{{ID: flash, Batch: 22}} })
				r, err := h.Speech(t.Context(), &speech.Request{Model: flash, Input: long, ResponseFormat: row.format})
				if (err != nil) != row.early {
					t.Fatalf("error %v", err)
				}
				var data []byte
				if err == nil {
					data, err = io.ReadAll(r)
					if errors.Join(r.Close(), r.Close()) != nil {
						t.Error("close")
					}
				}
				data = bytes.TrimPrefix(data, speechop.WAVHeader(speech.PCM{Channels: 1, Rate: 24_000, Bits: 16}))
				if !fault.Is(err, row.code) || string(data) != row.data || h.spent(t) != micro(row.charge) {
					t.Errorf("%v, read %q, spent %s", err, data, h.spent(t))
				}
			})
		})
	}
}

// dyingEncoder is an encoder that fails while it waits for the second part.
type dyingEncoder struct{ waits, done chan struct{} }

func (f *dyingEncoder) Ready() error { return nil }

func (f *dyingEncoder) Encode(_ context.Context, _ speech.PCM, samples io.Reader) (io.ReadCloser, error) {
	out, in := io.Pipe()
	go func() {
		<-f.waits
		_ = in.CloseWithError(errors.New("the encoder died"))
	}()
	go func() {
		defer close(f.done)
		_, _ = io.Copy(io.Discard, samples)
	}()
	return &doubled{out, f.done}, nil
}

// late is a meter that settles when nothing of the audio runs any more.
type late struct {
	billing.Meter
	check func()
}

func (l *late) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	l.check()
	return l.Meter.Settle(ctx, h, u, with...)
}

func TestWhenAudioIsSettledNobodyAsksForItsParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &fakeSpeechVendor{answers: []reading{{audio: wav("aaaa")}}}
		f := &dyingEncoder{waits: make(chan struct{}), done: make(chan struct{})}
		up := upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
			if len(first.answers) > 0 {
				return first.Do(ctx, call)
			}
			close(f.waits)
			<-ctx.Done()
			return nil, (&upstream.Failure{Status: 500, Sent: true}).Fault()
		})
		settled := false
		h := newSpeechGateway(t, up, func(o *gateway.Options) {
			o.Models, o.MP3 = []gateway.Model{{ID: flash, Batch: 22}}, f
			o.Meter = &late{o.Meter, func() {
				settled = true
				select {
				case <-f.done:
				default:
					t.Error("a part is still asked for")
				}
			}}
		})

		if _, _, err := h.speak(t.Context(), &speech.Request{Model: flash, Input: strings.Repeat(sentence, 4), ResponseFormat: "mp3"}); !fault.Is(err, fault.InternalError) || !settled {
			t.Errorf("settled %v, %v", settled, err)
		}
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errCable }

func TestAWAVThatIsShorterThanItSaysIsCut(t *testing.T) {
	h := newSpeechGateway(t, sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Break: sim.Cut} }}), nil)
	for _, format := range []string{"wav", "mp3"} {
		if data, _, err := h.speak(t.Context(), &speech.Request{Model: flash, Input: "hello", ResponseFormat: format}); !fault.Is(err, fault.BadGateway) || data == "" {
			t.Errorf("%s: %d bytes, %v", format, len(data), err)
		}
	}
}

func TestAClientThatLeavesPaysForThePartsThatWereAskedFor(t *testing.T) {
	long := strings.Repeat(sentence, 4)
	for _, format := range []string{"wav", "mp3"} {
		for name, row := range map[string]struct {
			say    []string // what the second part says before the client leaves
			leave  func(cancel func(), r *speech.Response)
			charge int64
		}{
			"between reads": {[]string{"bbbb"}, func(cancel func(), _ *speech.Response) { cancel() }, 44},
			"by closing":    {[]string{"bbbb"}, func(_ func(), r *speech.Response) { _ = r.Close() }, 44},
			"while it waits": {nil, func(cancel func(), r *speech.Response) {
				go func() { _, _ = io.Copy(io.Discard, r) }()
				synctest.Wait() // for the second part
				cancel()
			}, 44},
		} {
			t.Run(format+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					second, vendor := io.Pipe()
					up := &fakeSpeechVendor{answers: []reading{{audio: wav("aaaa")}, {audio: io.MultiReader(wav(strings.Join(row.say, "")), second), pipe: second}}}
					if row.say == nil {
						up.answers[1].audio = second // not even a header
					}
					h := newSpeechGateway(t, up, func(o *gateway.Options) { o.Models = []gateway.Model{{ID: flash, Batch: 22}} })
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					r, err := h.Speech(ctx, &speech.Request{Model: flash, Input: long, ResponseFormat: format})
					must(t, err)
					want := 44 + 3 + 4*len(row.say) // all but the byte that is held back
					if format == "mp3" {
						want = 7 + 8*len(row.say)
					}
					if row.say == nil && format == "wav" {
						want = 44 + 2
					}
					if _, err := io.ReadFull(r, make([]byte, want)); err != nil {
						t.Fatal(err)
					}
					if format == "mp3" {
						synctest.Wait()
					}
					row.leave(cancel, r)
					if row.say == nil { // its vendor makes the part all the same
						go func() { _, _ = io.Copy(vendor, wav("bbbb")) }()
					}
					synctest.Wait()
					if got := h.spent(t); got != micro(row.charge) {
						t.Errorf("spent %s", got)
					}
					_ = r.Close()
					_ = vendor.Close()
				})
			})
		}
	}
}

func TestADuplicateNeverGetsHalfOfTheAudio(t *testing.T) {
	up := &fakeSpeechVendor{answers: []reading{{audio: io.MultiReader(wav("abcd"), brokenReader{})}, {err: (&upstream.Failure{Status: 503, Refused: true}).Fault()}, {audio: wav("abcd")}}}
	h := newSpeechGateway(t, up, nil)
	r := &speech.Request{Model: flash, Input: "hello", ResponseFormat: "wav"}
	ctx := gateway.WithIdempotencyKey(t.Context(), "k1")
	response, err := h.Speech(ctx, r)
	must(t, err)
	if _, err := io.Copy(io.Discard, response); err == nil || response.Close() != nil {
		t.Error("the audio ended well")
	}
	if _, err := h.Speech(ctx, r); !fault.Is(err, fault.IdempotencyConflict) || h.spent(t) != micro(5) {
		t.Errorf("after audio that was charged: %v", err)
	}
	ctx = gateway.WithIdempotencyKey(t.Context(), "k2")
	if _, err := h.Speech(ctx, r); !fault.Is(err, fault.ServiceUnavailable) {
		t.Fatal(err)
	}
	if response, err = h.Speech(ctx, r); err != nil {
		t.Fatalf("a refusal did not free the key: %v", err)
	}
	if n, err := io.Copy(io.Discard, response); n != 48 || err != nil || response.Close() != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestAShutdownEndsSpeechAndSettlesIt(t *testing.T) {
	second, vendor := io.Pipe()
	defer vendor.Close()
	up := &fakeSpeechVendor{answers: []reading{{audio: io.MultiReader(wav("aaaa"), second), pipe: second}}}
	h := newSpeechGateway(t, up, nil)
	r, err := h.Speech(t.Context(), &speech.Request{Model: flash, Input: "abc", ResponseFormat: "wav"})
	must(t, err)
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 45)); err != nil {
		t.Fatal(err)
	}
	must(t, h.Close())
	if receipt, ok := r.Receipt(); !ok || receipt.Charge != micro(3) || receipt.Reason != billing.ReasonShutdown {
		t.Errorf("receipt %+v", receipt)
	}
}

// fakeSpeechVendor is an upstream of speech that answers each call by the next of its
// answers.
type fakeSpeechVendor struct {
	answers []reading
	asked   []string // the inputs
	takes   []bool   // whether WAV will do
}

// reading is one answer: audio, or an error.
type reading struct {
	audio io.Reader
	kind  string // its content type; WAV if empty
	err   error
	pipe  *io.PipeReader // within audio
}

func (u *fakeSpeechVendor) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	r := call.Request.(*speech.Request)
	u.asked, u.takes = append(u.asked, r.Input), append(u.takes, r.TakesWAV)
	if len(u.answers) == 0 {
		return nil, fault.New(fault.InternalError, "the vendor has no more answers")
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
	return strings.NewReader(string(speechop.WAVHeader(form)) + samples)
}

// newSpeechGateway is a gateway whose speech costs a micro-unit a character.
func newSpeechGateway(t testing.TB, up upstream.Upstream, edit func(*gateway.Options)) *testGateway {
	t.Helper()
	p := rates(t, "character", "1")
	return newTestGateway(t, up, "1", func(o *gateway.Options) {
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
func (h *testGateway) speak(ctx context.Context, r *speech.Request) (string, *speech.Response, error) {
	response, err := h.Speech(ctx, r)
	if err != nil {
		return "", nil, err
	}
	defer response.Close()
	data, err := io.ReadAll(response)
	return string(data), response, err
}
