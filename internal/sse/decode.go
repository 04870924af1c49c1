package sse

import (
	"errors"
	"io"
	"iter"

	"github.com/tollhouse-ai/gateway/fault"
)

// Decode yields what decode makes of the events of a source, which it closes at
// the end of the loop, however that comes. An error, of the source as a
// *fault.Error, comes last. An event of which decode makes nil is passed over.
func Decode[T any](source io.ReadCloser, decode func(e Event) (*T, error)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		defer func() { _ = source.Close() }() // what was read is all there is
		events := NewReader(source, 0)
		defer events.Release()
		for {
			e, err := events.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, fault.From(err))
				return
			}
			v, err := decode(e)
			if v == nil && err == nil {
				continue
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}
