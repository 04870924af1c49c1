package mutation

// sentences are parts of the suite of every store of tasks, on SQLite.
func sentences(names string) string {
	return "^TestTheStoreOnSQLite$/^Tasks$/^(" + names + ")$"
}

// inTasks are the guards of video tasks and of the money that they hold.
var inTasks = []mutation{
	{
		guard: "video: the same submission within the window is refused",
		file:  "store/tasks_batch.go", edits: []edit{{"if r.repeats(n, b.now) {", "if false {"}},
		in: "store/sqlite", run: sentences("TheSameSubmissionWithinTheWindowIsAConflict"),
	},
	{
		guard: "video: a key has no more open tasks than it may",
		file:  "store/tasks_batch.go", edits: []edit{{"b.tasks.open[ownKey{n.Task.Account, n.Task.Key}] >= n.Most", "n.Most < 0"}},
		in: "store/sqlite", run: sentences("AKeyHasNoMoreOpenTasksThanItMay"),
	},
	{
		guard: "video: processes admit the tasks of a key one after the other",
		file:  "store/tasks_load.go", edits: []edit{{"if !b.db.dialect.Shared || len(b.tasks.news) == 0 {", "if b != nil {"}},
		in: "store/postgres", run: onPostgres("ProcessesThatShareADatabaseAdmitNoMoreThanAKeyMayHave"), needs: postgres,
	},
	{
		guard: "video: a step is made from the version before",
		file:  "store/tasks_row.go", edits: []edit{{"r.Version == s.Task.Version-1 && ", ""}},
		in: "store/sqlite", run: sentences("AStepIsMadeFromTheVersionBeforeAndOnce"),
	},
	{
		guard: "video: a task that has ended never changes",
		file:  "store/tasks_row.go", edits: []edit{{"s.Task.Version-1 && !r.State.Terminal()", "s.Task.Version-1"}},
		in: "store/sqlite", run: sentences("AStepIsMadeFromTheVersionBeforeAndOnce"),
	},
	{
		guard: "video: its hold belongs to no process",
		file:  "store/decide.go", edits: []edit{{"h.node, h.expires = nobody, b.db.local(c.Until, b.now)", "h.expires = b.db.local(c.Until, b.now)"}},
		in: "store/sqlite", run: onSQLite("AVideoAndItsHoldOutliveTheirProcess"),
	},
	{
		guard: "video: its hold lasts until its time",
		file:  "store/decide.go", edits: []edit{{"h.node, h.expires = nobody, b.db.local(c.Until, b.now)", "h.node = nobody"}},
		in: "store/sqlite", run: onSQLite("AVideoAndItsHoldOutliveTheirProcess"),
	},
	{
		guard: "video: a caller's short time makes no video free",
		file:  "video/advance.go", edits: []edit{{"end := t.CreatedAt.Add(lasts)", "end := t.ExpiresAt"}},
		in: "video", run: "^TestATimeThatACallerGivesATaskMakesNoVideoFree$",
	},
	{
		guard: "video: tasks end by the clock of their store",
		file:  "videos.go", edits: []edit{{"	clock.store, _ = g.options.Tasks.(video.Clock)\n", ""}},
		in: ".", run: "^TestANodeWithAWrongClockEndsNoVideoAndForgetsNone$",
	},
	{
		guard: "video: a node that does not know its store's clock takes no video",
		file:  "videos_clock.go", edits: []edit{{"		return time.Time{}, err\n", "		return c.own(), nil\n"}},
		in: ".", run: "^TestWithoutTheTimeOfItsStoreANodeTakesNoVideoAndEndsNone$",
	},
	{
		guard: "video: a time that the vendor does not have is refused",
		file:  "video/fields.go", edits: []edit{{"OK:   func([]byte) bool { return false },", "OK:   func([]byte) bool { return true },"}},
		in: ".", run: "^TestATimeThatTheVendorDoesNotHaveIsRefusedBeforeAnythingIsSpent$",
	},
	{
		guard: "video: an extension does not shorten its hold",
		file:  "store/decide.go", edits: []edit{{"	if h.node != nobody {\n", "	if true {\n"}},
		in: "store/sqlite", run: onSQLite("AVideoAndItsHoldOutliveTheirProcess"),
	},
	{
		guard: "video: a refusal makes no hold",
		file:  "store/decide.go", edits: []edit{{"		if err := b.admit(r.task); err != nil {", "		if err := b.admit(r.task); err != nil && r == nil {"}},
		in: "store/sqlite", run: onSQLite("AVideoAndItsHoldAreMadeTogetherOrNeitherIs"),
	},
	{
		guard: "video: it is made with its hold",
		file:  "store/decide.go", edits: []edit{{"		b.enlist(r.task, true)\n", "		_ = r.task\n"}},
		in: "store/sqlite", run: onSQLite("AVideoAndItsHoldAreMadeTogetherOrNeitherIs"),
	},
	{
		guard: "video: a hold that nobody waited for is undone with it",
		file:  "store/decide.go", edits: []edit{{"		s.drops = []video.Drop{{ID: r.task.Task.ID}}\n", "		_ = video.Drop{}\n"}},
		in: "store/sqlite", run: onSQLite("AHoldThatNobodyWaitedForIsUndoneWithItsVideo"),
	},
	{
		guard: "video: one without a hold that nobody waited for is forgotten",
		file:  "store/tasks_step.go", edits: []edit{{"return &dropping{e.Task.ID}", "return &dropping{e.Task.ID + \"x\"}"}},
		in: "store/sqlite", run: onSQLite("AHoldThatNobodyWaitedForIsUndoneWithItsVideo"),
	},
	{
		guard: "video: it ends in the transaction that settles it",
		file:  "store/decide.go", edits: []edit{{"	s.apply(b)\n", ""}},
		in: "store/sqlite", run: onSQLite("ASettlementEndsVideoHoldAndNoticeAtOnceAlsoAfterACrash"),
	},
	{
		guard: "video: its notice is in the transaction that ends it",
		file:  "store/flush.go", edits: []edit{{"b.writeTasks, b.writeNotices,", "b.writeTasks,"}},
		in: "store/sqlite", run: onSQLite("ASettlementEndsVideoHoldAndNoticeAtOnceAlsoAfterACrash"),
	},
	{
		guard: "video: a step that another was faster than moves no money",
		file:  "store/tasks_step.go", edits: []edit{{"!r.follows(s) || r.RequestID", "r == nil || r.RequestID"}},
		in: "store/sqlite", run: onSQLite("AStepThatAnotherWasFasterThanMovesNoMoney"),
	},
	{
		guard: "video: a hold ends with its own video",
		file:  "store/tasks_step.go", edits: []edit{{"!r.follows(s) || r.RequestID != request {", "!r.follows(s) || request == \"\" {"}},
		in: "store/sqlite", run: onSQLite("AStepThatAnotherWasFasterThanMovesNoMoney"),
	},
	{
		guard: "video: one whose hold ended by itself still ends",
		file:  "store/decide.go", edits: []edit{{"		s.late(b)\n", ""}},
		in: "store/sqlite", run: onSQLite("AVideoWhoseHoldEndedByItselfStillEndsOnce"),
	},
	{
		guard: "video: a hold that ends by itself says so",
		file:  "store/sweep.go", edits: []edit{{"		t.held = false\n", ""}},
		in: "store/sqlite", run: onSQLite("AHoldThatOutlivesItsProcessIsGivenBackAtItsTime"),
	},
	{
		guard: "video: its key outlives the process",
		file:  "store/idempotency.go", edits: []edit{{"	want := openClaim{h.node, is.expires}", "	want := openClaim{b.node.id, is.expires}"}},
		in: "store/sqlite", run: onSQLite("TheKeyOfAVideoThatMayHaveBeenTakenStaysClaimedUntilItEnds"),
	},
	{
		guard: "video: its key is free when it has ended",
		file:  "store/flush.go", edits: []edit{{"b.writeNotices, b.freeAnswers,", "b.writeNotices,"}},
		in: "store/sqlite", run: onSQLite("TheKeyOfAVideoThatMayHaveBeenTakenStaysClaimedUntilItEnds"),
	},
	{
		guard: "video: the answer to its submission is kept while it is open",
		file:  "store/idempotency.go", edits: []edit{{"if a.receipt.Status == billing.Released {", "if a.receipt.Status != billing.Captured {"}},
		in: "store/sqlite", run: onSQLite("TheAnswerOfAnAcceptedVideoStaysWhateverBecomesOfIt"),
	},
	{
		guard: "video: a lease keeps others away",
		file:  "store/tasks.go", edits: []edit{{"owner <> ? AND lease_until <= ? ORDER", "owner <> ? AND ? > 0 ORDER"}},
		in: "store/sqlite", run: sentences("ALeaseKeepsOthersAwayUntilItEnds"),
	},
	{
		guard: "video: a notice is leased by one at a time",
		file:  "store/notices.go", edits: []edit{{"next_at <= ? AND lease_until <= ? ORDER", "next_at <= ? AND ? > 0 ORDER"}},
		in: "store/sqlite", run: onSQLite("ANoticeIsLeasedByOneAtATimeTheLongestWaitingFirst"),
	},
	{
		guard: "video: the secret before the current one signs for a day",
		file:  "store/webhook_secrets.go", edits: []edit{{"(expires_at = 0 OR expires_at > ?)", "(expires_at = 0 OR ? > 0)"}},
		in: "store/sqlite", run: onSQLite("ASecretIsMadeOnceAndBothSignAfterARotation"),
	},
	{
		guard: "store: a text that Postgres does not take is the caller's fault",
		file:  "store/postgres/postgres.go", edits: []edit{{`"22021": store.Unwritable,`, `"22021": store.Broken,`}},
		in: "store/postgres", run: onPostgres("AHoldThatTheDatabaseRefusesHarmsNoOtherInItsBatch"), needs: postgres,
	},
}
