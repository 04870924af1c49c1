package gateway_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// bomb is a gzip of so many spaces between the two halves of an answer.
func bomb(t *testing.T, size int64) []byte {
	t.Helper()
	before, after, _ := strings.Cut(whole(""), ",")
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = io.Copy(w, io.MultiReader(strings.NewReader(before+","), io.LimitReader(spaces{}, size), strings.NewReader(after)))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestAnAnswerThatUnfoldsWithoutEndTakesBoundedMemory is faults.md, row 9, for
// answers and for streams.
func TestAnAnswerThatUnfoldsWithoutEndTakesBoundedMemory(t *testing.T) {
	const most = 16 << 20
	data := bomb(t, 128<<20)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Accept") == "text/event-stream" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = w.Write(data)
	}))
	defer vendor.Close()
	up, err := openai.New(openai.Options{BaseURL: vendor.URL, Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	h := newHouse(t, up, "1", func(o *gateway.Options) { o.MaxAnswer = most })
	for _, body := range []string{askWhole, askStream} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := h.ask(t.Context(), body)
		runtime.ReadMemStats(&after)
		if !fault.Is(err, fault.BadGateway) {
			t.Errorf("%.60s: %v", body, err)
		}
		// All that was ever taken, not what was at one time.
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 4*most { // the bomb is eight times most
			t.Errorf("%.60s: %d MiB for at most %d", body, taken>>20, most>>20)
		}
	}
	if spent := h.spent(t, "1"); spent != 0 {
		t.Errorf("it cost %s", spent)
	}
}

// TestAnAnswerMayBeAsLargeAsTheLimit is the other side: what fits comes through.
func TestAnAnswerMayBeAsLargeAsTheLimit(t *testing.T) {
	const most = 1 << 20
	answer := whole("")
	for over := -1; over <= 1; over++ {
		text := strings.Replace(answer, ",", ","+strings.Repeat(" ", most+over-len(answer)), 1)
		h := newHouse(t, &scripted{body: io.MultiReader(strings.NewReader(text[:most/3]), strings.NewReader(text[most/3:]))}, "1", func(o *gateway.Options) { o.MaxAnswer = most })
		_, r, err := h.ask(t.Context(), askWhole)
		if over > 0 && !fault.Is(err, fault.BadGateway) || over <= 0 && err != nil {
			t.Errorf("%d bytes more than the limit: %v", over, err)
		}
		if err == nil && len(r.Body) < len(text)-100 {
			t.Errorf("%d bytes of %d came through", len(r.Body), len(text))
		}
	}
}
