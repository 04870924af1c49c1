package enemy

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

var (
	seed     = flag.Uint64("seed", 0, "of the hour; 0 means a fixed one and a fresh one")
	requests = flag.Int("requests", 400, "of the hostile tenants in each hour")
	class    = flag.String("class", "", "the only class that is played")
	only     = flag.Int("only", 0, "the only request that is played")
)

// hour plays an hour in virtual time. No goroutine is left behind: the bubble
// would not end.
func hour(t *testing.T, o Options) *Report {
	t.Helper()
	var rep *Report
	synctest.Test(t, func(t *testing.T) {
		var err error
		if rep, err = Play(o); err != nil {
			t.Fatal(err)
		}
	})
	return rep
}

// tell fails with what does not hold.
func tell(t *testing.T, rep *Report) {
	t.Helper()
	if len(rep.Problems) > 0 {
		t.Error(rep)
		return
	}
	t.Log(rep)
}

func TestNoTenantCostsMoreThanItPaysOrHarmsAnother(t *testing.T) {
	seeds := []uint64{1, uint64(time.Now().UnixNano())}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, s := range seeds {
		rep := hour(t, Options{Seed: s, Requests: *requests, Class: *class, Only: *only})
		tell(t, rep)
		if *class == "" && *only == 0 && rep.Statuses[200] < *requests/10 {
			t.Errorf("only %d of %d requests were answered: the hour shows nothing", rep.Statuses[200], rep.Requests)
		}
	}
}

func TestNoClassOfAttackByItself(t *testing.T) {
	if *class != "" || *only != 0 {
		t.Skip("one class is played")
	}
	for _, c := range Classes() {
		t.Run(c, func(t *testing.T) {
			tell(t, hour(t, Options{Seed: max(*seed, 1), Requests: 40, Class: c}))
		})
	}
}

// TestTheLabFindsAGatewayThatChargesTooLittle has the gateway ask for nine tenths
// of the vendors' prices.
func TestTheLabFindsAGatewayThatChargesTooLittle(t *testing.T) {
	rep := hour(t, Options{Seed: 1, Requests: 40, Class: "media", discount: 10})
	if rep.Found["media"] == 0 || rep.Found["sum"] == 0 {
		t.Error(rep)
	}
}

// TestTheGrammarDrawsEveryMemberOfEveryEndpoint compares the names of what was
// drawn with those that the document has, at every depth.
func TestTheGrammarDrawsEveryMemberOfEveryEndpoint(t *testing.T) {
	g, err := newGrammar()
	if err != nil {
		t.Fatal(err)
	}
	for i := range endpoints {
		e := &endpoints[i]
		drawn := map[string]bool{}
		const enough = 4_000
		for n := range enough {
			for _, o := range objects(newDraw(g, 1, n).body(e)) {
				for _, m := range o.members {
					drawn[m.name] = true
				}
			}
		}
		for _, name := range g.names(schema{"$ref": "#/components/schemas/" + e.schema}, map[string]bool{}) {
			if !drawn[name] {
				t.Errorf("%s: %q was never drawn", e.schema, name)
			}
		}
	}
}

func TestTheGatewayAndTheVendorsHaveTheSamePrices(t *testing.T) {
	list, err := priceList(0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 7
	for model, row := range prices {
		for _, r := range row {
			u := map[billing.Unit]billing.Usage{
				billing.Input: {Input: n}, billing.CachedInput: {CachedInput: n}, billing.CacheWrite: {CacheWrite: n}, billing.Output: {Output: n},
				billing.ImageInput: {ImageInput: n}, billing.ImageOutput: {ImageOutput: n}, billing.Image: {Images: n},
				billing.Second: {Seconds: n, Variant: r.variant}, billing.Character: {Characters: n},
			}[r.unit]
			if sum, err := list.Price(model).Cost(u); err != nil || sum != cost(model, r.unit, r.variant, n) {
				t.Errorf("%d %s of %s cost %s at the gateway (%v) and %s at the vendor", n, r.unit, model, sum, err, cost(model, r.unit, r.variant, n))
			}
		}
	}
}
