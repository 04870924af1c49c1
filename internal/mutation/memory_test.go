package mutation

// suite is a part of the tests of every ledger.
func suite(names string) string { return "^TestTheLedgerInMemory$/^(" + names + ")$" }

// inMemory are the guards of the ledger and of the answers in memory.
var inMemory = []mutation{
	{
		guard: "memory: a hold is covered by posted less held",
		file:  "billing/ask.go", edits: []edit{{"	case amount > available:", "	case false:"}},
		in: "billing", run: suite("AHoldIsGrantedInPartDownToItsLeast|TenThousandRequestsOnABalanceForAHundredExactlyAHundredSucceed"),
	},
	{
		guard: "memory: an extension is covered by posted less held",
		file:  "billing/request.go", edits: []edit{{"if amount > r.available() {", "if false {"}},
		in: "billing", run: suite("ExtendAddsUnderTheSameGuardAndARefusalChangesNothing"),
	},
	{
		guard: "all ledgers: a hold of unknown length leaves half of the balance free",
		file:  "billing/ask.go", edits: []edit{{"a.Usual > 0 && amount > spare {", "a.Usual > 0 && amount > available {"}},
		in: "billing", run: suite("AHoldOfUnknownLengthLeavesHalfOfTheBalanceFree"),
	},
	{
		guard: "all ledgers: what cannot be bounded runs alone",
		file:  "billing/ask.go", edits: []edit{{"case amount < a.Firm && (", "case amount < 0 && ("}},
		in: "billing", run: suite("WhatCannotBeBoundedRunsAloneUnlessItsHoldCoversIt"),
	},
	{
		guard: "all ledgers: no request holds more than a million units",
		file:  "billing/ask.go", edits: []edit{{"if err == nil && cost > MaxHold {", "if false {"}},
		in: "billing", run: suite("ReserveRefusesWhatItCannotKeepApart"),
	},
	{
		guard: "memory: a cost above a budget is the account's",
		file:  "billing/ledger.go", edits: []edit{{"r.receipt.Hold, r.account.purse.available()", "r.receipt.Hold, r.available()"}},
		in: "billing", run: suite("ABudgetCountsWhatWasCaptured"),
	},
	{
		guard: "memory: a budget keeps what others hold on it",
		file:  "billing/purse.go", edits: []edit{{"max(p.posted-charge, p.held)", "p.posted - charge"}},
		in: "billing", run: suite("ABudgetCountsWhatWasCaptured"),
	},
	{
		guard: "memory: a hold is covered by the budget of its key",
		file:  "billing/request.go",
		edits: []edit{{"return min(r.account.purse.available(), r.budget.available())", "return r.account.purse.available()"}},
		in:    "billing", run: suite("ABudgetIsASecondGuard|ABudgetCountsWhatWasCaptured"),
	},
	{
		guard: "memory: a hold that has ended is not settled again",
		file:  "billing/ledger.go", edits: []edit{{"	if r.settled() {\n		return r.receipt, nil", "	if false {\n		return r.receipt, nil"}},
		in: "billing", run: suite("SettlingTwiceChangesNothingAndRepeatsTheFirstReceipt|AHundredConcurrentSettlementsOfOneHoldChargeOnce"),
	},
	{
		guard: "memory: a charge is at most the hold and what is available",
		file:  "billing/ledger.go", edits: []edit{{"charge := min(cost, held+available)", "charge := cost"}},
		in: "billing", run: suite("CostAboveTheHoldComesFromWhatIsAvailableAndThenFromTheOperator"),
	},
	{
		guard: "memory: what the operator bears is entered",
		file:  "billing/ledger.go", edits: []edit{{"revenue: cost, overrun: charge - cost}", "revenue: cost}"}},
		in: "billing", run: suite("CostAboveTheHoldComesFromWhatIsAvailableAndThenFromTheOperator"),
	},
	{
		guard: "memory: a request has one hold",
		file:  "billing/ledger.go", edits: []edit{{` || l.requests[c.RequestID] != nil {`, ` {`}},
		in: "billing", run: suite("ReserveRefusesWhatItCannotKeepApart"),
	},
	{
		guard: "memory: a settlement takes the price of its hold",
		file:  "billing/ledger.go", edits: []edit{{"r.price.Cost(u)", "h.Price.Cost(u)"}},
		in: "billing", run: suite("AHoldPinsThePriceThatItStartedWithWhateverTheSettlementBrings"),
	},
	{
		guard: "memory: a reference is credited once",
		file:  "billing/account.go", edits: []edit{{"before, repeated := a.credits[reference]", "before, repeated := a.credits[reference]\n	repeated = false"}},
		in: "billing", run: suite("ACreditCountsOncePerReference"),
	},
	{
		guard: "memory: an idempotency key has one owner",
		file:  "idempotency/memory.go", edits: []edit{{"	case first.answer == nil:\n		return nil, StillOpen()", "	case first.answer == nil:\n		return nil, nil"}},
		in: ".", run: "^TestAStreamIsReplayedAsAStream$",
	},
	{
		guard: "memory: another body under the same key is refused",
		file:  "idempotency/memory.go", edits: []edit{{"case first.content != content:", "case false:"}},
		in: ".", run: "^TestAnotherBodyUnderTheSameKeyIsAConflict$",
	},
}
