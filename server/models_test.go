package server_test

import (
	"encoding/json"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func TestAModelsTimeIsItsOwnOrThatOfTheStart(t *testing.T) {
	start, own := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC)
	now := start
	var options gateway.Options
	s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) {
		o.Now = func() time.Time { return now }
		o.Models = []gateway.Model{{ID: "m", Created: own}}
		options = *o
	}})
	created := func(path string) (at int64, text string) {
		t.Helper()
		var m struct {
			Created   int64
			CreatedAt string `json:"created_at"`
		}
		if a := s.do(t, "GET", path, ""); a.status != 200 || json.Unmarshal([]byte(a.body), &m) != nil {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return m.Created, m.CreatedAt
	}
	check := func(when string) {
		t.Helper()
		for id, want := range map[string]time.Time{"m": own, "delta-k3": start, "sim-chat": start} {
			if at, text := created("/v1/models/" + id); at != want.Unix() || text != want.Format(time.RFC3339) {
				t.Errorf("%s: %s was created at %d (%s), want %s", when, id, at, text, want)
			}
		}
	}
	check("at the start")
	now = start.Add(time.Hour)
	options.Upstream = channels(t, router.Channel{Upstream: sim.New(sim.Options{}), Models: map[string]string{"*": "*", "m": "m", "delta-k3": "delta-k3", "sim-chat": "sim-chat"}})
	if err := s.g.Reload(options); err != nil {
		t.Fatal(err)
	}
	check("after a reload")
	if at, _ := created("/v1/models/never-named"); at != start.Unix() {
		t.Errorf("a model that no channel names was created at %d", at)
	}
}
