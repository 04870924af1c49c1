package storetest

import (
	"net/http"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
)

// answering are the rules of answers that are settled with their request.
var answering = map[string]func(bench){
	"ACaptureKeepsTheAnswerAndAReleaseFreesTheKeyAlsoAfterACrash": keepsOrFrees,
	"ASettlementThatFailsKeepsNoAnswerAndFreesNoKey":              keepsNothing,
	"AKeyWhoseRequestDiedIsFreeAfterTheCrash":                     freeAfterCrash,
	"AnotherContentUnderTheSameKeyIsAConflict":                    otherContent,
	"ASecondSettlementDoesNotReplaceTheAnswer":                    notReplaced,
}

func onceKey(key string) idempotency.Key {
	return idempotency.Key{Account: "acme", Operation: "image", Key: key}
}

// claim begins a request with an Idempotency-Key of its own name.
func (b bench) claim(request string, n int64) billing.Hold {
	b.t.Helper()
	b.wantClaim(request, request)
	return b.reserve(request, n)
}

// wantClaim finds a key free, and takes it for a request.
func (b bench) wantClaim(key, request string) {
	b.t.Helper()
	if a, err := b.Open(b.t.Context(), onceKey(key), idempotency.Content{1}, request); a != nil || err != nil {
		b.t.Fatalf("the key %q is not free: %+v, %v", key, a, err)
	}
}

// wantTaken finds a key in the hands of a request that runs.
func (b bench) wantTaken(key string) {
	b.t.Helper()
	a, err := b.Open(b.t.Context(), onceKey(key), idempotency.Content{1}, "a later one")
	if a != nil || !fault.Is(err, fault.IdempotencyConflict) {
		b.t.Fatalf("the key %q: %+v, %v", key, a, err)
	}
}

func (b bench) wantAnswer(key, body string, r billing.Receipt) {
	b.t.Helper()
	got, err := b.Open(b.t.Context(), onceKey(key), idempotency.Content{1}, "a later one")
	b.ok(err)
	want := &idempotency.Answer{Header: http.Header{"X-Body": {body}}, Body: []byte(body), Receipt: r}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Fatalf("the answer of %q (-want +got):\n%s", key, diff)
	}
}

func record(key, body string) idempotency.Record {
	return idempotency.Record{
		Key: onceKey(key), Content: idempotency.Content{1}, Header: http.Header{"X-Body": {body}}, Body: []byte(body),
	}
}

func keepsOrFrees(b bench) {
	b.account("acme", 10)
	kept, freed := b.claim("kept", 2), b.claim("freed", 3)
	b.wantTaken("kept")
	b.wantTaken("freed")
	r, err := b.Settle(b.t.Context(), kept, images(2), billing.Outcome{Reason: billing.ReasonComplete}, record("kept", "body"))
	b.ok(err)
	_, err = b.Settle(b.t.Context(), freed, billing.Usage{}, billing.Outcome{Reason: billing.ReasonUpstreamFailed}, record("freed", "no"))
	b.ok(err)
	b.wantAnswer("kept", "body", r)
	b = b.crash()
	b.wantAnswer("kept", "body", r)
	b.wantClaim("freed", "the second")
	b.wantBalance(8, 0)
}

func keepsNothing(b bench) {
	b.account("acme", 10)
	h := b.claim("r1", 2)
	_, err := b.Settle(b.t.Context(), h, images(-1), record("r1", "body"))
	b.wantCode(err, fault.InternalError)
	b.wantTaken("r1")
	r, err := b.Settle(b.t.Context(), h, images(1), record("r1", "another"))
	b.ok(err)
	b.wantAnswer("r1", "another", r)
}

func freeAfterCrash(b bench) {
	b.account("acme", 10)
	b.claim("call", 2)
	stream := b.claim("stream", 2)
	b.ok(b.Extend(b.t.Context(), stream, images(1), 0))
	b = b.crash()
	b.wantBalance(9, 0)
	b.wantClaim("call", "second call")
	b.wantClaim("stream", "second stream")
}

func notReplaced(b bench) {
	b.account("acme", 10)
	h := b.claim("r1", 2)
	r, err := b.Settle(b.t.Context(), h, images(1), record("r1", "first"))
	b.ok(err)
	again, err := b.Settle(b.t.Context(), h, images(2), record("r1", "second"))
	if err != nil || again != r {
		b.t.Errorf("got %+v, %v", again, err)
	}
	b.wantAnswer("r1", "first", r)
}

func otherContent(b bench) {
	b.account("acme", 10)
	h := b.claim("r1", 2)
	wantConflict := func(when string) {
		b.t.Helper()
		a, err := b.Open(b.t.Context(), onceKey("r1"), idempotency.Content{2}, "r2")
		if f := fault.From(err); a != nil || f == nil || f.Code != fault.IdempotencyConflict || f.Retry != fault.RetryNo {
			b.t.Errorf("%s: %+v, %v", when, a, err)
		}
	}
	wantConflict("while the first runs")
	_, err := b.Settle(b.t.Context(), h, images(1), record("r1", "body"))
	b.ok(err)
	wantConflict("after it")
}
