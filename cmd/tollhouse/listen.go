package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
)

// The bounds on clients that are slow on purpose (faults.md, row 31). There is
// no write time-out for the whole of an answer: a stream may last.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	closeTimeout       = 1500 * time.Millisecond // in which the last bytes of cancelled calls get out, and the server is away 2 s after the drain
)

// listeners are the public and the admin address with what serves them.
type listeners struct {
	public, admin listener
	failed        chan error // a listener broke
}

// listener is an address and its server; the zero listener is off.
type listener struct {
	net.Listener
	server *http.Server
}

// open binds an address. The handler serves it from [listeners.start] on.
func bind(what, address string, h http.Handler, logger *slog.Logger) (listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return listener{}, fmt.Errorf("cannot listen on %s: choose another address with --%s (%w)", address, what, err)
	}
	return listener{l, newServer(h, logger)}, nil
}

func newServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// bound has the listener take no more connections than it should.
func (l *listener) limitConnections(s *config.Server, logger *slog.Logger) {
	c := newConnLimiter(l.Listener, s, openFiles(), logger)
	l.Listener, l.server.ConnState = c, c.connState
}

// open binds both addresses, or none.
func (h *app) listen(s *settings, token secret.String) (*listeners, error) {
	l := &listeners{failed: make(chan error, 2)}
	var err error
	ready := map[string]func() error{"channels": h.channelsUsable}
	maps.Copy(ready, h.storage.checks())
	public := server.New(h.gateway, server.Options{Ready: ready, Warn: h.readyWarnings(), TempDir: uploadDir(os.TempDir(), s.data)})
	if l.public, err = bind("listen", s.listen, h.telemetry.withTraces(h.withMCP(public)), h.logger); err != nil {
		return nil, err
	}
	l.public.limitConnections(&h.components.Load().Config.Server, h.logger)
	if s.admin == adminOff {
		return l, nil
	}
	o := server.AdminOptions{Token: token, Accounts: h.storage.ledger, Keys: h.storage.keys, Webhooks: h.storage.webhooks, Store: h.storage.name, Logger: h.logger, Channels: channelAdmin{h}, TestChannel: h.testChannel}
	o.Metrics, o.PublicMetrics = h.telemetry.metrics, h.components.Load().Config.Metrics.Public
	if h.file != "" {
		o.Reload = h.reload
	}
	if l.admin, err = bind("admin", s.admin, server.NewAdmin(o), h.logger); err != nil {
		return nil, errors.Join(err, l.public.Close())
	}
	return l, nil
}

// uploads is where large forms lie: in the system's place for temporary files, or
// in the data directory of an image that has no such place.
func uploadDir(temporary, data string) string {
	if info, err := os.Stat(temporary); err == nil && info.IsDir() {
		return temporary
	}
	return data
}

// start serves in the background until stop.
func (l *listeners) start() {
	for _, s := range []listener{l.public, l.admin} {
		if s.server == nil {
			continue
		}
		go func() {
			if err := s.server.Serve(s.Listener); !errors.Is(err, http.ErrServerClosed) {
				l.failed <- fmt.Errorf("stopped serving %s: %w", s.Addr(), err)
			}
		}()
	}
}

// stop waits a moment for answers to get out, then closes every connection.
func (l *listeners) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, s := range []listener{l.admin, l.public} {
		if s.server == nil {
			continue
		}
		if s.server.Shutdown(ctx) != nil {
			_ = s.server.Close() // nothing is left to be told of it
		}
	}
}
