//go:build unix

package crashtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

var (
	rounds   = flag.Int("rounds", 55, "kill a process at so many random moments, on each database; at most 5 unless long tests are enabled")
	perPoint = flag.Int("per-point", 1, "kill a process so many times at each fault point, on each database")
	seed     = flag.Uint64("seed", 0, "of all that is random; 0 is another one each time")
)

// newBench is a bench without a database. It says in the end what was done.
func newBench(t *testing.T, postgres bool, fresh func(t *testing.T) place) *bench {
	t.Parallel() // most of the time a round waits for a disk or for a lease
	b := &bench{t: t, postgres: postgres, fresh: fresh, figures: newFigures(), seed: *seed}
	for b.seed == 0 {
		b.seed = rand.Uint64()
	}
	t.Cleanup(func() { t.Logf("seed %d: %s", b.seed, b.figures) })
	return b
}

func onSQLite(t *testing.T) *bench {
	n := 0
	return newBench(t, false, func(t *testing.T) place {
		n++
		return place{Where: filepath.Join(t.ArtifactDir(), fmt.Sprintf("%d.db", n))}
	})
}

func onPostgres(t *testing.T) *bench {
	return newBench(t, true, func(t *testing.T) place {
		starting.Lock() // the first one starts a server
		defer starting.Unlock()
		return place{Postgres: true, Where: storetest.Postgres(t)}
	})
}

func TestAtRandomMomentsOnSQLiteNothingIsLostDoubledOrLeftOpen(t *testing.T) {
	onSQLite(t).atRandomMoments()
}

func TestAtRandomMomentsOnPostgresNothingIsLostDoubledOrLeftOpen(t *testing.T) {
	onPostgres(t).atRandomMoments()
}

func TestAtEveryFaultPointOnSQLiteNothingIsLostDoubledOrLeftOpen(t *testing.T) {
	onSQLite(t).atEveryFaultPoint()
}

func TestAtEveryFaultPointOnPostgresNothingIsLostDoubledOrLeftOpen(t *testing.T) {
	onPostgres(t).atEveryFaultPoint()
}

func (b *bench) atRandomMoments() {
	for range longtest.Count(*rounds, 5) {
		b.next()
		b.atRandom()
		b.check()
	}
}

// atRandom ends one process or several, at once or one after the other.
func (b *bench) atRandom() {
	switch n := b.dice.IntN(4); {
	case n < 2:
		b.run(b.task(), b.random())
	case n == 2 && b.postgres:
		b.beside(b.task(), b.random(), b.dice.IntN(2), 1+b.dice.IntN(2))
	case n == 2:
		for range 2 + b.dice.IntN(2) {
			b.run(b.task(), b.random())
		}
	default:
		b.run(b.task(), b.random())
		b.expired()
		for range 1 + b.dice.IntN(3) {
			b.run(b.opening(), moment{0, time.Duration(b.dice.Int64N(int64(60 * time.Millisecond)))})
		}
	}
}

func (b *bench) atEveryFaultPoint() {
	database, some := "sqlite", !longtest.Enabled()
	if b.postgres {
		database = "postgres"
	}
	for i, p := range points {
		if p.on(database) && (!some || i%8 == 0) {
			b.atPoint(p, *perPoint)
		}
	}
}

// atPoint ends a process at a point n times. A process that does not come by
// often enough for its dice ends by itself, and does not count.
func (b *bench) atPoint(p point, n int) {
	reached := 0
	for range 3*n + 5 {
		if reached == n {
			return
		}
		b.next()
		if b.at(p).reached {
			reached++
			b.figures.add("points", 1)
		}
		b.check()
	}
	b.t.Errorf("seed %d: the fault point %q was reached %d times, want %d", b.seed, p.name(), reached, n)
}

// at ends a process at a point.
func (b *bench) at(p point) exit {
	if p.phase == migrating {
		b.renew()
	}
	t, others := b.task(), 0
	switch {
	case p.phase == recovering:
		b.run(b.task(), moment{events: 250 + b.dice.IntN(300)})
		b.expired()
		t = b.opening()
	case p.phase == serving && b.postgres:
		others = b.dice.IntN(2)
	}
	t.Point, t.Nth = p.name(), 1+b.dice.Int64N(int64(p.most))
	// A COMMIT first writes, then waits for the disk: the writing is short.
	longest := []time.Duration{50 * time.Microsecond, 200 * time.Microsecond, 4 * time.Millisecond}[b.dice.IntN(3)]
	t.Delay = time.Duration(b.dice.Int64N(int64(longest)))
	return b.beside(t, never, others, 0)
}
