package mutation

// inAccess are the guards of keys and limits.
var inAccess = []mutation{
	{
		guard: "a disabled key is refused",
		file:  "auth/authenticator.go", edits: []edit{{"if k.Disabled {", "if false {"}},
		in: "auth", run: "^TestADisabledKeyIsForbiddenAtOnce$",
	},
	{
		guard: "an expired key is refused",
		file:  "auth/authenticator.go", edits: []edit{{"if k.expired(clock(a.Now)) {", "if false {"}},
		in: "auth", run: "^TestAKeyExpiresAtItsTime$",
	},
	{
		guard: "a key is for the models on its list",
		file:  "auth/auth.go", edits: []edit{{"return len(p.Models) == 0 ||", "return true ||"}},
		in: "auth", run: "^TestAKeyMayUseItsModels$",
	},
	{
		guard: "the gateway looks at the list of models",
		file:  "call.go", edits: []edit{{"if !x.principal.MayUse(m.ID) {", "if false {"}},
		in: ".", run: "^TestTheOrderOfChecks$",
	},
	{
		guard: "the gateway asks the limiter before it looks at a request",
		file:  "exchange.go", edits: []edit{{"	return away(err)\n}\n\n// Principal is", "	return nil\n}\n\n// Principal is"}},
		in: "server", run: "^(TestTheOrderOfChecksOverHTTP|TestARateLimitShowsInHeaders)$",
	},
	{
		guard: "memory: requests per minute",
		file:  "auth/quota.go", edits: []edit{{"limit > 0 && q.requests > limit", "limit < 0"}},
		in: "auth", run: "^TestExactlyTheRequestsPerMinuteAreAdmitted$",
	},
	{
		guard: "memory: tokens per minute",
		file:  "auth/quota.go", edits: []edit{{"case tpm > 0 && tokens > 0 && q.tokens > tpm-tokens:", "case false:"}},
		in: "auth", run: "^TestExactlyTheTokensPerMinuteAreAdmitted$",
	},
	{
		guard: "memory: requests at once",
		file:  "auth/quota.go", edits: []edit{{"case slots > 0 && q.running >= slots:", "case slots < 0:"}},
		in: "auth", run: "^TestExactlyTheConcurrentRequestsAreAdmitted$",
	},
	{
		guard: "nodes: requests per minute",
		file:  "store/limits.go", edits: []edit{{"if q.limits.RPM > 0 && q.requests > q.limits.RPM {", "if q.limits.RPM < 0 {"}},
		in: "store", run: "^TestThreeNodesNeverAdmitA101stRequestInAMinute$", needs: postgres,
	},
	{
		guard: "nodes: tokens per minute",
		file:  "store/limits_quota.go", edits: []edit{{"WHERE excluded.tokens = 0 OR", "WHERE TRUE OR"}},
		in: "store", run: "^TestThreeNodesAdmitTheTokensOfOneMinute$", needs: postgres,
	},
	{
		guard: "nodes: requests at once",
		file:  "store/limits_quota.go", edits: []edit{{"AND until > {now}) < ?::bigint", "AND until > {now}) <= ?::bigint"}},
		in: "store", run: "^TestThreeNodesShareTheSlotsOfAKeyAndOfItsAccount$", needs: postgres,
	},
}
