package mutation

// inLoad are the guards of a gateway that carries much.
var inLoad = []mutation{
	{
		guard: "load: a gateway that is short of memory takes no new calls",
		file:  "admission.go", edits: []edit{{"	if g.door.memory.pressed(g.options.Now()) {", "	if g.door.memory.pressed(g.options.Now()) && p == nil {"}},
		in: ".", run: "^TestNewCallsAreRefusedWhileMemoryIsShortAndStreamsGoOn$",
	},
	{
		guard: "load: a collector that does not keep up makes memory short",
		file:  "pressure.go", edits: []edit{{"held-limit > limit/32 {", "held-limit > limit/32 && held < 0 {"}},
		in: ".", run: "^TestACollectorThatDoesNotKeepUpMakesMemoryShort$",
	},
	{
		guard: "load: what was awaited is charged",
		file:  "stream.go", edits: []edit{{"		s.receive()\n		s.hungUp()\n", "		s.hungUp()\n"}},
		in: ".", run: "^TestAnEventThatWasAwaitedAndNotTakenIsCharged$",
	},
	{
		guard: "load: a body gets no more memory than is left",
		file:  "admission.go", edits: []edit{{"d.bodies.Take(x.principal.Account, n, d.room())", "d.bodies.Take(x.principal.Account, n, d.most)"}},
		in: ".", run: "^TestALargeBodyGetsNoMoreThanTheMemoryThatIsLeft$",
	},
	{
		guard: "load: a stream's request is weighed no more",
		file:  "stream.go", edits: []edit{{"		s.c.x.unweigh()\n", ""}},
		in: ".", run: "^TestAStreamThatHasBegunKeepsNothingOfItsRequest$",
	},
	{
		guard: "load: an accepted attempt lets go of what it asked",
		file:  "upstream/outcome.go", edits: []edit{{"	a.call = nil\n", ""}},
		in: ".", run: "^TestAStreamThatHasBegunKeepsNothingOfItsRequest$",
	},
	{
		guard: "load: what was awaited is given next",
		file:  "accept.go", edits: []edit{{"		return h.event, h.err\n", "		return e.reader.Next()\n"}},
		in: ".", run: "^TestAStreamThatIsAwaitedSaysAndCostsTheSameWhereverItIsCut$",
	},
	{
		guard: "load: a call that ends while its stream is awaited is settled",
		file:  "stream.go", edits: []edit{{"	defer s.leave()\n	s.c.events.await()", "	s.c.events.await()"}},
		in: ".", run: "^TestACallThatEndsWhileItsStreamIsAwaitedIsSettled$",
	},
	{
		guard: "load: who waits for a crowd's stream does nothing that wants stack",
		file:  "server/crowd.go", edits: []edit{{"apart(func() { x.err = x.stream.next() })", "x.err = x.stream.next()"}},
		in: "server", run: "^TestTheGoroutinesOfAStreamInACrowdKeepLittleStack$",
	},
	{
		guard: "load: a panic in a crowd is told, not lost",
		file:  "server/crowd.go", edits: []edit{{"		panic(p)\n", ""}},
		in: "server", run: "^TestAPanicInACrowdIsTheHandlersOwn$",
	},
	{
		guard: "load: large answers find room or wait",
		file:  "stowage.go", edits: []edit{{"s.used+n <= s.room() {", "s.used+n > 0 {"}},
		in: ".", run: "^TestLargeAnswersThatFindNoRoomAreReadWhenThereIsSome$",
	},
	{
		guard: "load: the oldest of the large answers goes on",
		file:  "stowage.go", edits: []edit{{"s.reading[0] == t || ", ""}},
		in: ".", run: "^TestTheOldestOfTheLargeAnswersAlwaysGoesOn$",
	},
	{
		guard: "load: an answer that nobody gets takes no room",
		file:  "accept.go", edits: []edit{{"err == nil {\n		kept = len(body)", "err != nil {\n		kept = buf.Len()"}},
		in: ".", run: "^TestAnAnswerThatIsNoneKeepsNoRoom$",
	},
	{
		guard: "load: an answer that was read is in nobody's way",
		file:  "stowage.go", edits: []edit{{"slices.Index(s.reading, t); i >= 0 {", "slices.Index(s.reading, t); i >= 0 && kept == 0 {"}},
		in: ".", run: "^TestAnAnswerThatWasReadIsInNobodysWay$",
	},
}
