package serve

import (
	"context"
	"iter"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Function is an upstream that answers one operation by Go functions. It is as
// safe for concurrent use as they are.
type Function[R, A any] struct {
	Op     upstream.Op
	Read   func(call *upstream.Call) (*R, error) // see Parsed
	Answer func(ctx context.Context, r *R) (*A, error)
	// Stream answers a call for a stream; nil refuses it.
	Stream func(ctx context.Context, r *R) *upstream.Reply
}

// Supports says that only the operation is served.
func (f Function[R, A]) Supports(op upstream.Op, _ string) bool { return op == f.Op }

// Do calls the function that the call asks for.
func (f Function[R, A]) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Stream && f.Stream == nil {
		return nil, fault.Invalid("stream", `This model does not stream: leave "stream" out.`)
	}
	r, err := f.Read(call)
	if err != nil {
		return nil, err
	}
	if call.Stream {
		return f.Stream(ctx, r), nil
	}
	answer, err := f.Answer(ctx, r)
	if err != nil {
		return nil, fault.From(err)
	}
	return JSON(answer)
}

// Parsed reads calls by the parser of their bodies.
func Parsed[R any](parse func([]byte) (*R, error)) func(*upstream.Call) (*R, error) {
	return func(call *upstream.Call) (*R, error) { return Request(call, parse) }
}

// Whole streams a whole answer, cut into pieces.
func Whole[R, A, P any](answer func(ctx context.Context, r *R) (*A, error), cut func(*A) []*P) func(ctx context.Context, r *R) iter.Seq2[*P, error] {
	return func(ctx context.Context, r *R) iter.Seq2[*P, error] {
		return func(yield func(*P, error) bool) {
			a, err := answer(ctx, r)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, piece := range cut(a) {
				if !yield(piece, nil) {
					return
				}
			}
		}
	}
}
