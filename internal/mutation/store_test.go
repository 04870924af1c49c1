package mutation

// onSQLite and onPostgres are parts of the suite of both databases.
func onSQLite(names string) string   { return "^TestTheStoreOnSQLite$/^(" + names + ")$" }
func onPostgres(names string) string { return "^TestTheStoreOnPostgres$/^(" + names + ")$" }

// inStore are the guards of the ledger in a database.
var inStore = []mutation{
	{
		guard: "store: a hold is covered by posted less held",
		file:  "store/decide.go", edits: []edit{{"return amount <= b.available(h)", "return true"}},
		in: "store/sqlite", run: onSQLite("AHoldIsGrantedInPartDownToItsLeast|ExtendAddsUnderTheSameGuardAndARefusalChangesNothing"),
	},
	{
		guard: "store: a hold is covered by the budget of its key",
		file:  "store/decide.go", edits: []edit{{"return min(account.available(), budget.available())", "_ = budget\n	return account.available()"}},
		in: "store/sqlite", run: onSQLite("ABudgetIsASecondGuard|ABudgetCountsWhatWasCaptured"),
	},
	{
		guard: "store: a request has one hold",
		file:  "store/decide.go", edits: []edit{{`c.RequestID == "" || b.used(c.RequestID)`, `c.RequestID == ""`}},
		in: "store/sqlite", run: onSQLite("ReserveRefusesWhatItCannotKeepApart"),
	},
	{
		guard: "store: a hold that has ended is not settled again",
		file:  "store/decide.go", edits: []edit{{"if r, ended := b.receipts[s.id]; ended {", "if r, ended := b.receipts[s.id]; ended && false {"}},
		in: "store/sqlite", run: onSQLite("SettlingTwiceChangesNothingAndRepeatsTheFirstReceipt"),
	},
	{
		guard: "store: a charge is at most the hold and what is available",
		file:  "store/decide.go", edits: []edit{{"charge := min(cost, h.amount+available)", "charge := cost"}},
		in: "store/sqlite", run: onSQLite("CostAboveTheHoldComesFromWhatIsAvailableAndThenFromTheOperator"),
	},
	{
		guard: "store: what the operator bears is entered",
		file:  "store/decide.go", edits: []edit{{"overrun: charge - cost, ", ""}},
		in: "store/sqlite", run: onSQLite("CostAboveTheHoldComesFromWhatIsAvailableAndThenFromTheOperator"),
	},
	{
		guard: "store: a hold names the version of its price",
		file:  "store/decide.go", edits: []edit{{"version: c.Price.Version(), price", "price"}},
		in: "store/sqlite", run: onSQLite("EveryReceiptCanBeComputedAgainFromWhatIsStored"),
	},
	{
		guard: "store: an extension puts off the expiry",
		file:  "store/decide.go", edits: []edit{{"h.expires = b.now + b.db.options.HoldFor.Nanoseconds()", ""}},
		in: "store/sqlite", run: onSQLite("AnExtensionPutsTheExpiryOff"),
	},
	{
		guard: "store: a reference is credited once",
		file:  "store/accounts.go", edits: []edit{{"before, repeated, err := b.credited(s.account, s.reference)", "before, repeated, err := b.credited(s.account, s.reference)\n	repeated = false"}},
		in: "store/sqlite", run: onSQLite("ACreditCountsOncePerReference"),
	},
	{
		guard: "store: a recovery ends the holds of the dead",
		file:  "store/sweep.go", edits: []edit{{" OR node IN (SELECT id FROM node WHERE dead)", ""}},
		in: "store/sqlite", run: onSQLite("AHoldWithoutACheckpointIsGivenBackAfterACrash"),
	},
	{
		guard: "store: a recovery ends what has expired",
		file:  "store/sweep.go", edits: []edit{{`over := "expires_at <= ?"`, `over := "? < 0"`}},
		in: "store/sqlite", run: onSQLite("AHoldThatNobodySettlesEndsWhenItExpires"),
	},
	{
		guard: "store: a recovery charges the last checkpoint",
		file:  "store/decide.go", edits: []edit{{"		u = h.soFar\n", ""}},
		in: "store/sqlite", run: onSQLite("AStreamIsChargedItsLastCheckpointAfterACrash"),
	},
	{
		guard: "store: a recovery frees the keys of the dead",
		file:  "store/node.go", edits: []edit{{"if err := freeClaims(ctx, t, id); err != nil {", "if err := error(nil); err != nil {"}},
		in: "store/sqlite", run: onSQLite("AKeyWhoseRequestDiedIsFreeAfterTheCrash"),
	},
	{
		guard: "store: callers are told after the commit",
		file:  "store/batch.go",
		edits: []edit{
			{"	if err := t.Commit(); err != nil {", "	b.publish()\n	b.committer.finish(b.ops)\n	if err := t.Commit(); err != nil {"},
			{"	b.publish()\n	return nil", "	return nil"},
		},
		in: "store/sqlite", run: onSQLite("ACommitThatLostItsAnswerMakesOneHoldAndOneCapture"),
	},
	{
		guard: "store: callers are told when it is noted how the database is",
		file:  "store/commit.go", edits: []edit{{"		c.committed(len(b.ops)", "		if err == nil {\n			c.finish(ops)\n		}\n		c.committed(len(ops)"}},
		in: "store/sqlite", run: "^TestWhoIsToldThatItIsDurableFindsTheDatabaseWell$",
	},
	{
		guard: "store: a COMMIT without an answer is looked up",
		file:  "store/node.go", edits: []edit{{"if commits == p.commits+1 {", "if false {"}},
		in: "store/sqlite", run: onSQLite("ACommitThatLostItsAnswerMakesOneHoldAndOneCapture"),
	},
	{
		guard: "store: a COMMIT without an answer is remembered",
		file:  "store/batch.go", edits: []edit{{"		b.pending = b ", "		_ = b "}},
		in: "store/sqlite", run: onSQLite("ACommitThatLostItsAnswerMakesOneHoldAndOneCapture|ACommitThatLostItsAnswerIsFoundAfterItsCallerHasLeft"),
	},
	{
		guard: "store: what nobody waited for is given back",
		file:  "store/commit.go", edits: []edit{{"if s, ok := o.step.(interface{ undo() step }); ok {", "if s, ok := o.step.(interface{ undo() step }); ok && false {"}},
		in: "store/sqlite", run: onSQLite("AHoldMadeForACallerWhoDidNotWaitIsGivenBackOnceTheDatabaseIsBackThen"),
	},
	{
		guard: "store: the operations of a poisoned batch are done one by one",
		file:  "store/commit.go", edits: []edit{{"		case len(ops) > 1:\n", "		case len(ops) > 1<<20:\n"}},
		in: "store/postgres", run: onPostgres("AHoldThatTheDatabaseRefusesHarmsNoOtherInItsBatch"), needs: postgres,
	},
	{
		guard: "store: a process finds out that its lease was lost",
		file:  "store/statements.go", edits: []edit{{"WHERE id = ? AND NOT dead RETURNING", "WHERE id = ? RETURNING"}},
		in: "store/postgres", run: onPostgres("AProcessWhoseLeaseWasLostFindsItsHoldsEndedAndGoesOn"), needs: postgres,
	},
	{
		guard: "store: a process that lost its lease learns how its last COMMIT ended",
		file:  "store/node.go", edits: []edit{{"	case commits == p.commits:\n", "	case false:\n"}},
		in: "store/postgres", run: onPostgres("AProcessThatLostItsLeaseLearnsHowItsLastCommitHasEnded"), needs: postgres,
	},
	{
		guard: "store: a hold that others ended is not written to",
		file:  "store/rows.go", edits: []edit{{"if err == nil && changed != int64(len(args)/b.width) {", "if err == nil && changed < 0 {"}},
		in: "store/postgres", run: onPostgres("AHoldThatAnotherProcessSettledIsNotExtended"), needs: postgres,
	},
	{
		guard: "store: the living are left alone",
		file:  "store/statements.go", edits: []edit{{`others := " AND lease_until < " + d.Clock + " AND (`, `others := " AND (TRUE OR `}},
		in: "store/postgres", run: onPostgres("TheHoldsOfALivingProcessAreLeftAlone"), needs: postgres,
	},
	{
		guard: "store: what was decided in memory must still fit in the database",
		file:  "store/statements.go",
		edits: []edit{{
			`") AS c WHERE id = c.column1 AND posted + c.column2 >= held + c.column3 AND held + c.column3 >= 0"),
		updateBudget`,
			`") AS c WHERE id = c.column1"),
		updateBudget`,
		}},
		in: "store/postgres", run: onPostgres("TheHoldsOfALivingProcessAreLeftAlone"), needs: postgres,
	},
	{
		guard: "store: a cost above a budget is the account's",
		file:  "store/decide.go", edits: []edit{{"available := a.available()", "available := b.available(h)"}},
		in: "store/sqlite", run: onSQLite("ABudgetCountsWhatWasCaptured"),
	},
	{
		guard: "store: a budget keeps what others hold on it",
		file:  "store/row.go", edits: []edit{{"max(p.posted-charge, p.held)", "p.posted - charge"}},
		in: "store/sqlite", run: onSQLite("ABudgetCountsWhatWasCaptured"),
	},
	{
		guard: "store: an extension is not of less than nothing",
		file:  "store/decide.go", edits: []edit{{"case e.more < 0 ||", "case"}},
		in: "store/sqlite", run: onSQLite("ExtendAddsUnderTheSameGuardAndARefusalChangesNothing"),
	},
	{
		guard: "store: an answer is kept in the transaction that captures",
		file:  "store/flush.go", edits: []edit{{"b.writeEntries, b.writeAnswers,", "b.writeEntries,"}},
		in: "store/sqlite", run: onSQLite("ACaptureKeepsTheAnswerAndAReleaseFreesTheKeyAlsoAfterACrash"),
	},
	{
		guard: "store: an idempotency key has one owner",
		file:  "store/idempotency.go", edits: []edit{{"		WHERE answer.expires_at <= excluded", "		WHERE TRUE OR answer.expires_at <= excluded"}},
		in: "store", run: "^TestAnyNumberOfParallelDuplicatesMakeOneClaim$/^sqlite$",
	},
	{
		guard: "store: another body under the same key is refused",
		file:  "store/idempotency.go", edits: []edit{{"case string(hash) != string(content[:]):", "case false:"}},
		in: "store/sqlite", run: onSQLite("AnotherContentUnderTheSameKeyIsAConflict"),
	},
	{
		guard: "store: a newer schema is refused",
		file:  "store/migrate.go", edits: []edit{{"	if version > len(all) {\n", "	version = min(version, len(all))\n	if false {\n"}},
		in: "store/sqlite", run: onSQLite("AStoreOfANewerSchemaIsNotOpened"),
	},
	{
		guard: "store: one process has a SQLite file",
		file:  "store/sqlite/lock_unix.go", edits: []edit{{"syscall.LOCK_EX|", "syscall.LOCK_SH|"}},
		in: "store/sqlite", run: "^TestASecondProcessOnTheSameFileIsRefused$",
	},
	{
		guard: "store: a clock that jumped frees no key of a running request",
		file:  "store/idempotency.go",
		edits: []edit{{"			AND (answer.state <> 'open' OR NOT EXISTS (SELECT 1 FROM hold WHERE hold.id = answer.request))\n", ""}},
		in:    "store", run: "^TestAWallClockThatJumpsGivesTheKeyOfARunningRequestToNoDuplicate$",
	},
	{
		guard: "store: an operation on a locked row is put off alone",
		file:  "store/locked.go", edits: []edit{{"		if isLocked(&needed[i]) {", "		if isLocked(&needed[i]) && false {"}},
		in: "store/postgres", run: "^TestALockedRowDelaysOnlyTheCallsThatNeedIt$", needs: postgres,
	},
	{
		guard: "store: a full queue has room for settlements",
		file:  "store/commit.go", edits: []edit{{"return len(c.queue) >= beginLimit ||", "return false ||"}},
		in: "store", run: "^TestAFullQueueRefusesNewRequestsAndTakesSettlements$",
	},
	{
		guard: "store: a request is refused by the pace of the database",
		file:  "store/pace.go", edits: []edit{{"return queued >= paceFloor &&", "return queued < 0 &&"}},
		in: "store", run: "^TestARequestIsRefusedByThePaceOfTheDatabase$",
	},
	{
		guard: "store: one damaged hold stops no sweep",
		file:  "store/sweep.go", edits: []edit{{"if away := db.committer.healthy(); away != nil ||", "if away := db.committer.healthy(); away == nil ||"}},
		in: "store", run: "^TestAHoldThatCannotBeEndedStopsNeitherTheStartNorTheSweep$",
	},
	{
		guard: "store: an account keeps so many bytes of answers",
		file:  "store/kept.go", edits: []edit{{"if of.bytes+of.pending+bytes > k.limit/2 {", "if false {"}},
		in: "store", run: "^TestAnswersAboveTheBytesOfAnAccountAreNotKept$/^sqlite$",
	},
	{
		guard: "store: a hold finds the key of its request",
		file:  "store/decide.go", edits: []edit{{"	if c.Claimed {\n", "	if false {\n"}},
		in: "store/crashtest", run: "^TestARequestWhoseKeyOthersFreedGetsNoHold$", needs: postgres,
	},
	{
		guard: "store: a hold takes its key over",
		file:  "store/idempotency.go", edits: []edit{{"	if is != want {\n", "	if false {\n"}},
		in: "store/crashtest", run: "^TestAHoldTakesItsKeyOverToTheProcessThatMakesIt$", needs: postgres,
	},
	{
		guard: "store: books with money in them keep their currency",
		file:  "store/setting.go", edits: []edit{{"		if entries > 0 {", "		if entries > 1<<40 {"}},
		in: "store", run: "^TestBooksWithMoneyInThemAreNotOpenedInAnotherCurrency$", needs: postgres,
	},
	{
		guard: "store: a hold ends as it was made, not as the server bills that ends it",
		file:  "store/decide.go", edits: []edit{{"	if h.counted {\n		return nil, nil", "	if b.db.options.Count {\n		return nil, nil"}},
		in: "store/sqlite", run: onSQLite("AHoldEndsAsItWasMadeWhateverTheServerThatEndsItBills"),
	},
	{
		guard: "store: servers on one database bill in one way",
		file:  "store/setting.go", edits: []edit{{"	if alive > 0 {", "	if alive > 1<<40 {"}},
		in: "store/postgres", run: "^TestTheStoreOnPostgres$/^AServerThatBillsInAnotherWayDoesNotJoinOneThatRuns$", needs: postgres,
	},
	{
		guard: "store: a file has one name to lock",
		file:  "store/sqlite/lock_unix.go", edits: []edit{{"stat.Nlink > 1 {", "stat.Nlink > 9 {"}},
		in: "store/sqlite", run: "^TestAnotherNameOfTheSameFileDoesNotGetAroundTheLock$",
	},
	{
		guard: "store: no more is taken back than is available",
		file:  "store/accounts.go", edits: []edit{{"	case s.amount < -a.available():", "	case false:"}},
		in: "store/sqlite", run: onSQLite("ACreditIsTakenBackOnlyFromWhatIsAvailable"),
	},
	{
		guard: "store: the balance of an account stays an amount",
		file:  "store/accounts.go", edits: []edit{{"	case !a.posted.Fits(s.amount) || !a.credited.Fits(s.amount):", "	case false:"}},
		in: "store/sqlite", run: onSQLite("AllAccountsTogetherMayHaveMoreThanAnAmount"),
	},
	{
		guard: "store: an opening credit is an amount",
		file:  "store/accounts.go", edits: []edit{{"	case s.credit == billing.Unlimited:", "	case false:"}},
		in: "store/sqlite", run: onSQLite("AnOpeningCreditIsNeitherNegativeNorTooLarge"),
	},
	{
		guard: "store: sums of usage are compared with the receipts",
		file:  "store/verify_usage.go", edits: []edit{{"		if kept[g] != sums {", "		if _ = sums; false {"}},
		in: "store/sqlite", run: onSQLite("VerifyNamesTheInvariantThatABrokenLedgerBreaks"),
	},
	{
		guard: "store: a price row is what its version is the hash of",
		file:  "store/prices.go", edits: []edit{{"err == nil && p.Version() == version {", "err == nil {"}},
		in: "store", run: "^TestADamagedPriceIsNotUsed$", needs: postgres,
	},
	{
		guard: "gateway: prepaid, a model without a price does not exist",
		file:  "routes.go", edits: []edit{{" || r.requirePrice && r.prices.Price(id) == nil {", " {"}},
		in: ".", run: "^TestAModelWithoutAPriceDoesNotExistInPrepaid$",
	},
}
