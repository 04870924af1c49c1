//go:build unix

package crashtest

import (
	"fmt"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
)

// book is what the client of one database knows: what was asked for, what was
// acknowledged, and so what has to be there. It is safe for concurrent use
// while children speak.
type book struct {
	mu       sync.Mutex
	figures  *figures
	postgres bool
	problems []problem

	accounts map[string]*account
	credits  map[string]*grant   // by reference
	given    []*grant            // in the order in which they were asked for
	running  map[string]*history // requests since the last audit
	ended    map[string]billing.Receipt
	kept     map[string]request // ended requests with an answer
	posted   map[string]bool    // ended requests that the journal has
	late     []request          // ended requests, for a second settlement
	read     int64              // the last entry of the journal that was read
}

// problem is a way in which the database and the book disagree.
type problem struct{ kind, text string }

// The kinds of a problem.
const (
	lost     = "lost"     // acknowledged, and not there
	doubled  = "doubled"  // there twice
	leftOpen = "open"     // not ended by the recovery
	wrong    = "wrong"    // neither what was asked for nor nothing
	stranger = "stranger" // the store said what it must not say
)

// account is what a customer has.
type account struct {
	asks       int  // calls that asked for it
	refused    int  // those that were told that it is there
	done, seen bool // acknowledged; in the journal
	charged    int64
}

// grant is a credit.
type grant struct {
	credit
	done, seen bool
}

// answered is what is known of a call to the store.
type answered int

const (
	unasked answered = iota
	asked            // and no answer: it may have happened
	yes
	no
)

// history is a request as its client knows it.
type history struct {
	request
	claim, hold, settle answered
	amount, used        int64
	keep                bool
	marks               []mark
	receipt             billing.Receipt // the acknowledged one
}

// mark is a checkpoint.
type mark struct {
	n, more int64
	state   answered
}

func newBook(f *figures, postgres bool) *book {
	return &book{
		figures: f, postgres: postgres, accounts: map[string]*account{}, credits: map[string]*grant{},
		running: map[string]*history{}, ended: map[string]billing.Receipt{}, kept: map[string]request{},
		posted: map[string]bool{},
	}
}

func (b *book) problem(kind, format string, args ...any) {
	b.problems = append(b.problems, problem{kind, fmt.Sprintf(format, args...)})
}

// hear notes what a child says.
func (b *book) hear(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case created:
		b.create(e)
	case credited:
		b.credit(e)
	case claimed, reserved, extended, settled:
		b.request(e)
	case repeated:
		b.repeat(e)
	case broken, unnamed:
		b.problem(stranger, "%s %s %s", e.Kind, e.ID, e.Error)
	}
}

// answer is the state of a call after an event.
func (e event) answer() answered {
	switch {
	case !e.Done:
		return asked
	case e.Code == "":
		return yes
	}
	return no
}

func (b *book) create(e event) {
	a := b.accounts[e.ID]
	if a == nil {
		a = &account{}
		b.accounts[e.ID] = a
	}
	switch e.answer() {
	case yes:
		if a.done {
			b.problem(doubled, "account %s was created twice", e.ID)
		}
		a.done = true
	case no:
		a.refused++
	default:
		a.asks++
	}
}

func (b *book) credit(e event) {
	c := b.credits[e.ID]
	if c == nil {
		c = &grant{credit: credit{e.Account, e.ID, e.N}}
		b.credits[e.ID] = c
		b.given = append(b.given, c)
	}
	if e.answer() == yes {
		c.done = true
		b.figures.add(credited, 1)
	}
}

func (b *book) request(e event) {
	h := b.running[e.ID]
	if h == nil {
		h = &history{request: request{e.ID, e.Account}}
		b.running[e.ID] = h
	}
	state := e.answer()
	switch e.Kind {
	case claimed:
		h.claim = state
	case reserved:
		h.hold, h.amount = state, e.N
	case extended:
		if state == asked {
			h.marks = append(h.marks, mark{n: e.N, more: e.More})
		}
		h.marks[len(h.marks)-1].state = state
	case settled:
		h.settle, h.used = state, e.N
		if state == asked {
			h.keep = e.Keep
		} else {
			h.receipt = *e.Receipt
		}
	}
	if state == yes {
		b.figures.add(e.Kind, 1)
	}
}

// repeat compares the receipt of a second settlement with that of the first.
func (b *book) repeat(e event) {
	if !e.Done {
		return
	}
	first, ok := b.ended[e.ID]
	if h := b.running[e.ID]; h != nil && h.settle == yes {
		first, ok = h.receipt, true
	}
	if !ok || *e.Receipt != first {
		b.problem(doubled, "the second settlement of %s gave %+v, the first %+v", e.ID, *e.Receipt, first)
	}
	b.figures.add(repeated, 1)
}

// end is a way in which a request may have ended.
type end struct {
	used, held int64
	reason     string
}

// ends are the ways in which a request may have ended; none means that it is
// not there. Which of them it was depends on how far the process came.
func (b *book) ends(h *history) (ends []end, may bool) {
	switch h.hold {
	case unasked, no:
		return nil, true
	case asked:
		return []end{{0, h.amount, billing.ReasonInternal}}, true
	}
	last := end{0, h.amount, billing.ReasonInternal}
	before := last
	for _, m := range h.marks {
		if m.state != no {
			before, last = last, end{m.n, last.held + m.more, billing.ReasonInternal}
		}
	}
	complete := end{h.used, last.held, billing.ReasonComplete}
	switch {
	case h.settle == yes && !b.postgres:
		return []end{complete}, false
	case h.settle != unasked: // or it was settled by its checkpoint
		return []end{complete, last}, false
	case len(h.marks) > 0 && h.marks[len(h.marks)-1].state == asked:
		return []end{last, before}, false
	}
	return []end{last}, false
}

// is reports whether a receipt tells of this end.
func (e end) is(h *history, r billing.Receipt) bool {
	status := billing.Captured
	if e.used == 0 {
		status = billing.Released
	}
	return r.ID == h.ID && r.Account == h.Account && r.Status == status && r.Reason == e.reason &&
		r.Usage == images(e.used) && r.Hold == units(e.held) && r.Charge == units(e.used) && r.Overrun == 0
}
