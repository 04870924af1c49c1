package gateway_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// slowAnswer is an answer whose end comes when it is let go.
type slowAnswer struct {
	io.Reader
	read atomic.Int64
	end  chan struct{}
	ctx  context.Context
	tail io.Reader
}

func newSlowAnswer(size int64) *slowAnswer {
	before, after, _ := strings.Cut(chatAnswer(""), ",")
	return &slowAnswer{
		Reader: io.MultiReader(strings.NewReader(before+","), io.LimitReader(spaces{}, size)),
		end:    make(chan struct{}), tail: strings.NewReader(after),
	}
}

func (p *slowAnswer) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.read.Add(int64(n))
	if err != io.EOF {
		return n, err
	}
	select {
	case <-p.end:
		return p.tail.Read(b)
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
}

func (p *slowAnswer) Close() error { return nil }

// newAnswerGateway is a gateway with room for 64 MiB of large answers, whose upstream gives
// the answers in turn.
func newAnswerGateway(t *testing.T, answers ...*slowAnswer) *testGateway {
	next := 0
	return newTestGateway(t, upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
		p := answers[next]
		next++
		p.ctx = ctx
		return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: p}, nil
	}), "1", func(o *gateway.Options) {
		o.Admission = gateway.Admission{Memory: 256 << 20, InUse: func() int64 { return 0 }}
	})
}

// get asks for the next answer, and ends the request with what became of it.
func (h *testGateway) get(ctx context.Context) error {
	e, err := h.Enter(ctx, gateway.Caller{})
	if err == nil {
		_, err = e.Do(ctx, &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(askChat)})
	}
	e.End(200, err)
	e.Release()
	return err
}

// begin has a call wait for its answer in a bubble.
func (h *testGateway) begin(ctx context.Context, done chan<- error) {
	go func() { done <- h.get(ctx) }()
	synctest.Wait()
}

// ended waits for calls that all end well, and after which no room is taken.
func (h *testGateway) ended(t *testing.T, done <-chan error, calls int) {
	t.Helper()
	for range calls {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if l := h.Load(); l.Answers != 0 || l.Running != 0 {
		t.Errorf("in the end %+v", l)
	}
}

// TestALargeAnswerCountsAsMuchAsTheMemoryThatItHolds asks for answers of 3 MiB and of a third
// of that, which may come to lie in the memory of those before.
func TestALargeAnswerCountsAsMuchAsTheMemoryThatItHolds(t *testing.T) {
	for range 20 {
		for _, size := range []int64{3 << 20, 1<<20 + 1<<16} {
			p := newSlowAnswer(size)
			close(p.end)
			h := newAnswerGateway(t, p)
			e := authenticated(t, t.Context(), h.Gateway)
			r, err := e.Do(t.Context(), &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(askChat)})
			must(t, err)
			if counted, held := h.Load().Answers, int64(cap(r.Body)); counted < held*7/8 || held > 2*int64(len(r.Body)) {
				t.Errorf("an answer of %d bytes holds %d, and %d are counted", len(r.Body), held, counted)
			}
			e.Release()
			e.End(200, nil)
		}
	}
}

func TestLargeAnswersThatFindNoRoomAreReadWhenThereIsSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, small := newSlowAnswer(40<<20), newSlowAnswer(40<<20), newSlowAnswer(1<<20-400)
		close(second.end)
		close(small.end)
		h := newAnswerGateway(t, first, second, small)
		done := make(chan error, 2)
		h.begin(t.Context(), done)
		if n := first.read.Load(); n <= 40<<20 {
			t.Fatalf("of the first %d bytes were read", n)
		}
		h.begin(t.Context(), done)
		if n := second.read.Load(); n == 0 || n > 1<<20 {
			t.Errorf("while there was no room, %d bytes of the second were read", n)
		}
		if l := h.Load(); l.Answers < 40<<20 {
			t.Errorf("%+v", l)
		}
		if err := h.get(t.Context()); err != nil {
			t.Errorf("one that is not large: %v", err)
		}
		close(first.end)
		h.ended(t, done, 2)
	})
}

