package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// holdTests are the rules of holds.
var holdTests = map[string]func(ledgerTest){
	"AHoldIsSetAsideAndGivenBack": func(b ledgerTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		want := billing.Hold{
			ID: "r1", Account: "acme", Key: "k1", Operation: "image", Model: "painter",
			Price: b.price, Amount: 4 * billing.One, Available: 6 * billing.One,
		}
		if h != want {
			b.t.Errorf("got %+v, want %+v", h, want)
		}
		b.wantBalance(10, 4)
		if r := b.settle(h, 0); r.Status != billing.Released || r.Charge != 0 || r.Hold != 4*billing.One {
			b.t.Errorf("got %+v", r)
		}
		b.wantBalance(10, 0)
	},
	"ReserveRefusesWhatItCannotKeepApart": func(b ledgerTest) {
		b.account("acme", 10)
		b.settle(b.reserve("settled", 1), 1)
		b.reserve("open", 1)
		huge := price(b.t, billing.Rate{Unit: billing.Image, Amount: "9000000"})
		for _, c := range []struct {
			name string
			edit func(*billing.HoldRequest)
			code fault.Code
		}{
			{"no id", func(c *billing.HoldRequest) { c.RequestID = "" }, fault.InternalError},
			{"the id of an open hold", func(c *billing.HoldRequest) { c.RequestID = "open" }, fault.InternalError},
			{"the id of a settled hold", func(c *billing.HoldRequest) { c.RequestID = "settled" }, fault.InternalError},
			{"an unknown account", func(c *billing.HoldRequest) { c.Account = "nobody" }, fault.PermissionDenied},
			{"more than a million units", func(c *billing.HoldRequest) { c.Bound = images(1_000_001) }, fault.InvalidRequest},
			{"a cost beyond int64", func(c *billing.HoldRequest) { c.Price, c.Bound = huge, images(math.MaxInt64) }, fault.InvalidRequest},
			{"a least beyond int64", func(c *billing.HoldRequest) { c.Least = images(math.MaxInt64) }, fault.InvalidRequest},
			{"a negative bound", func(c *billing.HoldRequest) { c.Bound = images(-1) }, fault.InvalidRequest},
			{"a usual of more than a million units", func(c *billing.HoldRequest) { c.Usual, c.Bound = images(1_000_001), images(1_000_002) }, fault.InvalidRequest},
			{"a million units of an account with ten", func(c *billing.HoldRequest) { c.Bound = images(1_000_000) }, fault.InsufficientBalance},
		} {
			charge := b.charge("new", 1)
			c.edit(&charge)
			h, err := b.Reserve(b.t.Context(), charge)
			if !fault.Is(err, c.code) || h != (billing.Hold{}) {
				b.t.Errorf("%s: %+v, %v; want %s", c.name, h, err, c.code)
			}
		}
		charge := b.charge("unknown", 1_000_001) // a bound that the caller did not choose is lowered
		charge.Usual, charge.Least = images(2), images(1)
		h, err := b.Reserve(b.t.Context(), charge)
		if err != nil || h.Amount != 4*billing.One-billing.One/2 {
			b.t.Errorf("granted %s, %v", h.Amount, err)
		}
		b.settle(h, 0)
		b.wantBalance(9, 1)
		b, more := b.crash() // a process that does not remember the ids finds them, at the end at the latest
		if !more {
			return
		}
		b.wantBalance(9, 0)
		h, err = b.Reserve(b.t.Context(), b.charge("settled", 1))
		if err == nil {
			_, err = b.Settle(b.t.Context(), h, images(1))
		}
		b.wantCode(err, fault.InternalError)
	},
	"AHoldWithARecordThatCannotBeKeptIsRefused": func(b ledgerTest) {
		b.account("acme", 10)
		c := b.charge("r1", 4)
		c.With = []billing.Record{billing.Outcome{}}
		b.refuses(c, fault.InternalError)
		b.wantBalance(10, 0)
		c.With = nil
		b.made(c)
	},
	"ExtendAddsUnderTheSameGuardAndARefusalChangesNothing": func(b ledgerTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		b.ok(b.Extend(b.t.Context(), h, images(1), 5*billing.One))
		b.wantBalance(10, 9)
		b.ok(b.Extend(b.t.Context(), h, images(2), 0))
		for name, c := range map[string]struct {
			hold  billing.Hold
			soFar billing.Usage
			more  billing.Money
			code  fault.Code
		}{
			"more than is available": {h, images(3), 2 * billing.One, fault.InsufficientBalance},
			"all there can be":       {h, images(3), math.MaxInt64, fault.InsufficientBalance},
			"less than nothing":      {h, images(3), -1, fault.InternalError},
			"a negative usage":       {h, images(-3), 0, fault.InternalError},
			"an unknown hold":        {billing.Hold{ID: "r2"}, images(3), 0, fault.InternalError},
		} {
			if err := b.Extend(b.t.Context(), c.hold, c.soFar, c.more); !fault.Is(err, c.code) || errors.Is(err, billing.ErrHoldEnded) {
				b.t.Errorf("%s: %v, want %s", name, err, c.code)
			}
			b.wantBalance(10, 9)
		}
		h.Amount, h.Available = 9*billing.One, billing.One
		for _, open := range b.wantOpen(1) {
			want := billing.OpenHold{Hold: h, CreatedAt: startTime, SoFar: images(2)}
			want.Price, open.Price = nil, nil // equal ones, not the same
			b.same("the open hold", want, open)
		}
		if r := b.settle(h, 9); r.Hold != 9*billing.One || r.Charge != 9*billing.One || r.Usage != images(9) {
			b.t.Errorf("got %+v", r)
		}
		b.wantEnded(b.Extend(b.t.Context(), h, images(9), 1))
		b.wantOpen(0)
		b.wantBalance(1, 0)
	},
	"AFreeModelRunsOnAnEmptyAccount": func(b ledgerTest) {
		b.account("acme", 0)
		charge := b.charge("r1", 1_000)
		charge.Price = nil
		h := b.made(charge)
		if r := b.settle(h, 1_000); r.Charge != 0 || r.Overrun != 0 || r.PriceVersion != "" {
			b.t.Errorf("got %+v", r)
		}
	},
	"OfTenThousandRequestsAtOnceOnABalanceForAHundredExactlyAHundredSucceed": func(b ledgerTest) {
		const rounds, requests, processes = 10, 10_000, 4
		nodes := []ledgerTest{b}
		for b.beside != nil && len(nodes) < processes {
			nodes = append(nodes, b.beside())
		}
		for round := range rounds {
			account := fmt.Sprint("acme", round)
			b.account(account, 100)
			var succeeded atomic.Int64
			b.inParallel(requests, func(i int) error {
				b, charge := nodes[i%len(nodes)], b.charge(id(round*requests+i), 1)
				charge.Account = account
				h, err := b.Reserve(b.t.Context(), charge)
				if fault.Is(err, fault.InsufficientBalance) {
					return nil
				}
				if err == nil {
					_, err = b.Settle(b.t.Context(), h, images(1))
					succeeded.Add(1)
				}
				return err
			})
			balance, err := b.Balance(b.t.Context(), account)
			if n := succeeded.Load(); err != nil || n != 100 || balance.Available() != 0 || balance.Held != 0 {
				b.t.Errorf("round %d: %d succeeded, %v, %+v", round, n, err, balance)
			}
		}
	},
	"ExtensionsAndSettlementsOfOneHoldInOneBatchAreDoneInTheirOrder": func(b ledgerTest) {
		b.account("acme", 100)
		h := b.reserve("r1", 1)
		b.inParallel(50, func(int) error { return b.Extend(b.t.Context(), h, images(1), billing.One) })
		b.wantBalance(100, 51)
		b.settle(h, 51)
		b.wantBalance(49, 0)
	},
	"ManyAccountsInOneBatchEachHaveTheirOwnBalance": func(b ledgerTest) {
		const accounts = 70
		for i := range accounts {
			b.account(id(i), int64(i))
		}
		b.inParallel(5*accounts, func(i int) error {
			charge := b.charge(id(i), 10)
			charge.Account = id(i % accounts)
			h, err := b.Reserve(b.t.Context(), charge)
			if fault.Is(err, fault.InsufficientBalance) {
				return nil
			}
			if err == nil {
				_, err = b.Settle(b.t.Context(), h, images(10))
			}
			return err
		})
		for i := range accounts {
			balance, err := b.Balance(b.t.Context(), id(i))
			b.ok(err)
			n := billing.Money(i)
			if want := n - min(5, n/10)*10; balance.Posted < want*billing.One || balance.Posted > n*billing.One || balance.Held != 0 {
				b.t.Errorf("account %d has %s and holds %s", i, balance.Posted, balance.Held)
			}
		}
		if names := b.accountNames(); len(names) != accounts || !slices.IsSorted(names) {
			b.t.Error(names)
		}
	},
}

