package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tollhouse-ai/gateway/secret"
)

func serveCommand(p *program) *command {
	c := newCommand("serve", "serve the API")
	c.details = "Without --demo and --config, the vendors' keys in the environment decide: OPENAI_API_KEY, ANTHROPIC_API_KEY,\n" +
		"MOONSHOT_API_KEY, DASHSCOPE_API_KEY, ARK_API_KEY, GEMINI_API_KEY, VOYAGE_API_KEY, each with a ..._BASE_URL.\n" +
		"A first signal lets running calls end; a second one cuts them short."
	c.examples = []string{
		"tollhouse serve --demo",
		"OPENAI_API_KEY=... tollhouse serve",
		"tollhouse serve --config tollhouse.yaml --listen 0.0.0.0:8080",
	}
	var s settings
	f := c.flags
	s.addFlags(f, "info")
	f.StringVar(&s.listen, "listen", "", "the API's address; default "+defaultListen)
	addAdminFlags(f, &s.admin, &s.data)
	s.drain = 30 * time.Second
	f.Var(durationValue{&s.drain}, "drain", "how long running calls may go on after a signal")
	c.bindEnv("config", "demo", "listen", "admin", "data", "log-level", "log-format", "drain")
	c.run = func(ctx context.Context, _ []string) error {
		if err := s.chooseSource(f); err != nil {
			return err
		}
		return p.serve(ctx, &s)
	}
	return c
}

// serve runs the server until a signal or the end of ctx.
func (p *program) serve(ctx context.Context, s *settings) error {
	src, logger, err := p.load(s)
	if err != nil {
		return err
	}
	h, err := p.newApp(ctx, src, s.data, logger)
	if err != nil {
		return err
	}
	return errors.Join(p.listenAndServe(ctx, s, src, h), h.shutdown())
}

// receive opens the doors of the house until a signal or the end of ctx.
func (p *program) listenAndServe(ctx context.Context, s *settings, src *source, h *app) error {
	token, err := adminTokenFor(s, src)
	if err != nil {
		return err
	}
	l, err := h.listen(s, token)
	if err != nil {
		return err
	}
	defer h.recordAddress(l)()
	signals, stop := p.notify()
	defer stop()
	defer h.startJobs(ctx)()
	l.start()
	if err = p.printBanner(ctx, src, h, l, s); err == nil {
		err = p.loop(ctx, h, l, signals)
	}
	return errors.Join(err, h.drain(l, signals, s.drain))
}

// adminAccess is the token of the admin API. The demo does without rather than
// not run in a directory where nothing can be written.
func adminTokenFor(s *settings, src *source) (secret.String, error) {
	if s.admin == adminOff {
		return secret.String{}, nil
	}
	token, err := ensureToken(s.data)
	switch {
	case err == nil:
		return token, nil
	case !src.demo:
		return token, fmt.Errorf("the admin API needs a token in the data directory: name one that can be written with --data, or `--admin off` (%w)", err)
	}
	s.admin = adminOff
	src.notes = append(src.notes, fmt.Sprintf("the admin API is off, since its token cannot be kept: %v", err))
	return secret.String{}, nil
}

// recordAddress writes the address of the admin API beside its token, until forget
// is called. Without the file a command needs --admin, and all else works.
func (h *app) recordAddress(l *listeners) (forget func()) {
	if l.admin.Listener == nil {
		return func() {}
	}
	address := dialable(l.admin.Addr().String())
	if err := writeAddress(h.data, address); err != nil {
		h.logger.Warn("the admin address is not recorded in the data directory: commands may need --admin", "address", address, "error", err)
	}
	return func() { removeAddress(h.data, address) }
}

// notify gives the signals that end a server or make it reload.
func (p *program) notify() (signals <-chan os.Signal, stop func()) {
	if p.signals != nil {
		return p.signals, func() {}
	}
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// attend has the house reload when told so or when the file changes, until the
// server is to end.
func (p *program) loop(ctx context.Context, h *app, l *listeners, signals <-chan os.Signal) error {
	ticks := p.ticks
	if ticks == nil {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		ticks = ticker.C
	}
	c := newReloader(h)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.failed:
			return err
		case s := <-signals:
			if s != syscall.SIGHUP {
				return nil
			}
			c.request(ctx)
		case <-c.whenIdle(ticks):
			c.start(func() { h.reloadIfChanged(ctx) })
		case <-c.done:
			c.finished(ctx)
		}
	}
}

// drain lets running calls end, cuts short those that do not in time, and stops
// the listeners. /readyz is 503 from its beginning.
func (h *app) drain(l *listeners, signals <-chan os.Signal, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		awaitSecondSignal(ctx, signals, cancel)
	}()
	h.logger.Info("shutting down; a second signal cuts running calls short", "drain", patience.String())
	late := context.AfterFunc(ctx, func() {
		time.AfterFunc(closeTimeout, func() { _ = l.public.server.Close() }) // for a client that takes nothing
	})
	err := h.gateway.Shutdown(ctx)
	late()
	if err != nil {
		h.logger.Warn("running calls were cut short; what they delivered is settled")
	}
	l.stop()
	cancel()
	<-stopped
	if n := h.gateway.Unsettled(); n > 0 {
		return fmt.Errorf("%d charges could not be recorded", n)
	}
	h.logger.Info("stopped")
	return nil
}

// awaitHaste cancels at a second signal.
func awaitSecondSignal(ctx context.Context, signals <-chan os.Signal, cancel func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s != syscall.SIGHUP {
				cancel()
				return
			}
		}
	}
}