func TestWhoLeavesWhileAnAnswerFindsNoRoomPaysForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := newSlowAnswer(40<<20), newSlowAnswer(40<<20), newSlowAnswer(40<<20)
		close(third.end)
		h := newAnswerGateway(t, first, second, third)
		done := make(chan error, 3)
		h.begin(t.Context(), done)
		ctx, leave := context.WithCancel(t.Context())
		h.begin(ctx, done)
		h.begin(t.Context(), done)
		leave()
		close(first.end)
		close(second.end)
		h.ended(t, done, 3)
	})
}

func TestTheCopyByWhichAnAnswerIsCheckedWaitsForRoomToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newSlowAnswer(20<<20), newSlowAnswer(24<<20)
		close(second.end)
		h := newAnswerGateway(t, first, second)
		done := make(chan error, 2)
		for range 2 {
			h.begin(t.Context(), done)
		}
		if n := second.read.Load(); n <= 24<<20 || len(done) > 0 {
			t.Errorf("%d bytes of the second were read, %d calls have ended", n, len(done))
		}
		close(first.end)
		h.ended(t, done, 2)
	})
}

// Else one call of many parts would take many times the room.
func TestThePartsOfAnAnswerAreReadAsThereIsRoomForEach(t *testing.T) {
	const parts = 4
	synctest.Test(t, func(t *testing.T) {
		all := make(chan *slowAnswer, parts)
		h := newTestGateway(t, upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
			r, err := vectorsFor(ctx, call)
			if err != nil {
				return nil, err
			}
			p := newSlowAnswer(40 << 20)
			p.Reader, p.tail, p.ctx = io.LimitReader(spaces{}, 40<<20), r.Body, ctx
			r.Body = p
			all <- p
			return r, nil
		}), "1", func(o *gateway.Options) {
			inBatches(1)(o)
			o.MaxAnswer = 256 << 20
			o.Admission = gateway.Admission{Memory: 256 << 20, InUse: func() int64 { return 0 }}
		})
		done := make(chan error)
		go func() {
			x, err := h.do(t.Context(), upstream.Embeddings, texts(parts))
			x.Close()
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
		if l := h.Load(); l.Answers < 40<<20 || l.Answers > 128<<20 { // the oldest goes beyond the room
			t.Errorf("%+v", l)
		}
		for range parts {
			close((<-all).end)
		}
		h.ended(t, done, 1)
	})
}

// An answer that is cut, malformed or too large gives its room back at once.
func TestAnAnswerThatIsNoneKeepsNoRoom(t *testing.T) {
	for name, p := range map[string]*slowAnswer{"is not one JSON object": newSlowAnswer(40 << 20), "larger than the gateway allows": newSlowAnswer(65 << 20)} {
		p.tail = strings.NewReader("nonsense")
		close(p.end)
		h := newAnswerGateway(t, p, p, p)
		_, err := h.ask(t.Context(), askChat)
		if !fault.Is(err, fault.BadGateway) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if l := h.Load(); l.Answers != 0 {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// bomb is a gzip of so many MiB of spaces between the two halves of an answer. Each MiB
// is a member of its own, the same one: a gzip may have many.
func bomb(t *testing.T, size int) []byte {
	t.Helper()
	member := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		must(t, w.Close())
		return b.Bytes()
	}
	before, after, _ := strings.Cut(chatAnswer(""), ",")
	filling := bytes.Repeat(member(strings.Repeat(" ", 1<<20)), size)
	return slices.Concat(member(before+","), filling, member(after))
}

type spaces struct{}

// Read copies what it has: the race detector looks at each byte that is written by itself.
func (spaces) Read(p []byte) (int, error) {
	for n := copy(p, " "); n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
	return len(p), nil
}

// TestAnAnswerThatUnfoldsWithoutEndTakesBoundedMemory is docs/reference/faults.md, row 9, for
// answers and for streams.
func TestAnAnswerThatUnfoldsWithoutEndTakesBoundedMemory(t *testing.T) {
	const most = 16 << 20
	data := bomb(t, 128)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Accept") == "text/event-stream" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = w.Write(data)
	}))
	defer vendor.Close()
	up, err := openai.New(upstream.DriverOptions{BaseURL: vendor.URL, Dial: (&net.Dialer{}).DialContext})
	must(t, err)
	defer up.Close()
	h := newTestGateway(t, up, "1", func(o *gateway.Options) { o.MaxAnswer = most })
	for _, body := range []string{askChat, askChatStream} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := h.ask(t.Context(), body)
		runtime.ReadMemStats(&after)
		if !fault.Is(err, fault.BadGateway) {
			t.Errorf("%.60s: %v", body, err)
		}
		// All that was ever taken, not what was at one time.
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 4*most { // the bomb is eight times most
			t.Errorf("%.60s: %d MiB for at most %d", body, taken>>20, most>>20)
		}
	}
	if spent := h.spent(t); spent != 0 {
		t.Errorf("it cost %s", spent)
	}
}

