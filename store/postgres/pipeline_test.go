package postgres_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
)

// What a batch writes is sent together with its COMMIT, so that the database has to see
// that a row is not any more as it was read.
func TestABudgetThatIsChangedAfterItWasReadIsNotOverdrawn(t *testing.T) {
	dsn := pgtest.Schema(t)
	admin := pgtest.Open(t, dsn)
	var change sync.Once
	armed := false // before the calls that are watched
	l := newFixture(t, dsn, store.Options{Wrap: func(c driver.Connector) driver.Connector {
		return sqlhook.Wrap(c, func(s sqlhook.Step, do func() error) error {
			if armed && strings.HasPrefix(s.Query, "UPDATE budget ") {
				change.Do(func() {
					if _, err := admin.ExecContext(context.Background(), "UPDATE budget SET amount = 0; UPDATE budget_entry SET amount = 0"); err != nil {
						t.Error(err)
					}
				})
			}
			return do()
		})
	}}, 1_000, "acme")
	l.boundKey("acme")
	armed = true
	if h, err := l.reserve("acme", "r1"); !fault.Is(err, fault.BudgetExceeded) && !fault.Is(err, fault.InsufficientBalance) {
		t.Errorf("got %+v, %v, want a refusal", h, err)
	}
	l.wantBalance("acme", 1_000)
	l.wantSound()
}

// plain hides that a connection is a store.Pipeline, as a wrapper from elsewhere may.
type plain struct{ driver.Connector }

func (p plain) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return plainConn{c.(both)}, nil
}

type both interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
}

type plainConn struct{ both }

func TestAStoreWhoseConnectionsAreWrappedByAnotherPackageWorks(t *testing.T) {
	wrapped := store.Options{Wrap: func(c driver.Connector) driver.Connector { return plain{c} }}
	l := &locked{fixture: newFixture(t, pgtest.Schema(t), wrapped, 1_000, "acme", "other")}
	l.boundKey("acme")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			h, err := l.reserve("acme", fmt.Sprint("r", i))
			if err == nil {
				err = l.settle(h)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l.lock("SELECT 1 FROM account WHERE id = 'acme' FOR UPDATE")
	l.serve(3, "meanwhile")
	l.unlock()
	l.wantBalance("acme", 980)
	l.wantBalance("other", 997)
	l.wantSound()
}
