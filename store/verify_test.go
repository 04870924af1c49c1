package store_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
)

func TestAnErrorOfVerifySaysThatTheDatabaseIsAwayOnlyWhereItIs(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db, strange := open(store.Options{}), errors.New("an error that no driver gives")
		want := func(ctx context.Context, what string, err error, code fault.Code) {
			t.Helper()
			f := fault.From(store.Unread(ctx, db, err))
			if f.Code != code || !errors.Is(f, err) || (f.RetryAfter > 0) != (code == fault.ServiceUnavailable) {
				t.Errorf("%s: %v, want %s", what, f, code)
			}
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		want(t.Context(), "the database answers", strange, fault.InternalError)
		want(t.Context(), "the connection was lost", driver.ErrBadConn, fault.ServiceUnavailable)
		want(t.Context(), "the database took too long", context.DeadlineExceeded, fault.ServiceUnavailable)
		want(gone, "the caller is gone", context.Canceled, fault.ClientGone)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		want(t.Context(), "the database does not answer", strange, fault.ServiceUnavailable)
	})
}
