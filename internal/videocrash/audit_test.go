//go:build unix

package videocrash

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
)

// audit compares the database with what the client, the vendor and the receiver
// know, when all tasks have had their time. It reads the tables beside the
// store: a store that deceives itself would deceive its callers alike.
type audit struct {
	*book
	vendor   *vendor
	receiver *receiver
	ctx      context.Context
	db       *store.DB
	raw      *sql.DB

	tasks   map[string]*row // by id
	charged billing.Money
}

// row is a task as the database has it.
type row struct {
	id, request, upstream, hook string
	state                       video.State
	held                        bool

	made    *submission // whose it is; nil if nobody can tell
	entries int         // in the journal
	charge  billing.Money
	notices []string
	sent    int // notices that were delivered
}

func (a *audit) run() error {
	for _, part := range [...]func() error{a.read, a.money, a.notices, a.sums} {
		if err := part(); err != nil {
			return err
		}
	}
	a.ends()
	a.deliveries()
	a.answers()
	a.orders()
	return nil
}

// each reads the rows of a query.
func (a *audit) each(query string, scan func(*sql.Rows) error) error {
	rows, err := a.raw.QueryContext(a.ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// read reads the tasks, and finds whose they are.
func (a *audit) read() error {
	a.tasks = map[string]*row{}
	err := a.each("SELECT id, request_id, upstream_id, webhook_url, state, held FROM task", func(rows *sql.Rows) error {
		r := &row{}
		err := rows.Scan(&r.id, &r.request, &r.upstream, &r.hook, &r.state, &r.held)
		a.tasks[r.id] = r
		r.made = a.whose(r)
		return err
	})
	for _, s := range a.asked {
		for _, id := range []string{s.accepted, s.lost} {
			if r := a.tasks[id]; id != "" && (r == nil || r.made != nil && r.made != s) {
				a.problem("the task %s of the submission %+v is %+v", id, *s, r)
			} else if id != "" {
				r.made = s
			}
		}
	}
	return err
}

// whose is the submission that a task tells itself.
func (a *audit) whose(r *row) *submission {
	for _, mark := range []string{r.upstream, r.hook} {
		if n, err := strconv.Atoi(mark[strings.LastIndexAny(mark, "-/")+1:]); err == nil {
			return a.find(n)
		}
	}
	return nil
}

// money reads the receipts and the entries of the journal.
func (a *audit) money() error {
	of := map[string]*row{}
	for _, r := range a.tasks {
		of[r.request] = r
		receipt, err := a.db.Receipt(a.ctx, account, r.request)
		if err != nil {
			a.problem("the task %+v has no receipt: %v", *r, err)
		}
		r.charge = receipt.Charge
	}
	return a.each("SELECT reference, -customer FROM entry WHERE kind = 'capture'", func(rows *sql.Rows) error {
		var request string
		var charge billing.Money
		if err := rows.Scan(&request, &charge); err != nil {
			return err
		}
		a.charged += charge
		r := of[request]
		if r == nil || r.charge != charge {
			a.problem("an entry of %s for %s, whose task is %+v", charge, request, r)
			return nil
		}
		r.entries++
		return nil
	})
}

func (a *audit) notices() error {
	return a.each("SELECT id, task, state FROM notice", func(rows *sql.Rows) error {
		var id, task, state string
		if err := rows.Scan(&id, &task, &state); err != nil {
			return err
		}
		r := a.tasks[task]
		if r == nil {
			a.problem("the notice %s is of no task", id)
			return nil
		}
		r.notices = append(r.notices, id)
		if state == "sent" {
			r.sent++
		}
		return nil
	})
}

// sums are what has to be true of the ledger as a whole.
func (a *audit) sums() error {
	if err := a.db.Verify(a.ctx); err != nil {
		a.problem("Verify: %v", err)
	}
	b, err := a.db.Balance(a.ctx, account)
	if err != nil {
		return err
	}
	if b.Posted != opening-a.charged || b.Held != 0 {
		a.problem("the balance is %+v, and %s was charged of %s", b, a.charged, opening)
	}
	for table, where := range map[string]string{"hold": "TRUE", "answer": "state = 'open'"} {
		var n int
		if err := a.raw.QueryRowContext(a.ctx, "SELECT COUNT(*) FROM "+table+" WHERE "+where).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			a.problem("%d rows of %s are open", n, table)
		}
	}
	return nil
}

// ends compares each task with what the vendor made of it.
func (a *audit) ends() {
	for _, r := range a.tasks {
		ends, price := video.Expired, billing.Money(0)
		switch {
		case r.upstream == "": // nobody knows what became of it
		case r.made == nil || a.vendor.jobs[r.made.n] == nil || a.vendor.jobs[r.made.n].id != r.upstream:
			a.problem("the task %+v is of no job", *r)
		default:
			ends = r.made.kind.ends
		}
		if ends == video.Succeeded {
			price = billing.Money(r.made.seconds) * cents * billing.One / 100
		}
		entries := 0
		if price > 0 {
			entries = 1
		}
		if r.state != ends || r.charge != price || r.entries != entries {
			a.problem("the task %+v of %+v: want %s for %s", *r, r.made, ends, price)
		}
	}
}

// deliveries compares what came with what was to be told.
func (a *audit) deliveries() {
	told := map[int]string{} // the id of the notice, by submission
	for _, r := range a.tasks {
		want := 0
		if r.hook != "" {
			want = 1
		}
		if len(r.notices) != want || r.sent != want {
			a.problem("the task %+v has %d notices, %d delivered; want %d", *r, len(r.notices), r.sent, want)
			continue
		}
		if r.hook == "" {
			continue
		}
		told[r.made.n] = r.notices[0]
		delivered := false
		for _, d := range a.receiver.got[r.made.n] {
			delivered = delivered || d.good
			if d.id != r.notices[0] || d.body != a.receiver.got[r.made.n][0].body || !strings.Contains(d.body, r.id) ||
				!strings.Contains(d.body, `"type":"video.generation.`+string(r.state)+`"`) {
				a.problem("the task %+v was told of by %+v", *r, d)
			}
		}
		if !delivered {
			a.problem("of the task %+v nothing was delivered", *r)
		}
	}
	for n, got := range a.receiver.got {
		if told[n] == "" {
			a.problem("submission %d was told of by %+v, and has no task", n, got)
		}
	}
}

// answers compares the tasks with what the client was told.
func (a *audit) answers() {
	tasks := map[*submission]int{}
	for _, r := range a.tasks {
		if r.made != nil {
			tasks[r.made]++
		}
	}
	for _, s := range a.asked {
		switch {
		case (s.accepted != "" || s.lost != "") && tasks[s] != 1, tasks[s] > 1 && s.kind.name != refusedKind:
			a.problem("the submission %+v has %d tasks", *s, tasks[s])
		case s.accepted != "" && a.tasks[s.accepted].upstream == "":
			a.problem("the submission %+v was told to be accepted, and its task is %+v", *s, a.tasks[s.accepted])
		case s.refused && s.sent == 1 && tasks[s] > 0:
			a.problem("the submission %+v was refused, and has a task", *s)
		}
	}
}

// orders compares the vendor's jobs with the submissions.
func (a *audit) orders() {
	for n, j := range a.vendor.jobs {
		if j.orders != 1 {
			a.problem("the vendor got submission %+v %d times", *a.find(n), j.orders)
		}
	}
	owned := map[int]bool{}
	for _, r := range a.tasks {
		if r.made != nil {
			owned[r.made.n] = true
		}
	}
	for n := range a.vendor.jobs {
		if a.find(n).hooked && !owned[n] {
			a.problem("the vendor has a job of submission %+v, of which there is no task", *a.find(n))
		}
	}
	if len(a.vendor.jobs) > len(a.tasks) {
		a.problem("the vendor has %d jobs, and there are %d tasks", len(a.vendor.jobs), len(a.tasks))
	}
	if jobs, orders := a.vendor.orders(); jobs > len(a.asked) || orders > len(a.asked) {
		a.problem("%d submissions made %d jobs of %d orders", len(a.asked), jobs, orders)
	}
}
