package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
)

// The limits of a connection, beside those of [Options].
const (
	listenHeaderTimeout = 5 * time.Second
	listenIdleTimeout   = 2 * time.Minute
	// listenEndTimeout is longer than what gateway.Serve gives to running calls, which it
	// cancels itself.
	listenEndTimeout = 35 * time.Second
)

// Listen returns an HTTP server for [gateway.Serve]. It answers at a TCP address (":8080") by h,
// which is a [Handler] or a mux that has one. The address is taken when the service runs; if that
// fails, so does the service. When its context ends, the server takes no new connections, and ends
// when the running requests have, 35 s later at the latest.
//
// A program that needs TLS or limits of its own runs an http.Server itself, as a
// [gateway.Service] of a few lines.
func Listen(address string, h http.Handler) gateway.Service {
	return &listening{address: address, server: http.Server{
		Handler: h, ReadHeaderTimeout: listenHeaderTimeout, IdleTimeout: listenIdleTimeout, // the handler bounds its reads and writes
	}}
}

// listening is the service of [Listen].
type listening struct {
	address string
	server  http.Server
}

// Run serves until ctx ends.
func (l *listening) Run(ctx context.Context) error {
	on, err := new(net.ListenConfig).Listen(ctx, "tcp", l.address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", l.address, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.server.Serve(on) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving on %s: %w", l.address, err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenEndTimeout)
	defer cancel()
	err = l.server.Shutdown(last)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests still ran on %s at the end: %w", l.address, err), l.server.Close())
	}
	<-ended
	return err
}
