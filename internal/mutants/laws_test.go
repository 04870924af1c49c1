package mutants

// law is one promise about money or delivery, with the one test that proves it.
type law struct {
	says    string // the promise, in plain words
	test    string // package and test, as `go test -run` takes it: store/memory.TestTheLedgerInMemory/Rule
	long    bool   // the test runs only where long tests are enabled
	mutants []mutant
}

// mutant is one fault, planted by replacing a text that stands exactly once in a file. The
// law's test fails with it.
type mutant struct {
	fault             string // what is wrong then, in plain words
	file              string // in the module
	text, replacement string
}

// chapter is a group of laws.
type chapter struct {
	title string
	laws  []law
}

// The suites of rules for every ledger, on the ledgers that they run on. SQLite's database is
// one process's, Postgres's is shared.
const (
	inMemory   = "store/memory.TestTheLedgerInMemory/"
	onSQLite   = "store/sqlite.TestTheStoreOnSQLite/"
	onPostgres = "store/postgres.TestTheStoreOnPostgres/"
)

// chapters are all laws. docs/design/laws.md is made of them.
var chapters = []chapter{
	{"Amounts and counts", []law{
		{
			says: "A cost is the exact sum of units times prices, rounded up once.",
			test: "billing.TestCostEqualsExactArithmetic",
			mutants: []mutant{
				{"a cost is rounded down", "billing/price.go", "var hi, lo uint64 = 0, picoPerNano - 1", "var hi, lo uint64 = 0, 0"},
			},
		},
		{
			says: "A cost that does not fit is an error, never a small number.",
			test: "billing.TestACostThatDoesNotFitIsAnErrorAndNeverSmall",
			mutants: []mutant{
				{"the sum wraps around", "billing/price.go", "if carry != 0 {", "if false {"},
				{"a negative count is a credit", "billing/price.go", "if b.count < 0 {", "if false {"},
			},
		},
		{
			says: "A unit without a price of its own costs what the unit costs that it falls back to.",
			test: "billing.TestARequestCostsWhatThePriceRowSays",
			mutants: []mutant{
				{"a write to the cache is free", "billing/price.go", "case CachedInput, CacheWrite, ImageInput:", "case CachedInput, ImageInput:"},
			},
		},
		{
			says: "An amount of money affords what it pays for, and not one unit more.",
			test: "billing.TestABudgetPaysForWhatItAffordsAndNotForOneMore",
			mutants: []mutant{
				{"it affords one more", "billing/price.go", "return int64(min(n, uint64(limit)))", "return int64(min(n+1, uint64(limit)))"},
			},
		},
		{
			says: "A sum of usage stops at the largest number and never wraps around.",
			test: "billing.TestAnAbsurdCountDoesNotWrapASum",
			mutants: []mutant{
				{"a sum wraps around", "billing/usage.go", "if n > 0 && total > math.MaxInt64-n {", "if n > 0 && total > math.MaxInt64 {"},
			},
		},
		{
			says: "A vendor's count is read however it is spelled; a fraction is rounded up, and an absurd count is cut.",
			test: "internal/tokencount.TestACountIsReadHoweverItIsSpelled",
			mutants: []mutant{
				{"a fraction is rounded down", "internal/tokencount/reported.go", "\tif more {\n\t\tn++", "\tif more {\n\t\tn += 0"},
				{"an absurd count is believed", "internal/tokencount/reported.go", "\tcase n > MaxCount:\n\t\treturn MaxCount, true, true", "\tcase n > MaxCount:\n\t\treturn n, true, false"},
			},
		},
		{
			says: "Of several reports of usage the largest of each count holds, whatever their order.",
			test: "internal/tokencount.TestEachFieldKeepsItsLargestCount",
			mutants: []mutant{
				{"the last report holds", "internal/tokencount/reported.go", "= max(p.N[m.Field], n), true, true", "= n, true, true"},
				{"reports are added", "internal/tokencount/reported.go", "= max(p.N[m.Field], n), true, true", "= p.N[m.Field]+n, true, true"},
			},
		},
		{
			says: "Text that no vendor counted is estimated by its characters, and no character is free.",
			test: "internal/tokencount.TestQuartersCountCharactersAndEscapes",
			mutants: []mutant{
				{"an escaped character is an ASCII letter", "internal/tokencount/estimate.go", "\t\treturn 0\n\t}\n\treturn 4\n}", "\t\treturn 0\n\t}\n\treturn 1\n}"},
				{"tokens are rounded down", "internal/tokencount/estimate.go", "return (quarters + 3) / 4", "return quarters / 4"},
			},
		},
	}},
	{"Holds", []law{
		{
			says: "A hold is the request's bound, or less if the account and the budget cannot spare it. A cost without a bound is held whole, or its request runs alone.",
			test: "internal/ledger.TestAGrantIsThatOfTheReference",
			mutants: []mutant{
				{"an unknown length takes all of a balance", "internal/ledger/balance.go", "return b.Posted - b.Held - b.Posted/2", "return b.Posted - b.Held"},
				{"what is firm is not held", "internal/ledger/amounts.go", "if amount < a.Firm && a.Firm <= available {", "if false && amount < a.Firm {"},
				{"a firm cost runs beside another hold of its budget", "internal/ledger/amounts.go", "p.holds()", "p.Account.holds()"},
				{"a hold is below the least that is worth a start", "internal/ledger/amounts.go", "amount = max(a.Least, min(amount, a.Bound, available))", "amount = min(amount, a.Bound, available)"},
			},
		},
		{
			says: "Holds never exceed the balance: of ten thousand requests at once on a balance for a hundred, a hundred succeed.",
			test: inMemory + "OfTenThousandRequestsAtOnceOnABalanceForAHundredExactlyAHundredSucceed",
			mutants: []mutant{
				{"a hold does not ask what is available", "internal/ledger/amounts.go", "\tcase amount > available:", "\tcase amount > available && false:"},
			},
		},
		{
			says: "A database refuses a balance that holds more than it has, whatever a process believes.",
			test: onSQLite + "TheDatabaseItselfRefusesToHoldMoreThanThereIs",
			mutants: []mutant{
				{"an account holds more than it has", "store/migrations/0001_ledger.sql", "created_at BIGINT NOT NULL,\n\tCHECK (held >= 0 AND held <= posted)\n);\n--postgres", "created_at BIGINT NOT NULL\n);\n--postgres"},
			},
		},
		{
			says: "An extension obeys the same guard, and one that is refused changes nothing.",
			test: inMemory + "ExtendAddsUnderTheSameGuardAndARefusalChangesNothing",
			mutants: []mutant{
				{"an extension does not ask what is available", "internal/ledger/balance.go", "\tcase more > p.Available():", "\tcase false:"},
				{"an extension may take back", "internal/ledger/balance.go", "\tcase more < 0 || negative(soFar):", "\tcase negative(soFar):"},
				{"a hold that has ended is extended", "store/memory/ledger.go", "\tif r.settled() {\n\t\treturn ledger.ErrHoldEnded()", "\tif false {\n\t\treturn ledger.ErrHoldEnded()"},
			},
		},
		{
			says: "A request whose bound exceeds the largest hold is refused; a bound that its caller did not choose is lowered.",
			test: inMemory + "ReserveRefusesWhatItCannotKeepApart",
			mutants: []mutant{
				{"a hold has no most", "internal/ledger/amounts.go", "if err == nil && cost > maxHold {", "if err == nil && cost < 0 {"},
				{"an id makes two holds", "store/memory/ledger.go", `if r.RequestID == "" || l.requests[r.RequestID] != nil {`, `if r.RequestID == "" {`},
			},
		},
		{
			says: "A request pays the price that was in force when its hold was made.",
			test: inMemory + "AHoldPinsThePriceThatItStartedWithWhateverTheSettlementBrings",
			mutants: []mutant{
				{"the price of the settlement holds", "store/memory/ledger.go", "r.payer.Settle(&r.receipt, r.price, u", "r.payer.Settle(&r.receipt, h.Price, u"},
			},
		},
		{
			says: "A hold that nobody waited for is undone.",
			test: onSQLite + "AHoldThatNobodyWaitedForIsUndoneWithItsVideo",
			mutants: []mutant{
				{"it stays", "store/committer.go", "if !o.finish() && o.err == nil {", "if !o.finish() && o.err != nil {"},
			},
		},
	}},
	{"Settlement", []law{
		{
			says: "A customer pays at most what was held and what else the account has. The rest is the operator's, and both are in the receipt. Budgets and sums follow.",
			test: inMemory + "TheLedgerBehavesAsItsModel",
			mutants: []mutant{
				{"the whole cost is charged", "internal/ledger/balance.go", "charge = max(min(cost, r.Hold+available), 0)", "charge = cost"},
				{"no more than the hold is charged", "internal/ledger/balance.go", "charge = max(min(cost, r.Hold+available), 0)", "charge = max(min(cost, r.Hold), 0)"},
				{"what is held counts as available", "internal/ledger/balance.go", "\treturn b.Posted - b.Held\n}", "\treturn b.Posted\n}"},
				{"a budget bounds no hold", "internal/ledger/balance.go", "\t\tavailable = min(available, b.Available(p.Now))\n", "\t\t_ = b\n"},
				{"a budget does not count what is charged", "internal/ledger/budget.go", "b.Spent, b.Since = AddCapped(b.Spent, charge), min(b.Since, at)", "b.Since = min(b.Since, at)"},
				{"a budget keeps a hold that has ended", "internal/ledger/budget.go", "\tb.Held -= held\n\tif charge", "\tif charge"},
				{"a settlement keeps its hold", "internal/ledger/balance.go", "\t\tb.Held -= held\n", ""},
				{"a second settlement is made", "store/memory/ledger.go", "\tif r.settled() {\n\t\treturn r.receipt, nil\n\t}\n", ""},
			},
		},
		{
			says: "No charge is below zero, even of a damaged balance.",
			test: "internal/ledger.TestNoChargeIsBelowZero",
			mutants: []mutant{
				{"a negative balance is paid out", "internal/ledger/balance.go", "charge = max(min(cost, r.Hold+available), 0)", "charge := min(cost, r.Hold+available)"},
			},
		},
		{
			says: "A hold ends once: of a hundred settlements one charges, and all get its receipt.",
			test: onSQLite + "AHundredConcurrentSettlementsOfOneHoldChargeOnce",
			mutants: []mutant{
				{"a second settlement is refused", "store/ledger.go", "\tif r, ended := b.receipts[s.id]; ended {", "\tif r, ended := b.receipts[s.id]; ended && r.Charge < 0 {"},
			},
		},
		{
			says: "A settlement is whole or not at all: one whose records cannot be kept leaves the hold open.",
			test: onSQLite + "ASettlementThatCannotBeKeptWholeLeavesTheHoldOpen",
			mutants: []mutant{
				{"the records are dropped", "store/ledger.go", "\tif s.unkept != nil {", "\tif false {"},
			},
		},
		{
			says: "What a vendor says cost nothing is captured; a request without usage is released.",
			test: inMemory + "AnExplicitZeroIsCapturedAndNothingIsReleased",
			mutants: []mutant{
				{"an explicit zero is no answer", "billing/meter.go", "if u.Zero || !u.IsZero() {", "if !u.IsZero() {"},
			},
		},
		{
			says: "Failed attempts cost the customer nothing; what vendors may bill for them is the operator's waste.",
			test: inMemory + "FailedAttemptsAreChildrenOfTheirReceiptAndCostTheCustomerNothing",
			mutants: []mutant{
				{"waste is forgotten", "internal/ledger/rules.go", "\treturn cost\n}", "\treturn cost - cost\n}"},
			},
		},
		{
			says: "An attempt that no vendor can bill wastes nothing.",
			test: inMemory + "AnAttemptThatNobodyCanBillWastesNothing",
			mutants: []mutant{
				{"what no vendor bills is waste", "internal/ledger/rules.go", "\tif !a.Billable {", "\tif false {"},
			},
		},
		{
			says: "Each receipt can be computed again from what is stored.",
			test: "store.TestEveryReceiptCanBeComputedAgainFromWhatIsStored",
			mutants: []mutant{
				{"a price row is not stored", "store/rows.go", "if h.version != stored && h.price != nil && b.err == nil {", "if h.version != stored && h.price == nil && b.err == nil {"},
			},
		},
		{
			says: "If a sum of the ledger would overflow, the settlement is refused and the ledger stays sound.",
			test: inMemory + "BooksThatAreFullRefuseAndStaySound",
			mutants: []mutant{
				{"a sum wraps around", "internal/ledger/balance.go", "if !Fits(s.Revenue, cost) || !Fits(s.Overrun, overrun) {", "if false {"},
			},
		},
		{
			says: "A credit counts once for its reference.",
			test: inMemory + "ACreditCountsOncePerReference",
			mutants: []mutant{
				{"a reference counts again", "internal/ledger/rules.go", "case before.Found && before.Amount == amount:\n\t\treturn true, nil", "case before.Found && before.Amount == amount:\n\t\treturn false, nil"},
			},
		},
		{
			says: "A credit is taken back only from what is available.",
			test: inMemory + "ACreditIsTakenBackOnlyFromWhatIsAvailable",
			mutants: []mutant{
				{"it is taken back from holds", "internal/ledger/rules.go", "case amount < -available:", "case false:"},
			},
		},
	}},
	{"Crashes, outages and several servers", []law{
		{
			says: "After a kill at any step, what a caller was told is there, nothing is charged twice, and no hold stays open.",
			test: "internal/crashtest.TestAtEveryFaultPointOnSQLiteNothingIsLostDoubledOrLeftOpen",
			mutants: []mutant{
				{"a caller is told before the commit", "store/committer.go", "\t\terr := b.run()\n", "\t\tif !how.careful && tries == 0 {\n\t\t\tfor _, o := range ops {\n\t\t\t\to.finish()\n\t\t\t}\n\t\t}\n\t\terr := b.run()\n"},
			},
		},
		{
			says: "A commit whose answer was lost is looked up, and done once.",
			test: "store.TestWhatIsDoneAgainAfterACommitWithoutAnAnswerIsDoneOnce",
			mutants: []mutant{
				{"an account is told to be there already", "store/ledger.go", "if b.again && b.accounts[name] != nil {", "if false {"},
			},
		},
		{
			says: "Whichever write fails, nothing is lost and nothing doubled.",
			test: onSQLite + "WhicheverWriteFailsNothingIsLostAndNothingIsDoubled",
			mutants: []mutant{
				{"an extension is made twice", "store/ledger.go", "if b.again && e.done && h.amount >= e.after {", "if false {"},
				{"a failed write is committed", "store/rows.go", "\t\twrite()\n\t}\n\treturn b.err\n", "\t\twrite()\n\t}\n\treturn nil\n"},
			},
		},
		{
			says: "A hold whose process died is charged its last checkpoint.",
			test: onSQLite + "ACheckpointAboveTheHoldIsChargedAsASettlementWouldBe",
			mutants: []mutant{
				{"it is given back", "store/ledger.go", "\tif s.recover {", "\tif false {"},
			},
		},
		{
			says: "A hold that nobody settles ends six hours after its last extension.",
			test: onSQLite + "AHoldThatNobodySettlesEndsSixHoursAfterItsLastExtension",
			mutants: []mutant{
				{"an extension does not put it off", "store/ledger.go", "\tif h.node != noNode {\n\t\th.expires =", "\tif false {\n\t\th.expires ="},
			},
		},
		{
			says: "A clock that jumps ends no hold of a living process.",
			test: "store.TestAWallClockThatJumpsEndsNoHoldOfALivingProcess",
			mutants: []mutant{
				{"the jump counts as time", "store/sweep.go", "now -= int64(ahead)", "_ = ahead"},
			},
		},
		{
			says: "A process leaves the holds of living ones alone.",
			test: onPostgres + "TheHoldsOfALivingProcessAreLeftAlone",
			long: true,
			mutants: []mutant{
				{"every other process is dead", "store/sweep.go", `mark += " AND lease_until = 0"`, `mark += ""`},
			},
		},
		{
			says: "A process that starts takes no other for dead before its own lease is over.",
			test: onPostgres + "AProcessThatStartsTakesNoOtherForDeadBeforeItsOwnLeaseIsOver",
			long: true,
			mutants: []mutant{
				{"it does so at once", "store/sweep.go", "\tcase b.recovering():", "\tcase false:"},
			},
		},
		{
			says: "A process that was taken for dead finds its holds ended, and goes on.",
			test: onPostgres + "AProcessWhoseLeaseWasLostFindsItsHoldsEndedAndGoesOn",
			long: true,
			mutants: []mutant{
				{"it goes on as the one that is dead", "store/sweep.go", "FROM node WHERE id = ? AND NOT dead FOR SHARE", "FROM node WHERE id = ? FOR SHARE"},
			},
		},
		{
			says: "An operation that cannot be done fails no other of its transaction.",
			test: onPostgres + "AHoldThatTheDatabaseRefusesHarmsNoOtherInItsBatch",
			long: true,
			mutants: []mutant{
				{"it fails the first of them", "store/committer.go", "\t\tcase len(ops) > 1:", "\t\tcase false:"},
			},
		},
		{
			says: "A full queue refuses new requests, and takes the ends of those that run.",
			test: "store.TestAFullQueueRefusesNewRequestsAndTakesSettlements",
			mutants: []mutant{
				{"ends are refused too", "store/committer.go", "case len(c.queue) >= queueLimit, begins && c.full():", "case len(c.queue) >= queueLimit, c.full():"},
				{"requests begin all the same", "store/committer.go", "case len(c.queue) >= queueLimit, begins && c.full():", "case len(c.queue) >= queueLimit:"},
			},
		},
		{
			says: "A COMMIT that its standby has not confirmed is not acknowledged.",
			test: "store/postgres.TestACommitWhoseWaitForTheStandbyIsCancelledIsNotAcknowledged",
			mutants: []mutant{
				{"the warning of the database is not heard", "store/postgres/postgres.go", "\tconfig.OnNotice = noteUnconfirmed\n", ""},
			},
		},
		{
			says: "`verify` names a damaged ledger: it compares every sum with its parts.",
			test: onSQLite + "VerifyNamesTheInvariantThatABrokenLedgerBreaks",
			mutants: []mutant{
				{"damage is not reported", "store/verify.go", "\tcase broken != \"\":", "\tcase broken == \"nothing\":"},
			},
		},
	}},
	{"Delivery", []law{
		{
			says: "An answer whose charge cannot be recorded is withheld. If nobody can ever get it, it is not charged.",
			test: "gateway.TestAnAnswerWhoseCaptureFailsIsWithheld",
			mutants: []mutant{
				{"its last event leaves all the same", "internal/deliver/stream.go", "\t\ts.out = s.appendError(s.out[:s.beforeLast], failed)\n", ""},
				{"it is charged later", "internal/money/settle.go", "\t\ts.usage = billing.Usage{}\n", ""},
			},
		},
		{
			says: "Whatever fails, each request costs what its delivered answer costs, to the nano-unit.",
			test: "internal/faultlab.TestEveryChargeIsThatOfTheOracleWhateverFails",
			mutants: []mutant{
				{"a count that no vendor can have had is charged", "internal/operation/quote.go", "if u.Output+u.ImageOutput > limit.Output {", "if u.Output < 0 {"},
			},
		},
		{
			says: "A client that disconnects pays for what had come by then.",
			test: "internal/faultlab.TestAClientGoneAtAnyMomentPaysForWhatHadCome",
			mutants: []mutant{
				{"what nobody had taken is free", "internal/deliver/stream.go", "if s.gone || s.tap.Output() > 0 && s.tap.Delivered() {", "if s.tap.Output() > 0 && s.tap.Delivered() {"},
				{"who leaves pays nothing", "internal/deliver/stream.go", "if s.gone || s.tap.Output() > 0 && s.tap.Delivered() {", "if !s.gone && s.tap.Output() > 0 && s.tap.Delivered() {"},
			},
		},
		{
			says: "A stream that breaks costs what was delivered of it.",
			test: "internal/faultlab.TestAStreamCutAtEveryByteCostsWhatWasDelivered",
			mutants: []mutant{
				{"it is free", "internal/deliver/stream.go", "\t\tused = s.tap.Usage()\n", ""},
			},
		},
		{
			says: "No customer costs the vendors more than they pay, whatever they send and whenever they disconnect.",
			test: "internal/faultlab.TestNoTenantCostsMoreThanItPaysOrHarmsAnother",
			mutants: []mutant{
				{"reasoning that is not shown is not waited for", "stream.go", "\tcase e.model.facts.HidesReasoning, e.info.Stream.AsksForReasoning():", "\tcase false:"},
				{"text that no vendor counted costs a quarter", "internal/tokencount/estimate.go", "return (quarters + 3) / 4", "return quarters / 16"},
			},
		},
		{
			says: "The hold of a stream stays ahead of what is delivered, and the stream ends when the money ends.",
			test: "internal/money.TestAStreamsHoldIsExtendedUntilTheMoneyEnds",
			mutants: []mutant{
				{"a step counts twice", "internal/money/hold.go", "h.covered += above + h.step", "h.covered += 2 * (above + h.step)"},
			},
		},
		{
			says: "What has no price, or chooses another model or account, is refused unless a channel passes it.",
			test: "internal/rule.TestWhatHasNoPriceIsRefusedUnlessItPasses",
			mutants: []mutant{
				{"a request chooses a dearer model", "internal/rule/unpriced.go", "\"models\": {why: otherModel}, ", ""},
				{"a spelling that only some vendors read is overlooked", "internal/rule/unpriced.go", "return strings.ToLower(strings.ToUpper(name))", "return name"},
				{"Gemini's settings hide a tool", "internal/rule/unpriced.go", "name == \"thinking_config\" || name == \"safety_settings\"", "name != \"cached_content\""},
			},
		},
	}},
	{"Repeated requests", []law{
		{
			says: "A request that was charged keeps its answer for its key, and any other frees the key.",
			test: "internal/replay.TestAClaimHasOneOwnerUntilItIsKeptOrFreed",
			mutants: []mutant{
				{"what cost nothing keeps the key", "internal/replay/replay.go", "\t\treturn c.replay.options.Claims.Free(ctx, c.key, c.requestID)\n\t}\n\treturn c.replay.options.Claims.Keep", "\t\treturn nil\n\t}\n\treturn c.replay.options.Claims.Keep"},
				{"what was charged frees the key", "internal/replay/replay.go", "if r.Status != billing.Captured {", "if r.Status == billing.Captured {"},
			},
		},
		{
			says: "A key is one request's: of any number of duplicates at once one runs.",
			test: "store.TestAnyNumberOfParallelDuplicatesMakeOneClaim",
			mutants: []mutant{
				{"each duplicate has the key", "store/memory_holds.go", "\tif first, taken := m.claims[c.Key]; taken {", "\tif first, taken := m.claims[c.Key]; taken && first.open {"},
			},
		},
		{
			says: "A key answers a repetition, refuses another request, and refuses while its request runs.",
			test: "store.TestStoredAnswersAreThoseThatMemoryWouldKeep",
			mutants: []mutant{
				{"another request gets the answer", "store/idempotency.go", "case row.content != content:", "case false:"},
			},
		},
		{
			says: "A capture keeps the answer, and a release frees the key, after a crash too.",
			test: onSQLite + "ACaptureKeepsTheAnswerAndAReleaseFreesTheKeyAfterACrashToo",
			mutants: []mutant{
				{"a release keeps the key", "store/ledger.go", "case s.frees, r.Status == billing.Released && (len(s.answers) > 0 || h.claim != nil):", "case s.frees:"},
			},
		},
		{
			says: "The key of a request that was charged by recovery is not free.",
			test: onPostgres + "TheKeyOfADeadProcessThatWasChargedIsNotFree",
			long: true,
			mutants: []mutant{
				{"it is free, and a repetition is charged again", "store/ledger.go", "case s.frees && r.Status == billing.Captured:", "case false:"},
			},
		},
		{
			says: "An answer is kept for 24 hours.",
			test: "store/memory.TestAClaimIsOneRequestsAndAnAnswerIsForgottenAfter24Hours",
			mutants: []mutant{
				{"it is kept for twelve", "store/memory/answers.go", "m.now().Add(idempotency.KeptFor)", "m.now().Add(idempotency.KeptFor / 2)"},
				{"any request ends the claim", "store/memory/answers.go", "\tif !ok || c.request != requestID || c.answer != nil {", "\tif !ok || c.answer != nil {"},
			},
		},
		{
			says: "What an account keeps is bounded by bytes; above it a key is kept without its answer.",
			test: "store.TestAnAccountKeepsSoManyBytesOfAnswers",
			mutants: []mutant{
				{"one account takes what all may keep", "store/idempotency.go", "if of.bytes+of.pending+bytes > k.limit/2 {", "if of.bytes+of.pending+bytes > k.limit {"},
			},
		},
	}},
	{"Videos and webhooks", []law{
		{
			says: "A video and its hold are made together, or neither is.",
			test: onSQLite + "AVideoAndItsHoldAreMadeTogetherOrNeitherIs",
			mutants: []mutant{
				{"a key has more open videos than it may", "store/tasks.go", "if n.Most > 0 && b.tasks.open[ownKey{n.Task.Account, n.Task.Key}] >= n.Most {", "if n.Most < 0 {"},
				{"a hold without its video", "store/ledger.go", "\tif r.task != nil {\n\t\tb.addTask(r.task, true)\n\t}\n", ""},
			},
		},
		{
			says: "A step of a video is made from the version before it, and once.",
			test: onSQLite + "Tasks/AStepIsMadeFromTheVersionBeforeAndOnce",
			mutants: []mutant{
				{"any version will do", "store/tasks.go", "r.Version == s.Task.Version-1 && ", ""},
			},
		},
		{
			says: "The end of a video changes its money, its record and its webhook at once, or none of them.",
			test: onSQLite + "AStepThatAnotherWasFasterThanMovesNoMoney",
			mutants: []mutant{
				{"money moves without the step", "store/ledger.go", "\tif err := s.checkSteps(b, h.id); err != nil {", "\tif err := s.checkSteps(b, h.id); false {"},
			},
		},
		{
			says: "The hold of a video outlives its process, and is given back at its time.",
			test: onSQLite + "AHoldThatOutlivesItsProcessIsGivenBackAtItsTime",
			mutants: []mutant{
				{"it ends as any other", "store/ledger.go", "h.node, h.expires = noNode, b.db.ledgerTime(c.Until, b.now)", "h.node = noNode"},
			},
		},
		{
			says: "A video's state only moves forward, and a final state never changes.",
			test: "internal/operation/video.TestATaskAdvancesByTheTable",
			mutants: []mutant{
				{"every step is legal", "internal/operation/video/task.go", "return slices.Contains(steps[s], next)", "return slices.Contains(steps[s], next) || true"},
			},
		},
		{
			says: "A video that succeeds after its time is reported, and not charged.",
			test: "internal/operation/video.TestALateSuccessIsReportedAndNotCharged",
			mutants: []mutant{
				{"it is charged", "internal/operation/video/task.go", "&& !now.Before(End(t))", "&& now.Before(t.CreatedAt)"},
			},
		},
		{
			says: "Each due delivery is leased by one process, however many ask for it.",
			test: onSQLite + "OfManyThatAskEachDeliveryIsLeasedOnce",
			mutants: []mutant{
				{"a lease keeps nobody away", "store/webhooks.go", "append(leased, e.ID, owner, end)", "append(leased, e.ID, owner, int64(0))"},
			},
		},
		{
			says: "A delivery is made at least once, and tried for three days.",
			test: "internal/webhook.TestTheResultOfAnAttemptDecides",
			mutants: []mutant{
				{"a failure is final", "internal/webhook/deliverer.go", "d.o.Outbox.Failed(ctx, n, next, result.Reason, !more)", "d.o.Outbox.Failed(ctx, n, next, result.Reason, true)"},
				{"a failure counts as done", "internal/webhook/deliverer.go", "\tif result.Outcome == Delivered {\n\t\td.record", "\tif result.Outcome != Gone {\n\t\td.record"},
			},
		},
	}},
	{"Limits and memory", []law{
		{
			says: "A limiter admits what its limits allow, and a refused request takes nothing but its count.",
			test: "auth.TestTheLimiterAgreesWithAPlainAccountOfEveryCall",
			mutants: []mutant{
				{"a minute has one request more", "internal/ratelimit/ratelimit.go", "q.Requests <= q.RPM {", "q.Requests <= q.RPM+1 {"},
				{"tokens above the limit fit", "internal/ratelimit/ratelimit.go", "q.Tokens <= q.TPM-tokens)", "q.Tokens <= q.TPM)"},
				{"a key has one slot more", "auth/limiter.go", "tallies[i].running >= q.MaxConcurrent:", "tallies[i].running > q.MaxConcurrent:"},
			},
		},
		{
			says: "Several servers together admit no more than one would.",
			test: "store.TestThreeNodesAdmitWhatIsLimited",
			mutants: []mutant{
				{"a server admits what it did not ask for", "store/limits.go", "\tcase refusal == nil && enough:", "\tcase refusal == nil:"},
			},
		},
		{
			says: "No slot is lost or given twice, whatever comes together.",
			test: "internal/admission.TestNoPlaceIsLostWhateverComesTogether",
			mutants: []mutant{
				{"a release gives nothing back", "internal/admission/queue.go", "\ts.running--\n", ""},
				{"a release gives back twice", "internal/admission/queue.go", "\tp.held = false\n", ""},
			},
		},
		{
			says: "A slot that becomes free goes to the account that runs fewest requests.",
			test: "internal/admission.TestAPlaceThatBecomesFreeGoesToTheCallerWithTheFewestCalls",
			mutants: []mutant{
				{"it goes to the one with most", "internal/admission/queue.go", "return p.account.running < other.account.running", "return p.account.running > other.account.running"},
			},
		},
		{
			says: "One owner cannot use all of a shared bound.",
			test: "internal/quota.TestOneOwnerLeavesSomethingForTheNext",
			mutants: []mutant{
				{"one owner takes all", "internal/quota/quota.go", "return f.owners[owner]+n <= factor*(most-f.used-n)", "return f.used+n <= most"},
			},
		},
		{
			says: "What failed is tried again until it succeeds, and one that fails delays no other.",
			test: "internal/retryqueue.TestAnItemIsTriedAfterGrowingWaitsUntilItSucceeds",
			mutants: []mutant{
				{"it is tried once", "internal/retryqueue/retryqueue.go", "\t\titems = append(items, first)\n", ""},
			},
		},
		{
			says: "What waits to be tried again is bounded.",
			test: "internal/retryqueue.TestAFullQueueTakesNoMoreAndADrainTriesEachItemOnce",
			mutants: []mutant{
				{"the queue has no bound", "internal/retryqueue/retryqueue.go", "\tif q.size >= q.options.Size {", "\tif q.size < 0 {"},
			},
		},
	}},
	{"Budgets", []law{
		{
			says: "No more is spent and held than a budget's limit: of ten thousand requests at once on a budget for a hundred, a hundred succeed.",
			test: inMemory + "OfTenThousandRequestsAtOnceOnABudgetForAHundredExactlyAHundredSucceed",
			mutants: []mutant{
				{"what is held is available", "internal/ledger/budget.go", "return max(b.left(now)-b.Held, 0)", "return b.left(now)"},
				{"what is spent is available", "internal/ledger/budget.go", "b.Limit+b.raise(now)-b.used(now)", "b.Limit+b.raise(now)"},
			},
		},
		{
			says: "A request counts against all budgets on its path, at most eight, and the one that has the least bounds it.",
			test: inMemory + "ARequestCountsAgainstEightBudgetsAndAgainstNoMore",
			mutants: []mutant{
				{"any number of budgets", "internal/ledger/budget.go", "if len(budgets) <= billing.MaxBudgets {", "if true {"},
				{"only one budget is charged", "internal/ledger/balance.go", "\tfor _, b := range p.Budgets {\n\t\tb.settle(max(p.Now, Nanos(r.CreatedAt)), p.Now, r.Hold, charge)", "\tfor _, b := range p.Budgets[:min(len(p.Budgets), 1)] {\n\t\tb.settle(max(p.Now, Nanos(r.CreatedAt)), p.Now, r.Hold, charge)"},
			},
		},
		{
			says: "A charge belongs to the window in which it is settled, and what is held counts in whatever window runs.",
			test: inMemory + "AChargeBelongsToTheWindowInWhichItIsSettled",
			mutants: []mutant{
				{"a charge belongs to the window before", "internal/ledger/budget.go", "\tb.roll(now)\n\tb.Spent, b.Since = AddCapped", "\tb.Spent, b.Since = AddCapped"},
				{"a new window forgets what is held", "internal/ledger/budget.go", "b.Begins, b.Since, b.Spent = from, from, 0", "b.Begins, b.Since, b.Spent, b.Held = from, from, 0, 0"},
				{"a window never ends", "internal/ledger/budget.go", "if now < b.from || now >= b.until {", "if b.until == 0 {"},
			},
		},
		{
			says: "A clock that is set back gives no second allowance.",
			test: inMemory + "AClockThatIsSetBackGoesOnInTheLaterWindow",
			mutants: []mutant{
				{"the earlier window has nothing spent", "internal/ledger/budget.go", "if from, _ := b.window(now); b.Begins < from {\n\t\treturn 0", "if from, _ := b.window(now); b.Begins != from {\n\t\treturn 0"},
				{"the earlier window begins again", "internal/ledger/budget.go", "if from, _ := b.window(now); b.Begins < from {\n\t\tb.Begins", "if from, _ := b.window(now); b.Begins != from {\n\t\tb.Begins"},
			},
		},
		{
			says: "A window is that of the calendar of its zone, over short months, leap days and clocks that are set.",
			test: "billing.TestAWindowIsThatOfItsCalendar",
			mutants: []mutant{
				{"a month has 31 days", "billing/budget.go", "min(first, last)", "max(min(first, last), first)"},
				{"an hour that is repeated begins a day twice", "billing/budget.go", "before, shows := at(-furthest)", "before, shows := at(furthest)"},
				{"a day has 24 hours", "billing/budget.go", "_, offset := shown.Add(other).In(zone).Zone()", "_, offset := shown.AddDate(0, -6, 0).In(zone).Zone()"},
			},
		},
		{
			says: "A raise ends at its time.",
			test: inMemory + "ARaiseAddsToTheLimitUntilItEnds",
			mutants: []mutant{
				{"it stays", "internal/ledger/budget.go", "if now < b.RaisedUntil {", "if b.RaisedUntil > 0 {"},
			},
		},
		{
			says: "A budget whose limit is changed keeps what it has spent and what it holds.",
			test: inMemory + "AChangedBudgetKeepsWhatItHasSpentAndHolds",
			mutants: []mutant{
				{"it begins anew", "internal/ledger/budget.go", "if same || (!fresh && (b.Begins == from || b.Begins > now)) {", "if same || (!fresh && (b.Begins == from || b.Begins > now)) {\n\t\tb.Spent = 0"},
			},
		},
		{
			says: "A budget on something old has spent what usage says of the running window.",
			test: inMemory + "ABudgetOnSomethingOldBeginsWithTheRunningWindow",
			mutants: []mutant{
				{"it has spent nothing", "internal/ledger/budget.go", "b.Begins, b.Since, b.Spent = from, since, spent", "b.Begins, b.Since, b.Spent = from, since, 0*spent"},
			},
		},
		{
			says: "A budget that another process changed after it was read is not overdrawn.",
			test: "store/postgres.TestABudgetThatIsChangedAfterItWasReadIsNotOverdrawn",
			mutants: []mutant{
				{"the row is written as it was decided", "store/budgets.go", " AND amount = c.column8", ""},
			},
		},
	}},
}
