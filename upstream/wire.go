package upstream

import (
	"context"
	"net/http"
)

type wireContext struct{}

// WithWire returns a context in which calls to vendors carry h beside what their
// drivers send: the headers of a trace ("traceparent"), or of a proxy in between.
// What a driver sets wins over h, which must not change any more. Whoever begins
// an attempt ([Call.Begin]) puts it there.
func WithWire(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, wireContext{}, h)
}

// Wire is what [WithWire] put into the context; nil if nothing. A driver that
// calls a vendor over HTTP adds it to each request, and must not change it.
func Wire(ctx context.Context) http.Header {
	h, _ := ctx.Value(wireContext{}).(http.Header)
	return h
}
