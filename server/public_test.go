package server_test

import (
	"encoding/json"
	"errors"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/server"
)

// health is the answer of /readyz.
type health struct {
	Status           string
	Checks, Warnings map[string]string
}

func (s *fixture) ready(t *testing.T) (status int, h health) {
	t.Helper()
	a := s.do(t, "GET", "/readyz", "", "Authorization: ")
	if err := json.Unmarshal([]byte(a.body), &h); err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
	return a.status, h
}

func TestAServerThatIsShortOfMemoryIsNotReady(t *testing.T) {
	for _, c := range []struct {
		used   int64
		status int
		word   string
		check  string
	}{
		{999, 200, "ok", "ok"},
		{1000, 503, "unavailable", "memory is short: new calls are refused until some of it is free again"},
	} {
		s := newFixture(t, fixtureOptions{
			gateway: func(o *gateway.Options) {
				o.Admission = gateway.Admission{Memory: 1000, InUse: func() int64 { return c.used }}
			},
		})
		status, h := s.ready(t)
		if status != c.status || h.Status != c.word || h.Checks["memory"] != c.check || h.Checks["draining"] != "ok" {
			t.Errorf("with %d of 1000 bytes in use: %d %+v", c.used, status, h)
		}
	}
}

func TestAServerThatIsFullIsReadyAndWarns(t *testing.T) {
	s := newFixture(t, fixtureOptions{
		gateway: func(o *gateway.Options) { o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: -1} },
		server:  server.Options{Warn: map[string]func() error{"own": func() error { return errors.New("a doubt") }}},
	})
	warned := func(when string, want bool) {
		t.Helper()
		status, h := s.ready(t)
		if _, got := h.Warnings["calls"]; status != 200 || got != want || h.Warnings["own"] != "a doubt" {
			t.Errorf("%s: %d %+v", when, status, h)
		}
	}
	warned("idle", false)
	x, err := s.g.Do(t.Context(), &gateway.Request{Token: s.key.Reveal()})
	if err := errors.Join(err, x.Admit(t.Context(), 0)); err != nil {
		t.Fatal(err)
	}
	warned("full", true)
	x.End(200, nil)
	warned("idle again", false)
}
