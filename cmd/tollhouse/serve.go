package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
)

// serveCommand is `serve`. Every flag can be set by the environment too, as in a container.
func serveCommand(p *program) *command {
	c := newCommand("serve", "serve the API")
	c.details = "Without --demo or --config, vendors are taken from these environment variables:\n" +
		"  " + strings.Join(presetVariables(), "\n  ") + "\n" +
		"Set ..._BASE_URL to reach a vendor at another address; docs/reference/vendors.md lists these variables.\n" +
		"The first signal lets running calls finish; a second one cancels them."
	c.examples = []string{
		"tollhouse serve --demo",
		"OPENAI_API_KEY=... tollhouse serve",
		"tollhouse serve --config tollhouse.yaml --listen 0.0.0.0:8080",
	}
	var s settings
	f := c.flags
	s.addFlags(f, "info")
	f.StringVar(&s.listen, "listen", "", "the API's address `HOST:PORT`; default "+defaultListen)
	addAdminFlags(f, "the admin API's address `HOST:PORT`, or off", &s.admin, &s.data)
	s.drain = 30 * time.Second
	f.Var(durationValue{&s.drain}, "drain", "the `TIME` that running calls may continue after a signal")
	c.bindEnv("config", "demo", "listen", "admin", "data", "log-level", "log-format", "drain")
	c.run = func(ctx context.Context, _ []string) error {
		if err := s.chooseSource(f); err != nil {
			return err
		}
		return p.serve(ctx, &s)
	}
	return c
}

// listsAtStart is for how long a start waits for the lists of vendors, so that what the
// server prints can be called. A vendor may be away.
const listsAtStart = 2 * time.Second

// serve runs the server until a signal or the end of ctx, and drains it.
func (p *program) serve(ctx context.Context, s *settings) (err error) {
	src, logger, err := p.load(s)
	if err != nil {
		return err
	}
	if err := s.checkAddresses(); err != nil {
		return err
	}
	a, err := p.newApp(ctx, src, s.data, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.shutdown()) }()
	token, err := adminTokenFor(s, src)
	if err != nil {
		return err
	}
	l, err := a.listen(s, token)
	if err != nil {
		return err
	}
	owner, forget := p.recordAddress(ctx, a, l)
	defer forget()
	signals, stop := p.notify()
	defer stop()
	defer a.startJobs(ctx)()
	l.start()
	bounded, cancel := context.WithTimeout(ctx, listsAtStart)
	a.lists.Await(bounded)
	cancel()
	if err = p.printBanner(ctx, src, a, l, s, owner); err == nil {
		err = p.loop(ctx, a, l, signals)
	}
	return errors.Join(err, a.drain(l, signals, s.drain))
}

// adminTokenFor is the token of the admin API. Where the data directory cannot be
// written, the demo runs without an admin API, and any other server does not run.
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

// recordAddress writes the address of the admin API to the data directory; forget
// removes it. The record of another server that runs stays, and owner is its address: its
// commands would otherwise reach this one; when that ends, recordLater records this one. Only a
// server in memory, such as a demo, gives way to one that is not: what a command changes there
// is lost with it. Without the record commands need --admin, and all else works.
func (p *program) recordAddress(ctx context.Context, a *app, l *listeners) (owner string, forget func()) {
	if l.admin.Listener == nil {
		return "", func() {}
	}
	address := dialable(l.admin.Addr().String())
	forget = func() { removeAddress(a.data, address) }
	if recordedAddress(a.data) != address { // at its own nothing answers yet
		owner, about := p.recordedServer(ctx, a.data)
		if owner != "" && (about.Store != config.Memory || a.storage.name == config.Memory) {
			a.unrecorded = address
			return owner, forget
		}
	}
	a.writeRecord(address)
	return "", forget
}

// recordLater records the address of the admin API once the server that had the record has
// ended and removed it.
func (a *app) recordLater() {
	if a.unrecorded != "" && recordedAddress(a.data) == "" {
		a.writeRecord(a.unrecorded)
		a.unrecorded = ""
	}
}

func (a *app) writeRecord(address string) {
	if err := writeAddress(a.data, address); err != nil {
		a.logger.Warn("recording the admin address in the data directory failed: commands may need --admin", "address", address, "error", err)
	}
}

// notify delivers the signals that end a server or make it reload.
func (p *program) notify() (signals <-chan os.Signal, stop func()) {
	if p.signals != nil {
		return p.signals, func() {}
	}
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// loop waits until the server is to end. Meanwhile the configuration is reloaded at
// a SIGHUP and when it changes.
func (p *program) loop(ctx context.Context, a *app, l *listeners, signals <-chan os.Signal) error {
	following, stop := context.WithCancel(ctx)
	defer stop()
	hangUps := make(chan struct{}, 1)
	go a.followConfig(following, hangUps, p.ticks)
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
			select {
			case hangUps <- struct{}{}:
			default: // one is pending already
			}
		}
	}
}

// drain lets running requests end, cancels those that have not ended in time, and
// stops the listeners. /readyz is 503 from its beginning.
func (a *app) drain(l *listeners, signals <-chan os.Signal, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		awaitSecondSignal(ctx, signals, cancel)
	}()
	load := a.gateway.Load()
	a.logger.Info("shutting down: waiting for running calls; press Ctrl-C again, or send a second signal, to cancel them", "running", load.Running+load.Waiting, "drain", timeout.String())
	late := context.AfterFunc(ctx, func() {
		// A client that reads nothing blocks its request even after that is canceled.
		time.AfterFunc(closeTimeout, func() { _ = l.public.server.Close() })
	})
	err := a.gateway.Shutdown(ctx)
	late()
	if err != nil {
		a.logger.Warn("running calls were cancelled; what they delivered is settled")
	}
	l.stop()
	cancel()
	<-stopped
	if n := a.gateway.Unsettled(); n > 0 {
		return fmt.Errorf("%d charges could not be recorded", n)
	}
	a.logger.Info("stopped")
	return nil
}

// awaitSecondSignal cancels at a signal other than SIGHUP.
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
