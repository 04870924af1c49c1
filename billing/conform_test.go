package billing_test

import (
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func TestTheLedgerInMemory(t *testing.T) {
	storetest.RunLedger(t, func(o billing.LedgerOptions) storetest.Ledger { return billing.NewLedger(o) })
}
