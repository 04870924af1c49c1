package dashscope

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

func asking(t *testing.T, takesWAV bool) *upstream.Call {
	t.Helper()
	body := []byte(`{"model":"alpha3-tts-flash","input":"Hello there.","voice":"Cherry"}`)
	return &upstream.Call{Op: upstream.Speech, Model: "qwen3-tts-flash", RequestID: "req_1", Body: vendortest.Body(t, string(body)), Request: &speech.Request{TakesWAV: takesWAV}}
}

// event is one of the vendor's, with audio.
func event(n int, samples []byte, finish, link string) string {
	return fmt.Sprintf("id:%d\nevent:result\n:HTTP_STATUS/200\ndata:{\"output\":{\"audio\":{\"data\":%q,\"url\":%q,\"expires_at\":1790086400,\"id\":\"a\"},\"finish_reason\":%s},\"usage\":{\"characters\":12},\"request_id\":\"r1\"}\n\n",
		n, base64.StdEncoding.EncodeToString(samples), link, finish)
}

// events is a vendor that streams.
func events(list ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream;charset=UTF-8")
		for _, e := range list {
			_, _ = io.WriteString(w, e)
		}
	}
}

func TestTheAudioOfEventsIsOneWAVFile(t *testing.T) {
	for name, list := range map[string][]string{
		"bare samples":        {event(1, []byte("abcd"), `"null"`, ""), event(2, []byte("ef"), "null", ""), event(3, nil, `"stop"`, "http://bucket.example/x.wav")},
		"a file in pieces":    {event(1, file("abc"), `"null"`, ""), event(2, []byte("def"), `"null"`, ""), event(3, nil, `"stop"`, "")},
		"an empty beginning":  {event(1, nil, `"null"`, ""), event(2, []byte("abcdef"), `"null"`, ""), event(3, nil, `"stop"`, "")},
		"all in the last one": {event(1, []byte("abcdef"), `"stop"`, "")},
	} {
		var header http.Header
		up := newDriver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			header = r.Header
			if r.URL.Path != "/api/v1/services/aigc/multimodal-generation/generation" {
				t.Errorf("path %s", r.URL.Path)
			}
			events(list...)(w, r)
		}))
		reply, err := up.Do(t.Context(), asking(t, true))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := io.ReadAll(reply.Body)
		if err = errors.Join(err, reply.Body.Close()); err != nil || string(data) != string(file("abcdef")) || reply.Header.Get("Content-Type") != "audio/wav" {
			t.Errorf("%s: %v, %q", name, err, data)
		}
		if header.Get("X-DashScope-SSE") != "enable" || header.Get("Authorization") != "Bearer sk-vendor-1" {
			t.Errorf("%s: headers %v", name, header)
		}
	}
}

