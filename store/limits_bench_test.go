package store_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
)

// BenchmarkLimits is what the limiter has to do for one call on a Postgres that
// several servers share: count the request, take tokens and a slot, and give them back.
// Far from its limits a key is counted in memory, and one of which only eight calls run
// at once in the database.
func BenchmarkLimits(b *testing.B) {
	for name, limits := range map[string]auth.Limits{
		"far":   {RPM: 1 << 40, TPM: 1 << 50, MaxConcurrent: 1 << 40},
		"small": {RPM: 1 << 40, TPM: 1 << 50, MaxConcurrent: 8},
	} {
		for _, keys := range []int64{1, 8} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				var trips, callers atomic.Int64
				db, err := postgres.Open(b.Context(), pgtest.Schema(b), store.Options{Wrap: func(c driver.Connector) driver.Connector {
					return sqlhook.Wrap(c, func(_ sqlhook.Step, do func() error) error {
						trips.Add(1)
						return do()
					})
				}})
				must(b, err)
				defer func() { _ = db.Close() }()
				l := db.Limiter()
				trips.Store(0)
				b.SetParallelism(4)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					me := callers.Add(1)
					p := &auth.Principal{Account: "acme", Key: fmt.Sprint("k", me%keys), Limits: limits}
					for i := 0; pb.Next(); i++ {
						if _, err := l.Request(context.Background(), p); err != nil {
							b.Error(err)
							return
						}
						lease, _, err := l.Acquire(context.Background(), p, fmt.Sprint(me, "-", i), 5000)
						if err != nil {
							b.Error(err)
							return
						}
						lease.Release(1000)
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
				b.ReportMetric(float64(trips.Load())/float64(b.N), "trips/call")
			})
		}
	}
}
