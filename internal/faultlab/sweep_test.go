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

// steady is a case of a kind in which nothing goes wrong, small enough for every
// byte and every moment of it to be tried.
func steady(k Kind, line string) *Case {
	answer := Answer{
		Words: []string{"one ", "two ", "水 ", "four"}, Sizes: []int{20, 15}, Input: 20, Cached: 3, Output: 9,
		Line: line, Gap: 10 * time.Millisecond,
	}
	if k == Image || k == Edit {
		answer.Input, answer.Cached, answer.Output = 12, 0, 300
	}
	if k == Rank {
		answer.Input = 1
	}
	c := &Case{
		Kind: k, Stream: traits[k].streams > 0, Prompt: "say four words", MaxTokens: 100, ShowUsage: true,
		Pictures: 1, Partials: 2, Texts: 4, Seconds: 5,
	}
	if k == Speech {
		c.Prompt = spoken(25) // three parts
	}
	cp := Copy{}
	for range c.parts() {
		attempt := attemptScript{Connect: time.Millisecond, Wait: 10 * time.Millisecond, Answer: answer}
		cp.Attempts = append(cp.Attempts, []attemptScript{attempt, attempt, attempt})
	}
	c.Copies = []Copy{cp}
	return c
}

// streamed are the kinds whose answers come by and by.
func streamed() []Kind {
	return []Kind{Chat, ChatByMessages, Messages, MessagesByChat, Responses, ResponseByChat, Image, Edit, Speech}
}

// sweep plays cases that are made beforehand, all of them, with a pause before each:
// without one the channels are at their limits after a hundred, and refuse the rest.
func sweep(t *testing.T, cases []*Case) {
	t.Helper()
	for i, c := range cases {
		c.Number, c.Payer, c.Pause = i, i%rich, time.Second
	}
	rep := simulate(t, Options{Seed: 1, Requests: len(cases), Clients: 16, Calm: true, Cases: func(n int) *Case { return cases[n] }})
	if rep.Requests < len(cases) {
		t.Errorf("%d of %d cases were played", rep.Requests, len(cases))
	}
	if n := rep.Rules[ruleUnasked]; n*10 > rep.Requests {
		t.Errorf("of %d requests %d reached no vendor: the sweep shows little", rep.Requests, n)
	}
}

// TestAStreamCutAtEveryByteCostsWhatWasDelivered has each form of line end, and a
// transfer that ends as well as one that breaks.
func TestAStreamCutAtEveryByteCostsWhatWasDelivered(t *testing.T) {
	for _, k := range streamed() {
		t.Run(string(k), func(t *testing.T) {
			var cases []*Case
			for _, form := range []struct {
				line    string
				trouble Trouble
			}{{"", Ends}, {"crlf", Ends}, {"cr", Ends}, {"", Breaks}} {
				if form.line != "" && !slices.Contains([]Kind{Chat, Messages, Responses}, k) {
					continue
				}
				whole := len(answerOf(steady(k, form.line), &steady(k, form.line).Copies[0].Attempts[0][0], 0, "").data)
				step := 1
				if form.line != "" || form.trouble != Ends || k.translated() {
					step = 3 // the lengths of events differ: each place within them is met
				}
				for at := 1; at <= whole; at += step {
					c := steady(k, form.line)
					for part := range c.Copies[0].Attempts {
						for n := range c.Copies[0].Attempts[part] {
							attempt := &c.Copies[0].Attempts[part][n]
							if part == len(c.Copies[0].Attempts)-1 {
								attempt.Trouble, attempt.Byte = form.trouble, at
							}
						}
					}
					cases = append(cases, c)
				}
			}
			sweep(t, cases)
		})
	}
}

// TestAClientGoneAtAnyMomentPaysForWhatHadCome leaves between any two pieces, and
// closes the answer after any number of reads.
func TestAClientGoneAtAnyMomentPaysForWhatHadCome(t *testing.T) {
	const moments = 60
	for _, k := range append(streamed(), Embeddings, Rank, Judge, Print) {
		t.Run(string(k), func(t *testing.T) {
			var cases []*Case
			for n := range moments {
				c := steady(k, "")
				c.Copies[0].Client = Client{Leaves: AtTime, At: time.Duration(n)*3*time.Millisecond + time.Microsecond/2}
				closes := steady(k, "")
				closes.Copies[0].Client = Client{Leaves: Closing, Reads: n / 4}
				late := steady(k, "")
				late.Copies[0].Client = Client{Leaves: AtTime, At: time.Duration(n)*4*time.Millisecond + time.Microsecond/2, Slow: 17 * time.Millisecond}
				cases = append(cases, c, closes, late)
			}
			sweep(t, cases)
		})
	}
}

// TestAPartOfSpeechWithoutAudioIsNoEnd: the end of an empty answer was once taken
// for the end of the whole, which was then paid for.
func TestAPartOfSpeechWithoutAudioIsNoEnd(t *testing.T) {
	var cases []*Case
	for part := range steady(Speech, "").Copies[0].Attempts {
		for _, trouble := range []Trouble{Empty, Garbage, ErrorBody, Fails, Unreachable} {
			c := steady(Speech, "")
			for n := range c.Copies[0].Attempts[part] {
				c.Copies[0].Attempts[part][n].Trouble, c.Copies[0].Attempts[part][n].Status = trouble, 502
			}
			cases = append(cases, c)
		}
	}
	sweep(t, cases)
}

// TestWhoLeavesWhileSomePartsAreSentPaysForAll leaves at every moment of a list.
func TestWhoLeavesWhileSomePartsAreSentPaysForAll(t *testing.T) {
	const parts = 4
	var cases []*Case
	for n := range 60 {
		c := steady(Embeddings, "")
		c.Texts = parts * textsAtOnce
		attempt := c.Copies[0].Attempts[0][0]
		c.Copies[0].Attempts = nil
		for part := range parts {
			late := attempt
			late.Connect = time.Duration((part*7+n)%parts) * 10 * time.Millisecond
			late.Wait = 25 * time.Millisecond
			c.Copies[0].Attempts = append(c.Copies[0].Attempts, []attemptScript{late, late, late})
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
	for _, file := range []string{"oracle_test.go", "script_test.go", "run_test.go"} {
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
