package sqlite_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
)

// disk gives every connection so many pages that the database may have; 0 is
// as many as it likes.
type disk struct {
	pages atomic.Int64
	made  atomic.Int64 // connections
}

func (d *disk) wrap(c driver.Connector) driver.Connector { return bounded{c, d} }

type bounded struct {
	driver.Connector
	disk *disk
}

func (b bounded) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := b.Connector.Connect(ctx)
	b.disk.made.Add(1)
	if err != nil || b.disk.pages.Load() == 0 {
		return c, err
	}
	_, err = c.(driver.ExecerContext).ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", b.disk.pages.Load()), nil)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func image(n int64) billing.Usage { return billing.Usage{Images: n} }

// fill makes holds of one unit that outlive the process until there is no room, and returns them.
func fill(t *testing.T, db *store.DB) []billing.Hold {
	t.Helper()
	var holds []billing.Hold
	for i := range 5_000 {
		request := painting(t, fmt.Sprint("r", i), 1)
		request.Until = time.Now().Add(time.Hour)
		h, err := db.Ledger().Reserve(t.Context(), request)
		if err != nil {
			wantFull(t, err)
			return holds
		}
		holds = append(holds, h)
	}
	t.Fatal("the disk is never full")
	return nil
}

func wantFull(t *testing.T, err error) {
	t.Helper()
	if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 {
		t.Fatalf("got %v", err)
	}
}

func wantBalance(t *testing.T, db *store.DB, posted, held int) {
	t.Helper()
	got, err := db.Ledger().Balance(t.Context(), "acme")
	want := billing.Balance{Account: "acme", Posted: billing.Money(posted) * billing.One, Held: billing.Money(held) * billing.One}
	if err != nil || got != want {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
}

func TestAFullDiskRefusesHoldsAndReadsGoOn(t *testing.T) {
	full := &disk{}
	full.pages.Store(100)
	db := funded(t, 10_000, store.Options{Wrap: full.wrap})
	holds := fill(t, db)
	wantBalance(t, db, 10_000, len(holds))
	if _, err := db.Ledger().Reserve(t.Context(), painting(t, "in memory", 1)); err != nil { // until there is room
		wantFull(t, err)
	} else {
		t.Error("a hold in memory was made although the last write had failed")
	}
	for made := full.made.Load(); full.made.Load() < made+3; { // a heartbeat that fails closes its connection
		wantFull(t, db.Ping(t.Context()))
	}
	wantSound(t, db)
	open, err := db.Ledger().OpenHolds(t.Context())
	if err != nil || len(open) != len(holds) {
		t.Errorf("%d holds are open, of %d, %v", len(open), len(holds), err)
	}

	waits := make(chan error, len(holds))
	for _, h := range holds { // they run, and end while the disk is full
		go func() {
			_, err := db.Ledger().Settle(context.Background(), h, image(1))
			waits <- err
		}()
	}
	full.pages.Store(0)
	for range holds {
		must(t, <-waits)
	}
	wantBalance(t, db, 10_000-len(holds), 0)
	wantSound(t, db)
	if err := db.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