// TestAnAnswerMayBeAsLargeAsTheLimit is the other side: what fits comes through.
func TestAnAnswerMayBeAsLargeAsTheLimit(t *testing.T) {
	const most = 1 << 20
	answer := chatAnswer("")
	for over := -1; over <= 1; over++ {
		text := strings.Replace(answer, ",", ","+strings.Repeat(" ", most+over-len(answer)), 1)
		h := newTestGateway(t, &scriptedUpstream{body: io.MultiReader(strings.NewReader(text[:most/3]), strings.NewReader(text[most/3:]))}, "1", func(o *gateway.Options) { o.MaxAnswer = most })
		r, err := h.ask(t.Context(), askChat)
		if over > 0 && !fault.Is(err, fault.BadGateway) || over <= 0 && err != nil {
			t.Errorf("%d bytes more than the limit: %v", over, err)
		}
		if err == nil && len(r.Body) < len(text)-100 {
			t.Errorf("%d bytes of %d came through", len(r.Body), len(text))
		}
	}
}

// Drivers of vendors with a wire of their own keep whole answers too.
func TestWhatADriverKeepsCountsInTheMemoryForAnswers(t *testing.T) {
	const size = 2 << 20
	var h *testGateway
	h = newTestGateway(t, upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
		release, err := call.Reserve(ctx, size)
		if got := h.Load().Answers; err != nil || got != size {
			t.Errorf("%d bytes are reserved, want %d: %v", got, size, err)
		}
		release()
		return vectorsFor(ctx, call)
	}), "1", func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "m", Kind: gateway.KindEmbeddings}}
		o.Admission = gateway.Admission{Memory: 256 << 20, InUse: func() int64 { return 0 }}
	})
	r := h.must(t, upstream.Embeddings, texts(1))
	r.Close()
	if got := h.Load().Answers; got != 0 {
		t.Errorf("%d bytes are still reserved", got)
	}
}

// TestAStreamThatIsLeftGivesBackTheMemoryOfItsLargeEvent has clients that leave behind a
// picture, on the vendor's wire and on another. Else they would take the memory of all.
func TestAStreamThatIsLeftGivesBackTheMemoryOfItsLargeEvent(t *testing.T) {
	arguments := chunk(`{"role":"assistant","tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"` + strings.Repeat("A", 3<<20) + `"}}]}`)
	for _, row := range []struct {
		op   upstream.Op
		body string
	}{
		{upstream.ChatCompletion, askChatStream},
		{upstream.Messages, askMessageStream},
		{upstream.Responses, askResponseStream},
	} {
		more, end := io.Pipe()
		t.Cleanup(func() { _ = end.Close() })
		up := answering{upstream.ChatCompletion, &scriptedUpstream{body: io.MultiReader(strings.NewReader(arguments), more)}}
		h := newTestGateway(t, up, "1000", func(o *gateway.Options) {
			o.Admission = gateway.Admission{Memory: 256 << 20, InUse: func() int64 { return 0 }}
		})
		r := h.must(t, row.op, row.body)
		for got := 0; got < 3<<20; {
			out, err := r.Stream.Next()
			must(t, err)
			got += len(out)
		}
		if h.Load().Answers == 0 {
			t.Errorf("%s: the event takes no memory", row.op)
		}
		r.Close()
		if left := h.Load().Answers; left != 0 {
			t.Errorf("%s: %d bytes are left", row.op, left)
		}
	}
}