// settlementTests are the rules of captures and releases.
var settlementTests = map[string]func(ledgerTest){
	"AReceiptTellsTheWholeRequest": func(b ledgerTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		b.clock.Set(startTime.Add(time.Minute))
		used := images(3)
		used.Input, used.CachedInput, used.CacheWrite, used.Output, used.Reasoning = 1, 2, 3, 4, 5
		used.ImageInput, used.ImageOutput, used.Seconds, used.Characters, used.SearchUnits, used.Requests, used.Variant = 6, 7, 8, 9, 10, 11, "720p"
		used.Estimated, used.Zero, used.Anomaly = true, true, true
		got, err := b.Settle(b.t.Context(), h, used, billing.Outcome{Reason: billing.ReasonComplete, Channel: "main"})
		b.ok(err)
		want := billing.Receipt{
			ID: "r1", CreatedAt: startTime, SettledAt: startTime.Add(time.Minute), Account: "acme", Key: "k1",
			Operation: "image", Model: "painter", Status: billing.Captured, Usage: used,
			PriceVersion: b.price.Version(), Hold: 4 * billing.One, Charge: 3 * billing.One,
			Reason: billing.ReasonComplete, Channel: "main",
		}
		b.same("the receipt", want, got)
		again, err := b.Receipt(b.t.Context(), "acme", "r1")
		if err != nil || again != got {
			b.t.Errorf("looked up: %+v, %v", again, err)
		}
		b.wantBalance(7, 0)
	},
	"AReceiptIsOnlyForItsAccountAndOnlyWhenTheRequestHasEnded": func(b ledgerTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 1)
		_, err := b.Receipt(b.t.Context(), "acme", "r1")
		b.wantCode(err, fault.NotFound)
		b.settle(h, 1)
		_, err = b.Receipt(b.t.Context(), "other", "r1")
		b.wantCode(err, fault.NotFound)
		_, err = b.Receipt(b.t.Context(), "acme", "r2")
		b.wantCode(err, fault.NotFound)
	},
	"AHundredConcurrentSettlementsOfOneHoldChargeOnce": func(b ledgerTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 2)
		receipts := make([]billing.Receipt, 100)
		b.inParallel(len(receipts), func(i int) (err error) {
			receipts[i], err = b.Settle(b.t.Context(), h, images(int64(1+i%2)))
			return err
		})
		for _, r := range receipts {
			if r != receipts[0] {
				b.t.Fatalf("two receipts: %+v and %+v", r, receipts[0])
			}
		}
		b.wantBalance(10-receipts[0].Charge/billing.One, 0)
		rows, err := b.Usage(b.t.Context(), billing.Query{})
		b.ok(err)
		if len(rows) != 1 || rows[0].Requests != 1 || rows[0].Charge != receipts[0].Charge {
			b.t.Errorf("got %+v", rows)
		}
	},
	"ASettlementThatCannotBeKeptWholeLeavesTheHoldOpen": func(b ledgerTest) {
		b.account("acme", 10)
		h, free := b.reserve("r1", 4), b.charge("free", 1)
		free.Price = nil
		for name, c := range map[string]struct {
			hold billing.Hold
			u    billing.Usage
			with []billing.Record
		}{
			"an unknown record":       {h, images(1), []billing.Record{billing.Outcome{}, note{}}},
			"a nil record":            {h, images(1), []billing.Record{nil}},
			"an unknown hold":         {billing.Hold{ID: "r2"}, images(1), nil},
			"a negative usage":        {h, images(-1), nil},
			"the same of a free one":  {b.made(free), images(-1), nil},
			"a cost that doesn't fit": {h, images(math.MaxInt64), nil},
		} {
			_, err := b.Settle(b.t.Context(), c.hold, c.u, c.with...)
			if !fault.Is(err, fault.InternalError) {
				b.t.Errorf("%s: %v", name, err)
			}
			b.wantBalance(10, 4)
		}
		if rows, err := b.Usage(b.t.Context(), billing.Query{}); err != nil || len(rows) != 0 {
			b.t.Errorf("got %+v, %v", rows, err)
		}
		b.settle(h, 1)
		b.wantBalance(9, 0)
	},
	"AnExplicitZeroIsCapturedAndNothingIsReleased": func(b ledgerTest) {
		b.account("acme", 10)
		for i, c := range []struct {
			usage billing.Usage
			price *billing.Price
			want  string
		}{
			{billing.Usage{}, b.price, billing.Released},
			{billing.Usage{Zero: true}, b.price, billing.Captured},
			{billing.Usage{Estimated: true}, b.price, billing.Released},
			{billing.Usage{Input: 1}, b.price, billing.Captured}, // without a rate
			{images(1), nil, billing.Captured},
		} {
			charge := b.charge(id(i), 1)
			charge.Price = c.price
			h := b.made(charge)
			r, err := b.Settle(b.t.Context(), h, c.usage)
			if err != nil || r.Status != c.want || r.Charge != 0 || r.Usage != c.usage {
				b.t.Errorf("%+v: %+v, %v; want %s", c.usage, r, err, c.want)
			}
		}
		b.wantBalance(10, 0)
	},
	"BooksThatAreFullRefuseAndStaySound": func(b ledgerTest) {
		b.account("acme", 10)
		most := int64(billing.Unlimited / billing.One)
		b.settle(b.reserve("r1", 1), most-1) // the operator bears nearly all of it
		h := b.reserve("r2", 0)
		_, err := b.Settle(b.t.Context(), h, images(most-1))
		b.wantCode(err, fault.InternalError)
		b.wantOpen(1)
		rows, err := b.Usage(b.t.Context(), billing.Query{})
		if err != nil || len(rows) != 1 || rows[0].Usage.Images != most-1 {
			b.t.Errorf("%+v, %v", rows, err)
		}
	},
	"AClockThatFailsDoesNotLeaveMoneyHalfMoved": func(b ledgerTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		b.clock.fail.Store(true)
		func() {
			defer func() { _ = recover() }() // in memory the panic is the caller's
			_, err := b.Settle(b.t.Context(), h, images(1))
			b.wantCode(err, fault.InternalError)
		}()
		b.clock.fail.Store(false)
		b.wantBalance(10, 4)
		b.settle(h, 1)
		b.wantBalance(9, 0)
	},
	"AHoldPinsThePriceThatItStartedWithWhateverTheSettlementBrings": func(b ledgerTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		h.Price = price(b.t, billing.Rate{Unit: billing.Image, Amount: "2"})
		h.Amount = 100 * billing.One
		if r := b.settle(h, 3); r.Charge != 3*billing.One || r.Hold != 4*billing.One || r.PriceVersion != b.price.Version() {
			b.t.Errorf("got %+v", r)
		}
	},
}

// note is a record that no ledger knows.
type note struct{}

// RecordKind is "note".
func (note) RecordKind() string { return "note" }
