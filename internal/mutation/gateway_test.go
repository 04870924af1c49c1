package mutation

// inGateway are the ways in which the gateway settles.
var inGateway = []mutation{
	{
		guard: "gateway: prepaid refuses what has no price",
		file:  "call.go", edits: []edit{{"	return m, x.checkUnpriced(op, m)", "	return m, nil"}},
		in: "server", run: "^(TestWhatCostsMoneyWithoutAPriceIsRefusedInPrepaid|TestAPaidBetaIsRefusedInPrepaid)$",
	},
	{
		guard: "gateway: prepaid refuses what a channel renames to something without a price",
		file:  "call.go", edits: []edit{{"	if err := x.checkRenamed(op, m); err != nil {", "	if err := x.checkRenamed(op, m); err != nil && op == nil {"}},
		in: "server", run: "^TestAFieldThatAChannelRenamesIsCheckedByItsNewNameInPrepaid$",
	},
	{
		guard: "gateway: a count of tokens chooses no other model or account",
		file:  "op_count.go", edits: []edit{{"	return o.Unpriced(h, pass)", "	return nil"}},
		in: "server", run: "^TestACountOfTokensMayChooseNoOtherModelOrAccountInPrepaid$",
	},
	{
		guard: "gateway: prepaid sells no operation that the price is not enough for",
		file:  "call.go", edits: []edit{{"	if !x.routes.sells(op.op(), m.ID) {", "	if false {"}},
		in: ".", run: "^TestAnOperationThatAPriceIsNotEnoughForIsNotSold$",
	},
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
		guard: "gateway: captures of one account that fail do not delay another's",
		file:  "queue.go", edits: []edit{{"	account := p.hold.Account\n", "	account := \"\"\n"}},
		in: ".", run: "^TestPutOffCapturesOfALockedAccountDelayThoseOfNoOther$",
	},
	{
		guard: "gateway: a client that leaves a stream pays for what it received",
		file:  "stream.go", edits: []edit{{"s.c.settle(s.c.asked(s.c.op, s.tap.usage()), billing.ReasonClientGone", "s.c.settle(billing.Usage{}, billing.ReasonClientGone"}},
		in: ".", run: "^TestAClientThatLeavesAtAnyChunkPaysForWhatItReceived$",
	},
	{
		guard: "gateway: a client that leaves before the answer pays for the input",
		file:  "call.go", edits: []edit{{"			used = c.owed()\n", "			_ = used\n"}},
		in: ".", run: "^TestACallerWhoHangsUpBeforeTheAnswerPaysForTheInput$",
	},
	{
		guard: "gateway: a client that leaves pays for the pieces that were asked for",
		file:  "tries.go", edits: []edit{{"max(u.Images, least.Images), max(u.Seconds, least.Seconds), max(u.Characters, least.Characters)", "u.Images, u.Seconds, u.Characters"}},
		in: ".", run: "^TestWhoLeavesBeforeTheAnswerPaysForWhatTheVendorWasAskedFor$",
	},
	{
		guard: "gateway: a key that was charged and not kept stays used",
		file:  "call.go", edits: []edit{{"c.lastChannel(), c.x.answerRecord(nil, nil)", "c.lastChannel(), nil"}},
		in: ".", run: "^TestWhoLeavesBeforeTheAnswerPaysForWhatTheVendorWasAskedFor$",
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
		file:  "settle.go", edits: []edit{{"if !c.op.absurd(c.model, u) {", "if u.Input >= 0 {"}},
		in: ".", run: "^TestAnAbsurdCountIsClampedToTheHold$",
	},
	{
		guard: "gateway: what was delivered is not clamped away",
		file:  "settle.go", edits: []edit{{"max(most.Output, c.said())", "most.Output"}},
		in: ".", run: "^TestWhatWasDeliveredIsChargedWhateverTheCallerWrote$",
	},
	{
		guard: "gateway: a checkpoint is clamped as a settlement is",
		file:  "afford.go", edits: []edit{{"s.c.plausible(s.tap.usage())", "s.tap.usage()"}},
		in: ".", run: "^TestACheckpointIsClampedAsASettlementIs$",
	},
	{
		guard: "gateway: a whole answer is limited to what its hold affords",
		file:  "exposure.go", edits: []edit{{"	case !e.uncut:\n", "	case true:\n"}},
		in: ".", run: "^TestWholeAnswersAtOnceNeverCostMoreThanTheBalance$",
	},
	{
		guard: "gateway: a whole answer without a bound is held for what may be made",
		file:  "exposure.go", edits: []edit{{"		most.Output = e.n * m.unasked()\n", ""}},
		in: ".", run: "^TestASolventCallerIsServedWhateverTheCap$",
	},
	{
		guard: "gateway: what a channel drops bounds nothing",
		file:  "exposure.go", edits: []edit{{"		e.own, e.uncut = 0, true\n", ""}},
		in: ".", run: "^TestABoundThatAChannelDropsBoundsNothing$",
	},
	{
		guard: "gateway: media by URL are firm",
		file:  "exposure.go", edits: []edit{{"		c.Firm.Input += e.linked\n", "		c.Firm = billing.Usage{}\n"}},
		in: ".", run: "^TestMediaByURLRunAloneUnlessTheBalanceCoversThem$",
	},
	{
		guard: "chat: bounds that differ are refused",
		file:  "chat/rules.go", edits: []edit{{"r.MaxTokens != r.MaxCompletionTokens {", "false {"}},
		in: "chat", run: "^TestEveryRowOfTheTablesIsChecked$",
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
		guard: "gateway: a whole answer that nobody gets is not charged",
		file:  "settle.go", edits: []edit{{"			p = c.unpaid(p)\n", "			_ = p\n"}},
		in: ".", run: "^TestAWholeAnswerThatIsWithheldWithoutAKeyIsNotCharged$",
	},
	{
		guard: "gateway: a whole answer that no duplicate gets is not charged",
		file:  "settle.go", edits: []edit{{"(answer == nil || answer.Body == nil)", "answer == nil"}},
		in: ".", run: "^TestAWithheldAnswerThatIsTooLargeToKeepIsNotChargedAndFreesItsKey$",
	},
	{
		guard: "gateway: an answer whose hold another process ended is withheld",
		file:  "settle.go", edits: []edit{{"	if recovered(receipt, reason) {\n", "	if false {\n"}},
		in: ".", run: "^(TestAnAnswerWhoseHoldAnotherProcessEndedIsWithheld|TestTheEndOfAStreamWhoseHoldAnotherProcessEndedIsWithheld)$",
	},
	{
		guard: "gateway: a stream whose hold another process ended stops",
		file:  "afford.go", edits: []edit{{"		s.lost = takenOver(err)\n", "		_ = takenOver(err)\n"}},
		in: ".", run: "^TestAStreamWhoseHoldAnotherProcessEndedStopsAtTheNextCheckpoint$",
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
