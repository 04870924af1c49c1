package mutation

// inGateway are the ways in which the gateway settles.
var inGateway = []mutation{
	{
		guard: "gateway: nothing is asked upstream without a hold",
		file:  "call.go", edits: []edit{{"	if err := c.reserve(c.charge()); err != nil {", "	if err := c.reserve(c.charge()); err != nil && c == nil {"}},
		in: ".", run: "^TestABalanceThatCoversNoTokenIs402AndNothingIsAsked$",
	},
	{
		guard: "gateway: a call is settled once",
		file:  "settle.go", edits: []edit{{"	c.held = false\n", ""}},
		in: ".", run: "^(TestACompleteAnswerCostsItsReportedUsage|TestACaptureThatFailsWithholdsTheAnswerAndIsRetried|TestAClientThatLeavesAtAnyChunkPaysForWhatItReceived)$",
	},
	{
		guard: "gateway: an answer whose capture is not durable is withheld",
		file:  "call.go",
		edits: []edit{{"c.x.answerRecord(header, c.whole)); err != nil {", "c.x.answerRecord(header, c.whole)); err != nil && c == nil {"}},
		in:    ".", run: "^TestACaptureThatFailsWithholdsTheAnswerAndIsRetried$",
	},
	{
		guard: "gateway: a capture that failed is tried again",
		file:  "settle.go", edits: []edit{{"queued = g.unsettled.add(p)", "queued = false"}},
		in: ".", run: "^TestACaptureThatFailsWithholdsTheAnswerAndIsRetried$",
	},
	{
		guard: "gateway: a client that leaves a stream pays for what it received",
		file:  "stream.go", edits: []edit{{"s.c.settle(s.tap.usage(), billing.ReasonClientGone", "s.c.settle(billing.Usage{}, billing.ReasonClientGone"}},
		in: ".", run: "^TestAClientThatLeavesAtAnyChunkPaysForWhatItReceived$",
	},
	{
		guard: "gateway: a client that leaves before the answer pays for the input",
		file:  "call.go", edits: []edit{{"			used = c.input()\n", "			_ = used\n"}},
		in: ".", run: "^TestACallerWhoHangsUpBeforeTheAnswerPaysForTheInput$",
	},
	{
		guard: "gateway: a stream that is cut costs what was delivered",
		file:  "stream.go", edits: []edit{{"		used = s.tap.usage()\n", "		_ = used\n"}},
		in: ".", run: "^TestAStreamCutAtEveryByteCostsWhatWasDelivered$",
	},
	{
		guard: "gateway: an upstream that fails before output costs nothing",
		file:  "stream.go", edits: []edit{{"s.tap.output() > 0 && (!ok || t.delivered())", "t != nil || !ok"}},
		in: ".", run: "^TestAnUpstreamThatFailsBeforeOutputCostsNothing$|^TestAStreamCutAtEveryByteCostsWhatWasDelivered$",
	},
	{
		guard: "gateway: a stream leaves a checkpoint when a thousand tokens are new",
		file:  "afford.go", edits: []edit{{"out-s.saved >= checkpoint", "out-s.saved >= 1<<40"}},
		in: ".", run: "^TestAStreamIsCheckpointedWhenAThousandTokensAreNew$",
	},
	{
		guard: "gateway: a slow stream leaves a checkpoint every two seconds",
		file:  "afford.go", edits: []edit{{"(out > s.saved && s.overdue())", "s.overdue() && false"}},
		in: ".", run: "^TestASlowStreamIsCheckpointedEveryTwoSecondsIfTheMeterHasTime$",
	},
	{
		guard: "gateway: a stream ends when the money does",
		file:  "afford.go", edits: []edit{{"return s.until == 0 || !s.dry || out < s.until", "return true"}},
		in: ".", run: "^TestAStreamEndsForLengthWhenTheMoneyDoes$",
	},
	{
		guard: "gateway: an absurd count is clamped to the hold",
		file:  "settle.go", edits: []edit{{"if u.Anomaly || c.op.absurd(c.model, u) {", "if false {"}},
		in: ".", run: "^TestAnAbsurdCountIsClampedToTheHold$",
	},
	{
		guard: "gateway: a call that fails frees its key",
		file:  "call.go", edits: []edit{{"	c.x.free(c.ctx)\n	c.release()\n", "	c.release()\n"}},
		in: ".", run: "^TestAFailureFreesTheKey$",
	},
	{
		guard: "gateway: an answer is kept for duplicates",
		file:  "settle.go", edits: []edit{{"return r, g.keep(ctx, p.answer, r)", "return r, nil"}},
		in: ".", run: "^TestADuplicateGetsTheFirstAnswerAndIsNotCharged$",
	},
	{
		guard: "gateway: a stream whose capture is not durable has no terminator",
		file:  "stream.go", edits: []edit{{"settle(usage, reason, s.answer()); err != nil {\n		s.out = s.out[:before]\n", "settle(usage, reason, s.answer()); err != nil {\n		_ = before\n"}},
		in: ".", run: "^TestAStreamWhoseCaptureIsNotDurableHasNoTerminator$",
	},
	{
		guard: "gateway: a stream that cost nothing frees its key",
		file:  "idempotency.go", edits: []edit{{"if r.Status != billing.Captured {", "if false {"}},
		in: ".", run: "^TestAStreamThatCostNothingFreesItsKey$",
	},
	{
		guard: "gateway: a refused slot stops the call",
		file:  "call.go", edits: []edit{{"	if err := c.admit(); err != nil {", "	if err := c.admit(); err != nil && c == nil {"}},
		in: ".", run: "^TestACallWithoutAFreeSlotAsksNobodyAndHoldsNothing$",
	},
}
