package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store/internal/sqldb"
)

func TestARequestIsRefusedByThePaceOfTheDatabase(t *testing.T) {
	type batch struct {
		ops  int
		took time.Duration
	}
	for _, c := range []struct {
		name    string
		batches []batch
		queued  int
		running int
		refused bool
	}{
		{"before anything is known", nil, 10_000, 512, false},
		{"a small batch on a slow disk tells nothing", []batch{{1, 30 * time.Millisecond}}, 1_000, 1, false},
		{"a fast database", []batch{{512, 20 * time.Millisecond}}, 10_000, 512, false},
		{"a slow one and a short queue", []batch{{512, time.Second}}, 200, 512, false},
		{"a slow one and a long queue", []batch{{512, time.Second}}, 300, 512, true},
		{"however slow it is, some may wait", []batch{{512, time.Hour}}, alwaysQueued - 1, 512, false},
		{"it became faster, which a small batch tells", []batch{{512, time.Second}, {10, time.Millisecond}, {10, time.Millisecond}}, 800, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := throughput{maxWait: 2 * time.Second, running: c.running}
			for _, b := range c.batches {
				p.record(b.ops, b.took)
			}
			if got := p.tooSlow(c.queued); got != c.refused {
				t.Errorf("refused %v, want %v (%s each)", got, c.refused, p.perOp)
			}
		})
	}
}

func TestAFullQueueRefusesNewRequestsAndTakesSettlements(t *testing.T) {
	c := &committer{db: &DB{options: Options{}.withDefaults()}, wake: make(chan struct{}, 1)}
	c.queue = make([]*op, beginLimit)
	if err := c.enqueue((&reservation{}).op()); err == nil {
		t.Error("a hold was taken")
	}
	for name, o := range map[string]*op{"a settlement": (&settlement{}).op(), "an extension": newOp(nil, nil)} {
		if err := c.enqueue(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestABatchIsBoundedByBytes(t *testing.T) {
	c := &committer{db: &DB{options: Options{}.withDefaults()}}
	large := idempotency.Record{Body: make([]byte, idempotency.MaxAnswer)}
	for range 20 {
		c.queue = append(c.queue, (&settlement{settlementRecords: settlementRecords{answers: []idempotency.Record{large}}}).op())
	}
	var sizes []int
	for len(c.queue) > 0 {
		var ops []*op
		c.dequeue(&ops)
		sizes = append(sizes, len(ops))
	}
	if got := fmt.Sprint(sizes); got != "[8 8 4]" {
		t.Errorf("batches of %s operations, want 8 MiB in each", got)
	}
}

func TestAnAccountKeepsSoManyBytesOfAnswers(t *testing.T) {
	const hour = int64(time.Hour)
	k := byteQuota{limit: 2_400}
	kept := func(account string) []answer {
		return []answer{{record: idempotency.Record{Key: idempotency.Key{Account: account}}}}
	}
	for i, c := range []struct {
		account string
		bytes   int64
		at      int64
		commit  bool
		fits    bool
	}{
		{"acme", 1_000, 0, true, true},
		{"acme", 201, 0, true, false},
		{"acme", 200, 0, false, true}, // rolled back
		{"acme", 200, 0, true, true},
		{"acme", 1, 0, true, false},
		{"other", 1_200, 0, true, true},
		{"acme", 50, hour, true, true}, // an hour has let go of 50
		{"acme", 1, hour, true, false},
		{"acme", 1_200, 25 * hour, true, true},
		{"acme", 1, 24 * hour, true, false}, // a clock that went back
	} {
		if got := k.reserve(c.account, c.bytes, c.at); got != c.fits {
			t.Errorf("step %d: fits %v, want %v", i, got, c.fits)
		}
		if c.commit {
			k.commit(kept(c.account))
		} else {
			k.drop(kept(c.account))
		}
	}
	k.removeIdle(100 * hour)
	if len(k.accounts) != 0 {
		t.Errorf("%d idle accounts are counted", len(k.accounts))
	}
}

func TestATimeOfAProcessIsMeasuredByTheDatabasesClock(t *testing.T) {
	shared, alone := &DB{dialect: sqldb.Dialect{Clock: "now"}}, &DB{}
	fixed := &DB{dialect: shared.dialect, options: Options{Now: time.Now}}
	for _, skew := range []time.Duration{-time.Hour, 0, 365 * 24 * time.Hour} {
		theirs := time.Now().Add(skew).UnixNano() // the database's now
		until := time.Now().Add(time.Minute)
		if off := time.Duration(shared.ledgerTime(until, theirs)-theirs) - time.Minute; off.Abs() > 10*time.Second {
			t.Errorf("skew %s: a minute is off by %s", skew, off)
		}
		if alone.ledgerTime(until, theirs) != until.UnixNano() || fixed.ledgerTime(until, theirs) != until.UnixNano() {
			t.Errorf("skew %s: the process's own time was changed", skew)
		}
		if shared.ledgerTime(time.Time{}, theirs) != 0 {
			t.Error("no time became one")
		}
		if far := shared.ledgerTime(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), theirs); far <= theirs {
			t.Errorf("a time far off became %d", far)
		}
	}
}

func TestOnlyTheJumpsOfTheClockWithinTheTimeOfAHoldCount(t *testing.T) {
	const holdFor = 6 * time.Hour
	// Each hour of the wall clock the machine sleeps for fifty minutes.
	start := time.Now()
	now, wall := start, start.Round(0)
	var jumps clockJumps
	jumps.observe(wall, now, holdFor)
	var ahead time.Duration
	for range 100 {
		now, wall = now.Add(10*time.Minute), wall.Add(time.Hour)
		ahead = jumps.observe(wall, now, holdFor)
	}
	if most := 37 * 50 * time.Minute; ahead > most {
		t.Errorf("after 100 jumps the clock is %s ahead, want at most the %s of the last six hours", ahead, most)
	}
	if ahead = jumps.observe(wall.Add(holdFor+time.Minute), now.Add(holdFor+time.Minute), holdFor); ahead != 0 {
		t.Errorf("six hours after the last jump the clock is %s ahead, want 0", ahead)
	}
}
