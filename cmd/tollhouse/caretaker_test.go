package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

// slowKeys are keys whose store does not answer until the test says so.
type slowKeys struct {
	keyStore
	asked  int
	answer chan struct{}
}

func (s *slowKeys) replace(ctx context.Context, keys []auth.Key) error {
	s.asked++
	select {
	case <-s.answer:
		return s.keyStore.replace(ctx, keys)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// minded is a house whose store of keys is slow, and which is attended to in a
// bubble until attend returns.
type minded struct {
	*app
	keys     *slowKeys
	log      *page
	listened chan os.Signal
	ticks    chan time.Time
	over     chan error
}

func mind(t *testing.T, name string) *minded {
	t.Helper()
	dir := t.TempDir()
	a := &minded{log: newPage(), listened: make(chan os.Signal), ticks: make(chan time.Time), over: make(chan error, 1)}
	p := &program{env: acme.lookup, ticks: a.ticks}
	src, err := p.source(&settings{config: name, data: dir})
	if err != nil {
		t.Fatal(err)
	}
	if a.app, err = p.newApp(t.Context(), src, dir, slog.New(slog.NewTextHandler(a.log, nil))); err != nil {
		t.Fatal(err)
	}
	a.keys = &slowKeys{keyStore: a.storage.keys, answer: make(chan struct{})}
	a.storage.keys = a.keys
	go func() { a.over <- p.loop(t.Context(), a.app, &listeners{failed: make(chan error)}, a.listened) }()
	return a
}

func (a *minded) hear(s os.Signal) {
	a.listened <- s
	synctest.Wait()
}

func TestAServerEndsAtOnceThoughAReloadIsSlow(t *testing.T) {
	name := file(t, planted("m"))
	for what, begin := range map[string]func(*minded){
		"at a hang-up": func(a *minded) { a.hear(syscall.SIGHUP) },
		"of a file that changed": func(a *minded) {
			write(t, name, planted("m")+"# "+strings.Repeat("x", 100)+"\n")
			for range 2 {
				a.ticks <- time.Time{}
				synctest.Wait()
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			write(t, name, planted("m"))
			synctest.Test(t, func(t *testing.T) {
				a := mind(t, name)
				begin(a)
				if a.keys.asked != 1 {
					t.Fatalf("the store was asked %d times", a.keys.asked)
				}
				began := time.Now()
				a.hear(syscall.SIGTERM)
				if err := errors.Join(<-a.over, a.shutdown()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %s", took)
				}
				synctest.Wait()
				if log := a.log.String(); !strings.Contains(log, "given up, since the server ends") || strings.Contains(log, "refused") {
					t.Errorf("the log says\n%s", log)
				}
				if err := a.reload(t.Context()); !fault.Is(err, fault.ServiceUnavailable) {
					t.Errorf("a reload after the end: %v", err)
				}
			})
		})
	}
}

func TestHangUpsDuringAReloadLeadToOneMore(t *testing.T) {
	name := file(t, planted("m"))
	synctest.Test(t, func(t *testing.T) {
		a := mind(t, name)
		for range 3 {
			a.hear(syscall.SIGHUP)
		}
		for _, want := range []int{1, 2} {
			if a.keys.asked != want {
				t.Errorf("the file was read %d times, not %d", a.keys.asked, want)
			}
			a.keys.answer <- struct{}{}
			synctest.Wait()
		}
		if n := strings.Count(a.log.String(), "configuration reloaded"); n != 2 || a.keys.asked != 2 {
			t.Errorf("%d reloads, %d begun:\n%s", n, a.keys.asked, a.log)
		}
		a.hear(os.Interrupt)
		if err := errors.Join(<-a.over, a.shutdown()); err != nil {
			t.Error(err)
		}
	})
}

// What is read without a context, a file on a disk that is away, does not keep
// the server either.
func TestAReloadThatHangsForGoodDoesNotKeepTheHouse(t *testing.T) {
	name := file(t, planted("m"))
	synctest.Test(t, func(t *testing.T) {
		a := mind(t, name)
		a.hear(syscall.SIGTERM)
		a.reloading <- struct{}{} // and it never ends
		began := time.Now()
		if err := errors.Join(<-a.over, a.shutdown()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("it took %s", took)
		}
	})
}
