package mutation

// inRouter are the guards of who may be asked again, and of the vendors' limits.
var inRouter = []mutation{
	{
		guard: "router: what may be billed is repeated only where that is cheap",
		file:  "upstream/verdict.go", edits: []edit{{"v.again = repeatable[op] || v.unsent || f.Refused", "v.again = true"}},
		in: "upstream", run: "^TestWhoIsRepeatedWhere$",
	},
	{
		guard: "router: a call that was sent and timed out is not repeated",
		file:  "upstream/verdict.go", edits: []edit{{"verdict{again: !f.Sent, sick: true}", "verdict{again: true, sick: true}"}},
		in: "upstream", run: "^TestWhoIsRepeatedWhere$",
	},
	{
		guard: "router: the caller's own fault is not repeated",
		file:  "upstream/verdict.go", edits: []edit{{"		return verdict{}\n", "		return verdict{again: true}\n"}},
		in: "upstream", run: "^TestWhoIsRepeatedWhere$",
	},
	{
		guard: "router: the only channel is asked again only where nothing was sent",
		file:  "upstream/trip.go", edits: []edit{{"case alone && v.unsent:", "case alone:"}},
		in: "upstream", run: "^TestTheOnlyChannelIsAskedAgainOnceAndOnlyIfNothingWasSent$",
	},
	{
		guard: "router: a vendor that wants the call back later does not get it now",
		file:  "upstream/trip.go", edits: []edit{{"v.wait > 0 && v.wait <= t.left", "v.wait > 0"}},
		in: "upstream", run: "^TestAVendorThatWantsTheCallBackAtOnceGetsIt$",
	},
	{
		guard: "router: a channel is asked with one other key",
		file:  "upstream/trip.go", edits: []edit{{"case v.otherKey && t.keyed < t.otherKeys():", "case v.otherKey:"}},
		in: "upstream", run: "^TestAChannelIsAskedWithItsOtherKeyFirst$",
	},
	{
		guard: "router: a call has two more attempts",
		file:  "upstream/budget.go", edits: []edit{{"maxAttempts = 3", "maxAttempts = 4"}},
		in: "upstream", run: "^TestFailOver$",
	},
	{
		guard: "router: a fifth of the calls has more attempts",
		file:  "upstream/budget.go", edits: []edit{{"CompareAndSwap(v, v+perExtra)", "CompareAndSwap(v, v)"}},
		in: "upstream", run: "^TestExtraAttemptsEndWithTheBudgetAndComeBackWithRequests$",
	},
	{
		guard: "router: an extra attempt is paid for",
		file:  "upstream/trip.go", edits: []edit{{"|| !t.pay(r.budget)) {", "|| !t.pay(new(budget))) {"}},
		in: "upstream", run: "^TestExtraAttemptsEndWithTheBudgetAndComeBackWithRequests$",
	},
	{
		guard: "router: an attempt that never left the house cannot be billed",
		file:  "upstream/outcome.go", edits: []edit{{"f.Sent && !a.barred", "f.Sent"}},
		in: "upstream", run: "^TestAnAttemptTellsWhatTheVendorMayBill$",
	},
	{
		guard: "router: others are asked before the vendor's Retry-After is over",
		file:  "upstream/choice.go", edits: []edit{{"		c.standing = cooling\n", "		c.standing = open\n"}},
		in: "upstream", run: "^TestAVendorThatSaysWhenToComeBackIsNotAskedBeforeAndOthersServe$",
	},
	{
		guard: "router: the only channel is asked though its vendor said when to come back",
		file:  "upstream/choice.go", edits: []edit{{"		c.standing = cooling\n", "		c.standing = barred\n"}},
		in: "upstream", run: "^TestTheLastChannelIsAskedWhateverCameBefore$",
	},
	{
		guard: "router: failures of one account alone rest a channel for that account alone",
		file:  "upstream/health.go", edits: []edit{{"	h.lone.Store(lone)\n", "	h.lone.Store(nil)\n"}},
		in: "upstream", run: "^TestFailuresOfOneAccountAloneRestAChannelForThatAccountAlone$",
	},
	{
		guard: "router: a status alone does not say that the operator's account is out",
		file:  "upstream/failure.go", edits: []edit{{"Ambiguous: accounts[status],", ""}},
		in: "upstream/internal/vendortest", run: "^TestOnlyAVendorsCodeSaysSurelyThatTheAccountIsOut$",
	},
	{
		guard: "router: who fails alone does not spend the extra attempts of others",
		file:  "upstream/trip.go", edits: []edit{{"!t.paid && alone(all, best) || ", ""}},
		in: "upstream", run: "^TestAnAccountThatFailsAloneDoesNotSpendTheExtraAttemptsOfOthers$",
	},
	{
		guard: "router: keys are masked before a text is cut",
		file:  "upstream/internal/httpdo/failure.go", edits: []edit{{"clip(c.Keys.Mask(text))", "c.Keys.Mask(clip(text))"}},
		in: "upstream/internal/httpdo", run: "^TestAKeyAtTheCutOfAVendorsTextIsMasked$",
	},
	{
		guard: "router: a paused channel gets no new calls",
		file:  "upstream/choice.go", edits: []edit{{"case c.paused.Load():", "case false:"}},
		in: "upstream", run: "^TestAPausedChannelGetsNoNewCallsButThoseThatNameIt$",
	},
	{
		guard: "router: calls at a time",
		file:  "upstream/gate.go",
		edits: []edit{{"	if g.inside >= most || len(g.line) > 0 {\n		return false\n	}\n	g.inside++", "	g.inside++"}, {"return g.inside >= most || len(g.line) > 0", "return false"}},
		in:    "upstream", run: "^TestAChannelAnswersSoManyCallsAtATimeAndOthersTakeTheRest$",
	},
	{
		guard: "router: a place is held until the answer has ended",
		file:  "upstream/outcome.go", edits: []edit{{"	a.seat.health.began(a.seat.pass, now)\n", "	a.seat.health.began(a.seat.pass, now)\n	a.seat.leaveGate()\n"}},
		in: "upstream", run: "^TestAPlaceIsHeldUntilTheAnswersBodyHasEnded$",
	},
	{
		guard: "router: what an answer says of its vendor is known before its place is given back",
		file:  "upstream/outcome.go", edits: []edit{{"	a.seat.gauge.abandoned(took)\n", "	a.seat.leaveGate()\n	a.seat.inside = false\n	_ = a.closeBody()\n	a.seat.gauge.abandoned(took)\n"}},
		in: "upstream", run: "^TestWhatAnAnswerSaysOfItsVendorIsKnownBeforeItsPlaceIsGivenBack$",
	},
	{
		guard: "router: a test of a channel does not count against it",
		file:  "upstream/outcome.go", edits: []edit{{"		if !a.seat.test {\n			a.blame(e, now)\n		}\n", "		a.blame(e, now)\n"}},
		in: "upstream", run: "^TestATestSaysNothingOfTheChannelWhateverComesOfIt$",
	},
	{
		guard: "router: what a test of a channel gets does not count for it",
		file:  "upstream/outcome.go", edits: []edit{{"	if !a.seat.test {\n		if a.seat.last", "	{\n		if a.seat.last"}},
		in: "upstream", run: "^TestATestSaysNothingOfTheChannelWhateverComesOfIt$",
	},
	{
		guard: "drivers: a vendor's link does not lead inside by its name",
		file:  "upstream/internal/httpdo/link.go", edits: []edit{{", ControlContext: guard}", "}"}},
		in: "upstream/dashscope", run: "^TestALinkByANameThatLeadsInsideIsNotDialled$",
	},
	{
		guard: "drivers: a vendor's link does not lead inside by its address",
		file:  "upstream/internal/httpdo/link.go", edits: []edit{{"	if err := reachable(ctx, at); err != nil {", "	if err := reachable(ctx, at); false {"}},
		in: "upstream/dashscope", run: "^TestWhereALinkMayLeadIsDecidedByTheAddressThatItIsDialledTo$",
	},
	{
		guard: "drivers: a proxy's refusal is the operator's affair",
		file:  "upstream/failure.go", edits: []edit{{"Fatal: accounts[status] || astray[status],", "Fatal: accounts[status],"}},
		in: "upstream/openai", run: "^TestOfAllStatusesOnlyTheCallersOwnFaultIsTheirs$",
	},
	{
		guard: "router: calls a minute",
		file:  "upstream/pace.go", edits: []edit{{"return p == nil || p.tokens.AllowN(now, 1)", "return true"}},
		in: "upstream", run: "^TestNoMoreCallsBeginInAMinuteThanTheVendorTakes$",
	},
}
