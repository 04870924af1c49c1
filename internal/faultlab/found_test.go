package faultlab

import (
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAPartOfSpeechWithoutAudioIsNoEnd: the end of an empty answer was once taken
// for the end of the whole, which was then paid for.
func TestAPartOfSpeechWithoutAudioIsNoEnd(t *testing.T) {
	var cases []*Case
	for part := range steady(Speech, "").Copies[0].Tries {
		for _, trouble := range []Trouble{Empty, Garbage, ErrorBody, Fails, Unreachable} {
			c := steady(Speech, "")
			for n := range c.Copies[0].Tries[part] {
				c.Copies[0].Tries[part][n].Trouble, c.Copies[0].Tries[part][n].Status = trouble, 502
			}
			cases = append(cases, c)
		}
	}
	sweep(t, cases)
}

// TestWhoLeavesWhileSomePartsAreSentPaysForThose: whether anything was owed was
// once decided by the part that was told last that nobody waits.
func TestWhoLeavesWhileSomePartsAreSentPaysForThose(t *testing.T) {
	const parts = 4
	var cases []*Case
	for n := range 60 {
		c := steady(Embeddings, "")
		c.Texts = parts * textsAtOnce
		try := c.Copies[0].Tries[0][0]
		c.Copies[0].Tries = nil
		for part := range parts {
			late := try
			late.Connect = time.Duration((part*7+n)%parts) * 10 * time.Millisecond
			late.Wait = 25 * time.Millisecond
			c.Copies[0].Tries = append(c.Copies[0].Tries, []Try{late, late, late})
		}
		c.Copies[0].Client = Client{Leaves: AtTime, At: time.Duration(n)*time.Millisecond + time.Microsecond/2}
		cases = append(cases, c)
	}
	sweep(t, cases)
}

// TestTheOracleSharesNoCodeWithTheGateway looks at what its files import. The
// names of units and operations are all that they may have in common.
func TestTheOracleSharesNoCodeWithTheGateway(t *testing.T) {
	const ours = "github.com/tollhouse-ai/gateway/"
	names := []string{ours + "billing", ours + "upstream"}
	for _, file := range []string{"oracle.go", "count.go", "prices.go", "script.go", "speak.go", "make.go", "run.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil || strings.HasPrefix(path, strings.TrimSuffix(ours, "/")) && !slices.Contains(names, path) {
				t.Errorf("%s imports %s (%v)", file, path, err)
			}
		}
	}
}

// TestABadHourDoesNotBecomeThreeTimesTheLoad has every vendor fail: the judge
// counts the tries beyond the first.
func TestABadHourDoesNotBecomeThreeTimesTheLoad(t *testing.T) {
	var cases []*Case
	for n := range 600 {
		c := steady(Chat, "")
		c.Pause = time.Duration(n%40) * time.Second
		for i := range c.Copies[0].Tries[0] {
			c.Copies[0].Tries[0][i].Trouble, c.Copies[0].Tries[0][i].Status = Fails, 500
		}
		cases = append(cases, c)
	}
	sweep(t, cases)
}
