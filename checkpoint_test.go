package gateway_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
)

// notedMeter notes the output of every checkpoint.
type notedMeter struct {
	billing.Meter
	spare bool
	mu    sync.Mutex
	noted []int64
}

func (m *notedMeter) HasCapacity() bool { return m.spare }

func (m *notedMeter) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	m.mu.Lock()
	m.noted = append(m.noted, soFar.Output)
	m.mu.Unlock()
	return m.Meter.Extend(ctx, h, soFar, more)
}

// watched streams so many tokens, with a pause after each, and gives the
// checkpoints.
func watched(t *testing.T, tokens int, pause time.Duration, spare bool) []int64 {
	t.Helper()
	r, w := io.Pipe()
	meter := &notedMeter{spare: spare}
	h := newHouse(t, &scripted{body: r}, "1.00", func(o *gateway.Options) {
		meter.Meter, o.Meter = o.Meter, meter
		o.Heartbeat = -1
	})
	go func() {
		for range tokens {
			_, _ = io.WriteString(w, chunk(`{"content":"abcd"}`, ""))
			time.Sleep(pause) // in the time of a synctest bubble
		}
		_, _ = io.WriteString(w, usageChunk(1, tokens)+"data: [DONE]\n\n")
		_ = w.Close()
	}()
	_, result, err := h.ask(t.Context(), strings.Replace(askStream, `"max_tokens":100`, `"max_tokens":9000`, 1))
	if err != nil {
		t.Fatal(err)
	}
	drain(t, result.Stream)
	return meter.noted
}

func TestAStreamIsCheckpointedWhenAThousandTokensAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if diff := cmp.Diff([]int64{1_000, 2_000}, watched(t, 2_500, 0, true)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestASlowStreamIsCheckpointedEveryTwoSecondsIfTheMeterHasTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if diff := cmp.Diff([]int64{5, 9, 13}, watched(t, 14, 500*time.Millisecond, true)); diff != "" {
			t.Error(diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if noted := watched(t, 14, 500*time.Millisecond, false); noted != nil {
			t.Errorf("a busy meter was told of %d", noted)
		}
	})
}
