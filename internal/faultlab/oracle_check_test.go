package faultlab

import (
	"context"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/store/memory"
)

func TestACostIsExactAndRoundedUpOnce(t *testing.T) {
	for name, c := range map[string]struct {
		used tally
		row  row
		want int64
	}{
		"even":                    {tally{billing.Input: 1_000_000}, row{{Unit: billing.Input, Amount: "0.15"}}, 150_000_000},
		"the least":               {tally{billing.Input: 1}, row{{Unit: billing.Input, Amount: "0.000001"}}, 1},
		"two halves are one":      {tally{billing.Input: 1, billing.Output: 1}, row{{Unit: billing.Input, Amount: "0.0005"}, {Unit: billing.Output, Amount: "0.0005"}}, 1},
		"nothing":                 {tally{}, row{{Unit: billing.Input, Amount: "5.00"}}, 0},
		"a unit without a price":  {tally{billing.Output: 7}, row{{Unit: billing.Input, Amount: "5.00"}}, 0},
		"pictures one by one":     {tally{billing.Image: 3}, row{{Unit: billing.Image, Amount: "0.02"}}, 60_000_000},
		"seconds one by one":      {tally{billing.Second: 2}, row{{Unit: billing.Second, Variant: "720p", Amount: "0.10"}}, 200_000_000},
		"characters by a million": {tally{billing.Character: 2}, row{{Unit: billing.Character, Amount: "15.00"}}, 30_000},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := c.used.cost(c.row); err != nil || got != c.want {
				t.Errorf("%d nano-units (%v), want %d", got, err, c.want)
			}
		})
	}
	if _, err := (tally{}).cost(row{{Unit: billing.Input, Amount: "much"}}); err == nil {
		t.Error("an amount that is no number has a cost")
	}
}

func TestAReportSpeaksForWhatCameBeforeIt(t *testing.T) {
	const four = 16 // quarter tokens
	told := func(n int64) *report {
		return &report{input: count{known: true, n: 20}, output: count{known: true, n: n}}
	}
	c := &Case{Kind: Chat, Prompt: "say four words", MaxTokens: 50}
	for name, row := range map[string]struct {
		marks   []mark
		in, out int64
	}{
		"no report":            {[]mark{{quarters: four}, {quarters: four}}, 8, 8},
		"a report at the end":  {[]mark{{quarters: four}, {report: told(3)}}, 20, 3},
		"twice":                {[]mark{{quarters: four}, {report: told(3)}, {report: told(3)}}, 20, 3},
		"a smaller one later":  {[]mark{{quarters: four}, {report: told(9)}, {report: told(3)}}, 20, 9},
		"text after it":        {[]mark{{report: told(3)}, {quarters: four}}, 20, 4},
		"less text than told":  {[]mark{{quarters: four, report: told(30)}, {quarters: four}}, 20, 30},
		"nothing":              {nil, 8, 0},
		"what cannot be":       {[]mark{{quarters: four, report: &report{output: count{odd: true}}}}, 8, 4},
		"what nobody can have": {[]mark{{report: &report{output: count{known: true, n: absurdCount, odd: true}}}}, 8, 50},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.talkTally(row.marks)
			if got[billing.Input] != row.in || got[billing.Output] != row.out {
				t.Errorf("%v, want %d and %d", got, row.in, row.out)
			}
		})
	}
}

func TestACaseIsDrawnTheSameAgain(t *testing.T) {
	for n := range 300 {
		c := randomCase(7, n)
		if again := randomCase(7, n); c.String() != again.String() {
			t.Fatalf("request %d is made as\n%s\nand as\n%s", n, c, again)
		}
	}
	if randomCase(7, 1).String() == randomCase(8, 1).String() {
		t.Error("two seeds make the same case")
	}
}

// greedy is a ledger that takes one token too many, once in a while.
type greedy struct {
	memory.Ledger
	calls int
}

func (g *greedy) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	if g.calls++; g.calls%50 == 0 && u.Output > 0 {
		u.Output++
	}
	return g.Ledger.Settle(ctx, h, u, with...)
}

func TestACustomerWhoPaysATokenTooMuchIsFoundWithTheScript(t *testing.T) {
	rep := inBubble(t, func() (*Report, error) {
		return Simulate(Options{Seed: 3, Requests: 200, Ledger: &greedy{Ledger: memory.NewLedger(memory.LedgerOptions{})}, Calm: true, Clients: 1})
	})
	if len(rep.Problems) == 0 || len(rep.Failed) == 0 {
		t.Fatal("nothing was found")
	}
	script := randomCase(3, rep.Failed[0]).String()
	if first := rep.Problems[0]; !strings.Contains(first, "seed 3 request ") || !strings.Contains(strings.Join(rep.Problems, "\n"), script) {
		t.Errorf("it is told as %s", first)
	}
}

func TestEveryTroubleAndEveryRuleIsMet(t *testing.T) {
	longtest.Require(t) // the rarest trouble needs thousands of requests
	rep := simulate(t, Options{Seed: 4, Requests: 3_000})
	for _, risk := range risks {
		if n := rep.Troubles[risk.trouble]; n*200 < risk.chance*rep.Attempts/1000 {
			t.Errorf("%q happened %d times in %d attempts", risk.trouble, n, rep.Attempts)
		}
	}
	for _, rule := range []string{
		ruleUnasked, ruleFailed, ruleComplete, ruleCut, ruleGone, ruleGoneParts, ruleVideo, ruleNoVideo,
	} {
		if rep.Rules[rule] == 0 {
			t.Errorf("no request ended by the rule %q", rule)
		}
	}
	for _, k := range Kinds() {
		if rep.Kinds[k] == 0 {
			t.Errorf("no request was of the kind %q", k)
		}
	}
}
