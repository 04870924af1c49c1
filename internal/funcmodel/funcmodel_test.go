package funcmodel

import (
	"context"
	"errors"
	"io"
	"iter"
	"testing"
	"testing/synctest"
)

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
