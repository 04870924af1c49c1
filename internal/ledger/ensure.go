package ledger

import (
	"context"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// EnsureAccount makes an account with an opening credit, unless it exists. Of several that race,
// one makes it, since making it is one transaction of the ledger.
func EnsureAccount(ctx context.Context, l billing.Accounts, name string, credit billing.Money) error {
	if exists, err := l.Exists(ctx, name); exists || err != nil {
		return err
	}
	err := l.CreateAccount(ctx, name, credit)
	if fault.Is(err, fault.InvalidRequest) { // the name may be taken by now
		if exists, failed := l.Exists(ctx, name); exists && failed == nil {
			return nil
		}
	}
	return err
}
