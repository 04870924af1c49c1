package speech

import (
	"context"
	"io"
)

// Encoder makes MP3 of samples. It is safe for concurrent use.
type Encoder interface {
	// Ready is asked before a call whose answer may have to be encoded; it fails
	// if no MP3 can be made.
	Ready() error
	// Encode begins to read samples, from another goroutine, and returns the
	// MP3. That ends with io.EOF once samples did and all of it was encoded,
	// and with another error whenever it is not whole. Close ends it early and
	// returns when samples are not read any more: the caller sees to it that a
	// Read of them does not wait then. So does the end of ctx.
	Encode(ctx context.Context, form PCM, samples io.Reader) (io.ReadCloser, error)
}
