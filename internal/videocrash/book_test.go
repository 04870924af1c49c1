//go:build unix

package videocrash

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/tollhouse-ai/gateway/fault"
)

// submission is a video that was asked for.
type submission struct {
	n                int
	kind             kind
	seconds          int64
	keyed, hooked    bool
	pending, running int // answers of the vendor's before its last word

	sent     int    // how often it was asked for
	accepted string // the task's id, as it was told
	lost     string // the same, where it was told with an error
	refused  bool   // it was told so
}

// book is what the client of one database knows. It is safe for concurrent use.
type book struct {
	mu       sync.Mutex
	dice     *rand.Rand
	asked    []*submission
	problems []string
	codes    map[fault.Code]int
}

func newBook(dice *rand.Rand) *book { return &book{dice: dice, codes: map[fault.Code]int{}} }

func (b *book) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(format, args...)
}

func (b *book) add(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// find is a submission by its number.
func (b *book) find(n int) *submission {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 1 || n > len(b.asked) {
		b.add("there is no submission %d", n)
		return &submission{}
	}
	return b.asked[n-1]
}

// next is a new submission, or one of the last few that have a key once more.
func (b *book) next(hook string) command {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.again()
	if s == nil {
		s = &submission{
			n: len(b.asked) + 1, kind: b.kind(), seconds: 2 + b.dice.Int64N(14), keyed: b.dice.IntN(2) == 0, hooked: b.dice.IntN(4) > 0,
			pending: b.dice.IntN(2), running: b.dice.IntN(2),
		}
		b.asked = append(b.asked, s)
	}
	s.sent++
	c := command{N: s.n, Seconds: s.seconds}
	if s.keyed {
		c.Key = fmt.Sprint("key-", s.n)
	}
	if s.hooked {
		c.Hook = fmt.Sprint(hook, s.n)
	}
	return c
}

// again is a submission that its client may repeat; nil for none.
func (b *book) again() *submission {
	const last = 12
	if len(b.asked) < last || b.dice.IntN(3) > 0 {
		return nil
	}
	s := b.asked[len(b.asked)-1-b.dice.IntN(last)]
	if !s.keyed {
		return nil
	}
	return s
}

func (b *book) kind() kind {
	n := b.dice.IntN(100)
	for _, k := range kinds {
		if n -= k.share; n < 0 {
			return k
		}
	}
	return kinds[0]
}

// hear notes an answer.
func (b *book) hear(e event) {
	s := b.find(e.N)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.codes[e.Code]++
	switch {
	case e.Code == "" && e.Task != "" && s.kind.name == lostKind && s.sent > 1 && (s.lost == "" || s.lost == e.Task):
		s.lost = e.Task
	case e.Code == "" && e.Task != "" && s.kind.name != lostKind && s.kind.ends != "" && (s.accepted == "" || s.accepted == e.Task):
		s.accepted = e.Task
	case e.Code == fault.RequestTimeout && s.kind.name == lostKind && e.Task != "" && (s.lost == "" || s.lost == e.Task):
		s.lost = e.Task
	case e.Code == "InvalidParameter" && s.kind.name == refusedKind:
		s.refused = true
	case e.Code == fault.IdempotencyConflict && s.keyed && s.sent > 1:
	default:
		b.add("submission %+v was answered with %+v", *s, e)
	}
}
