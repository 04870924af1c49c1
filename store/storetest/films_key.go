package storetest

import (
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
)

func answerStays(b bench) {
	b.account("acme", 10)
	b.wantClaim("key", "req_a")
	c := b.shoot("a", 4)
	c.Claimed = true
	h, err := b.Reserve(b.t.Context(), c)
	b.ok(err)
	task := c.With[0].(video.CreateTask).Task
	took := accepted(task, "up-a", morning)
	answer := record("key", "body")
	made, err := b.Tasks().Change(b.t.Context(), video.Step{Task: took}, &answer)
	if !made || err != nil {
		b.t.Fatal(made, err)
	}
	replay := func() {
		b.t.Helper()
		got, err := b.Open(b.t.Context(), onceKey("key"), idempotency.Content{1}, "a later one")
		b.ok(err)
		if got == nil || string(got.Body) != "body" || got.Receipt.ID != "req_a" || got.Receipt.Status == "" || got.Receipt.PriceVersion != "" {
			b.t.Fatalf("the answer is %+v", got)
		}
	}
	replay()
	b = b.crash()
	b.clock.Set(morning.Add(7 * time.Hour)) // longer than a claim lasts
	b.ok(b.Sweep(b.t.Context()))
	replay()
	b.finish(h, billing.Usage{}, ending(took, video.Failed, morning), record("key", "another"))
	replay()
	b.clock.Set(morning.Add(idempotency.KeptFor))
	b.wantClaim("key", "req_b")
}

func keyStaysClaimed(b bench) {
	b.account("acme", 10)
	b.wantClaim("key", "req_a")
	c := b.shoot("a", 4)
	c.Claimed = true
	h, err := b.Reserve(b.t.Context(), c)
	b.ok(err)
	task := c.With[0].(video.CreateTask).Task
	b = b.crash() // before it is known whether an upstream took it
	b.wantTaken("key")
	b.clock.Set(morning.Add(49 * time.Hour))
	b.ok(b.Sweep(b.t.Context()))
	b.wantTaken("key")
	lost := b.asStudio().change(next(task, video.Unknown, morning))
	b.wantTaken("key")
	b.finish(h, billing.Usage{}, ending(lost, video.Expired, morning))
	b.wantClaim("key", "req_b")

	c = b.shoot("b", 4) // one that is refused frees it as well
	c.Claimed = true
	c.Until = morning.Add(100 * time.Hour)
	h, err = b.Reserve(b.t.Context(), c)
	b.ok(err)
	b.wantTaken("key")
	b.finish(h, billing.Usage{}, video.Drop{ID: "vid_b"})
	b.wantClaim("key", "req_c")

	c = b.shoot("c", 11) // and one that has no balance changes nothing of it
	c.Claimed = true
	_, err = b.Reserve(b.t.Context(), c)
	b.wantCode(err, fault.InsufficientBalance)
	b = b.crash()
	b.wantClaim("key", "req_d")
}

func keyIsFree(b bench) {
	b.account("acme", 10)
	b.wantClaim("key", "req_a")
	c := b.shoot("a", 4)
	c.Claimed = true
	_, err := b.Reserve(b.t.Context(), c)
	b.ok(err)
	b.clock.Set(c.Until)
	b = b.crash()
	b.wantBalance(10, 0)
	b.wantClaim("key", "req_b")
}
