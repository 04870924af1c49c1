package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// parcel is an answer whose end comes when it is let go.
type parcel struct {
	io.Reader
	read atomic.Int64
	end  chan struct{}
	ctx  context.Context
	tail io.Reader
}

func newParcel(size int64) *parcel {
	before, after, _ := strings.Cut(whole(""), ",")
	return &parcel{
		Reader: io.MultiReader(strings.NewReader(before+","), io.LimitReader(spaces{}, size)),
		end:    make(chan struct{}), tail: strings.NewReader(after),
	}
}

func (p *parcel) Read(b []byte) (int, error) {
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

func (p *parcel) Close() error { return nil }

// depot is a gateway with room for 64 MiB of large answers, whose upstream gives
// the parcels in turn.
func depot(t *testing.T, parcels ...*parcel) *house {
	next := 0
	return newHouse(t, upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
		p := parcels[next]
		next++
		p.ctx = ctx
		return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: p}, nil
	}), "1", func(o *gateway.Options) {
		o.Admission = gateway.Admission{Memory: 256 << 20, InUse: func() int64 { return 0 }}
	})
}

// get asks for the next parcel, and ends the exchange with what became of it.
func (h *house) get(ctx context.Context) error {
	x, r, err := h.ask(ctx, askWhole)
	x.End(ctx, 200, err)
	if err == nil {
		r.Release()
	}
	return err
}

// ended waits for calls that all end well, and after which no room is taken.
func (h *house) ended(t *testing.T, done <-chan error, calls int) {
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

func TestLargeAnswersThatFindNoRoomAreReadWhenThereIsSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, small := newParcel(40<<20), newParcel(40<<20), newParcel(1<<20-400)
		close(second.end)
		close(small.end)
		h := depot(t, first, second, small)
		done := make(chan error, 2)
		go func() { done <- h.get(t.Context()) }()
		synctest.Wait()
		if n := first.read.Load(); n <= 40<<20 {
			t.Fatalf("of the first %d bytes were read", n)
		}
		go func() { done <- h.get(t.Context()) }()
		synctest.Wait()
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

// Else two that each have a part, and need more, would wait for each other.
func TestTheOldestOfTheLargeAnswersAlwaysGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 3
		var all []*parcel
		for range many {
			all = append(all, newParcel(60<<20))
		}
		h := depot(t, all...)
		done := make(chan error)
		for _, p := range all {
			go func() { done <- h.get(t.Context()) }()
			synctest.Wait()
			if n := p.read.Load(); n == 0 {
				t.Error("an answer was not begun")
			}
		}
		for _, p := range all {
			close(p.end)
		}
		h.ended(t, done, many)
	})
}

func TestWhoLeavesWhileAnAnswerFindsNoRoomPaysForThePrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := newParcel(40<<20), newParcel(40<<20), newParcel(40<<20)
		close(third.end)
		h := depot(t, first, second, third)
		done := make(chan error, 2)
		go func() { done <- h.get(t.Context()) }()
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- h.get(ctx) }()
		synctest.Wait()
		go func() { done <- h.get(t.Context()) }()
		synctest.Wait()
		leave()
		if err := <-left; !fault.Is(err, fault.ClientGone) {
			t.Errorf("who left got %v", err)
		}
		if spent := h.spent(t, "1"); spent != estimatedInput*1000 {
			t.Errorf("who left paid %s", spent)
		}
		close(first.end)
		h.ended(t, done, 2)
	})
}

func TestTheCopyByWhichAnAnswerIsCheckedWaitsForRoomToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newParcel(20<<20), newParcel(24<<20)
		close(second.end)
		h := depot(t, first, second)
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- h.get(t.Context()) }()
			synctest.Wait()
		}
		if n := second.read.Load(); n <= 24<<20 || len(done) > 0 {
			t.Errorf("%d bytes of the second were read, %d calls have ended", n, len(done))
		}
		close(first.end)
		h.ended(t, done, 2)
	})
}

// Its client may be as slow as it likes.
func TestAnAnswerThatWasReadIsInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newParcel(40<<20), newParcel(60<<20)
		close(first.end)
		close(second.end)
		h := depot(t, first, second)
		x, r, err := h.ask(t.Context(), askWhole)
		if err != nil {
			t.Fatal(err)
		}
		if l := h.Load(); l.Answers != int64(len(r.Body)) {
			t.Errorf("of an answer of %d bytes: %+v", len(r.Body), l)
		}
		began := time.Now()
		if err := h.get(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		x.End(t.Context(), 200, nil)
		if l := h.Load(); l.Answers != 0 {
			t.Errorf("in the end %+v", l)
		}
	})
}

// Else one call of many parts would take many times the room.
func TestThePartsOfAnAnswerAreReadAsThereIsRoomForEach(t *testing.T) {
	const parts = 4
	synctest.Test(t, func(t *testing.T) {
		all := make(chan *parcel, parts)
		h := newHouse(t, upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
			r, err := vectorsFor(call)
			if err != nil {
				return nil, err
			}
			p := newParcel(40 << 20)
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
			x, _, err := h.embed(t.Context(), "", texts(parts))
			x.End(t.Context(), 200, err)
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
	for name, p := range map[string]*parcel{"is not one JSON object": newParcel(40 << 20), "larger than the gateway allows": newParcel(65 << 20)} {
		p.tail = strings.NewReader("nonsense")
		close(p.end)
		h := depot(t, p, p, p)
		x, _, err := h.ask(t.Context(), askWhole)
		if !fault.Is(err, fault.BadGateway) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if l := h.Load(); l.Answers != 0 {
			t.Errorf("%s: before its end %+v", name, l)
		}
		x.End(t.Context(), 502, err)
	}
}
