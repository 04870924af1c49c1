package gateway

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"
)

// Service is what [Serve] runs beside a gateway: an HTTP server (server.Listen), a store (a
// *store.DB), or a part of the program. Run works until ctx ends, then ends what it began, and
// returns. It must return: Serve waits for it without a limit. Its error ends the whole of Serve; what it returns at the end of ctx does not count.
type Service interface {
	Run(ctx context.Context) error
}

// serveDrain is how long running calls may go on when Serve ends.
const serveDrain = 30 * time.Second

// Serve runs a gateway and what belongs to it until ctx ends:
//
//	err := gateway.Serve(ctx, g, db, server.Listen(":8080", server.New(g, server.Options{})))
//
// It ends them in the order in which nothing is lost. First come the services without a method
// Close() error, such as HTTP servers: they end, and are waited for. Running calls get 30 s and are
// cancelled then. The gateway closes, and settles what was not settled. At last the services with
// a Close, such as stores, stop and are closed, in the reverse of the order of services.
//
// Serve returns nil if ctx has ended. Otherwise it returns the first service's error, which ends
// all of them in that order. An error of Close is logged; it is returned if there is no other. A service
// that ends without an error before is done, and the others run on. Use neither g nor a closed
// service afterwards.
func Serve(ctx context.Context, g *Gateway, services ...Service) error {
	lasting := context.WithoutCancel(ctx)
	failed := make(chan error, len(services))
	front, work, stores := newGroup(lasting), newGroup(lasting), newGroup(lasting)
	var closers []io.Closer
	for _, s := range services {
		to := front
		if c, ok := s.(io.Closer); ok {
			to, closers = stores, append(closers, c)
		}
		to.run(s, failed)
	}
	work.run(g, failed)

	var first error
	select {
	case <-ctx.Done():
	case first = <-failed:
	}
	drain, cancel := context.WithTimeout(lasting, serveDrain)
	defer cancel()
	front.stop()
	front.wait(drain)
	_ = g.Shutdown(drain) // cancels the calls that still run at the end of drain
	front.wait(lasting)
	work.stop()
	work.wait(lasting)
	stores.stop()
	stores.wait(lasting)
	for _, c := range slices.Backward(closers) {
		if err := c.Close(); err != nil {
			g.options.Logger.Error("closing a service failed", "error", err)
			if first == nil {
				first = err
			}
		}
	}
	return first
}

// group is services that end together.
type group struct {
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newGroup(ctx context.Context) *group {
	g := new(group)
	g.ctx, g.stop = context.WithCancel(ctx)
	return g
}

// run runs a service. Its error is sent to failed, unless the group was stopped.
func (g *group) run(s Service, failed chan<- error) {
	g.running.Go(func() {
		if err := s.Run(g.ctx); err != nil && g.ctx.Err() == nil {
			failed <- err
		}
	})
}

// wait waits until all services of the group have ended, or ctx has.
func (g *group) wait(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		g.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