func TestAnErrorInAnEventIsTheErrorOfTheCall(t *testing.T) {
	for body, want := range map[string]struct {
		code   fault.Code
		status int
	}{
		`{"code":"InvalidParameter","message":"No such voice.","request_id":"r1"}`:  {fault.EndpointModelMismatch, 400},
		`{"code":"DataInspectionFailed","message":"No.","request_id":"r1"}`:         {"DataInspectionFailed", 400},
		`{"code":"ModelNotFound","message":"None.","request_id":"r1"}`:              {fault.EndpointModelMismatch, 400},
		`{"code":"Throttling.RateQuota","message":"Slow.","request_id":"r1"}`:       {fault.UpstreamRateLimit, 429},
		`{"code":"Arrearage","message":"Pay.","request_id":"r1"}`:                   {fault.NoChannel, 502},
		`{"code":"InvalidApiKey","message":"Who are you?","request_id":"r1"}`:       {fault.NoChannel, 502},
		`{"code":"InternalError.Algo","message":"Rack 9 burns.","request_id":"r1"}`: {fault.InternalServerError, 500},
	} {
		for _, vendor := range []http.HandlerFunc{
			events("event:error\n:HTTP_STATUS/400\ndata:" + body + "\n\n"),
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
			},
		} {
			_, err := newDriver(t, vendor).Do(t.Context(), asking(t, true))
			f := fault.From(err)
			var failure *upstream.Failure
			if f == nil || f.Code != want.code || f.HTTPStatus() != want.status || !errors.As(err, &failure) || !failure.Sent {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
}

func TestTheNamesOfWhatIsDroppedAreBounded(t *testing.T) {
	up := newDriver(t, events(event(1, []byte("abcd"), `"stop"`, "")))
	drop := func(c *upstream.Call) []string {
		reply, _ := vendortest.Answer(t, up, c)
		return reply.Dropped
	}
	c := asking(t, true)
	c.Body = c.Body.Set("speed", []byte("2")).Set("x_pitch", []byte("1")).Set("user", []byte("null")).Set("response_format", []byte(`"wav"`))
	if got := strings.Join(drop(c), ", "); got != "speed, x_pitch" {
		t.Errorf("dropped %s", got)
	}
	c = asking(t, true)
	c.Body = c.Body.Set("größe", []byte("1"))
	for i := range 1000 {
		c.Body = c.Body.Set(fmt.Sprintf("x%06d", i), []byte("1"))
	}
	if got := drop(c); len(got) != 33 || got[0] != "x000000" || got[32] != "others" {
		t.Errorf("dropped %d: %.200q", len(got), got)
	}
}

func TestAudioWithoutItsEndIsCut(t *testing.T) {
	for name, list := range map[string][]string{
		"no stop":           {event(1, []byte("abcd"), `"null"`, "")},
		"an error":          {event(1, []byte("abcd"), `"null"`, ""), "event:error\ndata:{\"code\":\"InternalError\",\"message\":\"x\"}\n\n"},
		"no JSON":           {event(1, []byte("abcd"), `"null"`, ""), "event:result\ndata:{\"output\":\n\n"},
		"nothing":           nil,
		"stop and no sound": {event(1, nil, `"stop"`, "")},
	} {
		reply, err := newDriver(t, events(list...)).Do(t.Context(), asking(t, true))
		var data []byte
		if err == nil {
			data, err = io.ReadAll(reply.Body)
			_ = reply.Body.Close()
		}
		if f := fault.From(err); f == nil || f.HTTPStatus() < 500 {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

func TestWithoutAnyUseForWAVTheVendorIsNotAsked(t *testing.T) {
	up := newDriver(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the vendor was asked") }))
	if _, err := up.Do(t.Context(), asking(t, false)); fault.From(err).HTTPStatus() != 400 {
		t.Errorf("error %v", err)
	}
	c := asking(t, true)
	c.Op = "paint"
	if _, err := up.Do(t.Context(), c); !fault.Is(err, fault.InternalError) || up.Supports("paint", "m") {
		t.Errorf("another operation: %v", err)
	}
}

// A vendor that does not stream sends the whole audio in one document, which is kept.
func TestAudioInADocumentCountsInTheMemoryForAnswers(t *testing.T) {
	const small = 1 << 20
	for _, row := range []struct {
		name     string
		document string
		reserved int64 // at least; 0 for none
		cut      bool
	}{
		{"small", `{"output":{"audio":{"data":"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("ab"), 100)) + `"},"finish_reason":"stop"}}`, 0, false},
		{"large", `{"output":{"audio":{"data":"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("ab"), 2<<20)) + `"},"finish_reason":"stop"}}`, 5 << 20, false},
		{"large, and cut", `{"output":{"audio":{"data":"` + strings.Repeat("A", 3*small), 2 * small, true},
	} {
		up := newDriver(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, row.document)
		}))
		var most, held int64
		call := asking(t, true)
		call.Reserve = func(_ context.Context, n int64) (func(), error) {
			held += n
			most = max(most, held)
			return func() { held -= n }, nil
		}
		reply, err := up.Do(t.Context(), call)
		if err == nil {
			if held != most {
				t.Errorf("%s: %d of %d bytes were given back before the audio was read", row.name, most-held, most)
			}
			_, _ = io.Copy(io.Discard, reply.Body)
			_ = reply.Body.Close()
		}
		if (err != nil) != row.cut || most < row.reserved || (most > 0) != (row.reserved > 0) || held != 0 {
			t.Errorf("%s: %v, reserved %d bytes, want %d; %d were not given back", row.name, err, most, row.reserved, held)
		}
		if !row.cut && row.reserved > 0 { // nothing is read that does not fit
			left := errors.New("the client left")
			call.Reserve = func(context.Context, int64) (func(), error) { return nil, left }
			if _, err := up.Do(t.Context(), call); !errors.Is(err, left) {
				t.Errorf("%s: %v", row.name, err)
			}
		}
	}
}
