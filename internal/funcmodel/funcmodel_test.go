package funcmodel

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// What a function says of its failure is for the operator alone: it may name what no caller
// may know.
func TestTheCallerGetsNothingOfWhatAFunctionFailedWith(t *testing.T) {
	f := Function[string, string]{
		Op:     upstream.Rerank,
		Read:   func(*upstream.Call) (*string, error) { return new(string), nil },
		Answer: func(context.Context, *string) (*string, error) { return nil, errors.New("sk-secret") },
	}
	_, err := f.Do(t.Context(), &upstream.Call{Op: upstream.Rerank})
	failed, ok := errors.AsType[*fault.Error](err)
	if !ok || failed.Code != fault.InternalError || strings.Contains(failed.Message, "sk-secret") {
		t.Errorf("got %v", err)
	}
}

// A caller may leave while its answer waits for the next piece: Close then comes from
// another goroutine than Read, and the iterator ends with its context.
func TestCloseMayComeWhileAReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		pieces := func(yield func(string, error) bool) {
			defer func() { ended = true }()
			if yield("one", nil) {
				<-ctx.Done()
			}
		}
		frame := func(dst []byte, piece string) ([]byte, error) { return append(dst, piece...), nil }
		body := Events(ctx, iter.Seq2[string, error](pieces), frame, "").Body
		if n, err := body.Read(make([]byte, 8)); n != 3 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		read := make(chan error)
		go func() {
			_, err := body.Read(make([]byte, 8))
			read <- err
		}()
		synctest.Wait()
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-read; err == nil || err == io.EOF {
			t.Errorf("the read that waited ended with %v", err)
		}
		if _, err := body.Read(make([]byte, 8)); !errors.Is(err, io.ErrClosedPipe) || !ended {
			t.Errorf("after Close: %v; the iterator has ended: %t", err, ended)
		}
	})
}
