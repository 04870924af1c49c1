//go:build unix

package crashtest

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/video"
)

// videoAudit compares the database with what the client, the vendor and the receiver
// know, when all tasks have had their time.
type videoAudit struct {
	*videoRecord
	database
	vendor   *vendor
	receiver *receiver
	figures  *figures

	tasks   map[string]*row // by id
	charged billing.Money
}

// row is a task as the database has it.
type row struct {
	id, request, upstream, hook string
	state                       video.State
	held                        bool

	made    *submission // whose it is; nil if nobody can tell
	charge  billing.Money
	notices []string
	sent    int // notices that were delivered
}

func (a *videoAudit) run() error {
	if err := a.sound(&a.problems); err != nil {
		return err
	}
	for _, part := range [...]func() error{a.read, a.money, a.notices, a.balance} {
		if err := part(); err != nil {
			return err
		}
	}
	a.ends()
	a.deliveries()
	a.answers()
	a.orders()
	a.tally()
	return nil
}

// read reads the tasks, and finds whose they are.
func (a *videoAudit) read() error {
	a.tasks = map[string]*row{}
	err := a.each(func(rows *sql.Rows) error {
		r := &row{}
		err := rows.Scan(&r.id, &r.request, &r.upstream, &r.hook, &r.state, &r.held)
		a.tasks[r.id] = r
		r.made = a.whose(r)
		return err
	}, "SELECT id, request_id, upstream_id, webhook_url, state, held FROM task")
	for _, s := range a.asked {
		for _, id := range []string{s.accepted, s.lost} {
			if r := a.tasks[id]; id != "" && (r == nil || r.made != nil && r.made != s) {
				a.problem(lost, "the task %s of the submission %+v is %+v", id, *s, r)
			} else if id != "" {
				r.made = s
			}
		}
	}
	return err
}

// whose is the submission that a task tells itself.
func (a *videoAudit) whose(r *row) *submission {
	for _, mark := range []string{r.upstream, r.hook} {
		if n, err := strconv.Atoi(mark[strings.LastIndexAny(mark, "-/")+1:]); err == nil {
			return a.find(n)
		}
	}
	return nil
}

// money reads the receipts, of which there is none that is charged for another task.
func (a *videoAudit) money() error {
	of := map[string]*row{}
	for _, r := range a.tasks {
		of[r.request] = r
		receipt, err := a.db.Ledger().Receipt(a.ctx, videoAccount, r.request)
		if err != nil {
			a.problem(wrong, "the task %+v has no receipt: %v", *r, err)
		}
		r.charge = receipt.Charge
	}
	return a.each(func(rows *sql.Rows) error {
		var request string
		var charge billing.Money
		if err := rows.Scan(&request, &charge); err != nil {
			return err
		}
		a.charged += charge
		r := of[request]
		if r == nil || r.charge != charge {
			a.problem(wrong, "a charge of %s for %s, whose task is %+v", charge, request, r)
		}
		return nil
	}, "SELECT id, charge FROM receipt WHERE charge > 0")
}

func (a *videoAudit) notices() error {
	return a.each(func(rows *sql.Rows) error {
		var id, task, state string
		if err := rows.Scan(&id, &task, &state); err != nil {
			return err
		}
		r := a.tasks[task]
		if r == nil {
			a.problem(wrong, "the notice %s is of no task", id)
			return nil
		}
		r.notices = append(r.notices, id)
		if state == "sent" {
			r.sent++
		}
		return nil
	}, "SELECT id, task, state FROM notice")
}

// balance compares the account with what was charged.
func (a *videoAudit) balance() error {
	b, err := a.db.Ledger().Balance(a.ctx, videoAccount)
	if err == nil && (b.Posted != videoCredit-a.charged || b.Held != 0) {
		a.problem(wrong, "the balance is %+v, and %s was charged of %s", b, a.charged, videoCredit)
	}
	return err
}

// ends compares each task with what the vendor made of it.
func (a *videoAudit) ends() {
	for _, r := range a.tasks {
		ends, price := video.Expired, billing.Money(0)
		switch {
		case r.upstream == "": // nobody knows what became of it
		case r.made == nil || a.vendor.jobs[r.made.n] == nil || a.vendor.jobs[r.made.n].id != r.upstream:
			a.problem(wrong, "the task %+v is of no job", *r)
		default:
			ends = r.made.kind.ends
		}
		if ends == video.Succeeded {
			price = billing.Money(r.made.seconds) * cents * billing.One / 100
		}
		if r.state != ends || r.charge != price {
			a.problem(wrong, "the task %+v of %+v: want %s for %s", *r, r.made, ends, price)
		}
	}
}

// deliveries compares what came with what was to be told.
func (a *videoAudit) deliveries() {
	told := map[int]string{} // the id of the notice, by submission
	for _, r := range a.tasks {
		want := 0
		if r.hook != "" {
			want = 1
		}
		if len(r.notices) != want || r.sent != want {
			a.problem(wrong, "the task %+v has %d notices, %d delivered; want %d", *r, len(r.notices), r.sent, want)
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
				a.problem(wrong, "the task %+v was told of by %+v", *r, d)
			}
		}
		if !delivered {
			a.problem(wrong, "of the task %+v nothing was delivered", *r)
		}
	}
	for n, got := range a.receiver.got {
		if told[n] == "" {
			a.problem(wrong, "submission %d was told of by %+v, and has no task", n, got)
		}
	}
}

// answers compares the tasks with what the client was told.
func (a *videoAudit) answers() {
	tasks := map[*submission]int{}
	for _, r := range a.tasks {
		if r.made != nil {
			tasks[r.made]++
		}
	}
	for _, s := range a.asked {
		switch {
		case (s.accepted != "" || s.lost != "") && tasks[s] != 1, tasks[s] > 1 && s.kind.name != refusedKind:
			a.problem(wrong, "the submission %+v has %d tasks", *s, tasks[s])
		case s.accepted != "" && a.tasks[s.accepted].upstream == "":
			a.problem(wrong, "the submission %+v was told to be accepted, and its task is %+v", *s, a.tasks[s.accepted])
		case s.refused && s.sent == 1 && tasks[s] > 0:
			a.problem(wrong, "the submission %+v was refused, and has a task", *s)
		}
	}
}

// orders compares the vendor's jobs with the submissions.
func (a *videoAudit) orders() {
	for n, j := range a.vendor.jobs {
		if j.orders != 1 {
			a.problem(doubled, "the vendor got submission %+v %d times", *a.find(n), j.orders)
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
			a.problem(wrong, "the vendor has a job of submission %+v, of which there is no task", *a.find(n))
		}
	}
	if len(a.vendor.jobs) > len(a.tasks) {
		a.problem(wrong, "the vendor has %d jobs, and there are %d tasks", len(a.vendor.jobs), len(a.tasks))
	}
	if jobs, orders := a.vendor.orders(); jobs > len(a.asked) || orders > len(a.asked) {
		a.problem(wrong, "%d submissions made %d jobs of %d orders", len(a.asked), jobs, orders)
	}
}

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

// videoRecord is what the client of one database knows. It is safe for concurrent use.
type videoRecord struct {
	problems
	mu     sync.Mutex
	random *rand.Rand
	asked  []*submission
}

// find is a submission by its number.
func (b *videoRecord) find(n int) *submission {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 1 || n > len(b.asked) {
		b.problem(unexpected, "there is no submission %d", n)
		return &submission{}
	}
	return b.asked[n-1]
}

// next is a new submission, or one of the last few that have a key once more.
func (b *videoRecord) next(hook string) order {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.again()
	if s == nil {
		s = &submission{
			n: len(b.asked) + 1, kind: b.kind(), seconds: 2 + b.random.Int64N(14), keyed: b.random.IntN(2) == 0, hooked: b.random.IntN(4) > 0,
			pending: b.random.IntN(2), running: b.random.IntN(2),
		}
		b.asked = append(b.asked, s)
	}
	s.sent++
	c := order{N: s.n, Seconds: s.seconds}
	if s.keyed {
		c.Key = fmt.Sprint("key-", s.n)
	}
	if s.hooked {
		c.Hook = fmt.Sprint(hook, s.n)
	}
	return c
}

// again is a submission that its client may repeat; nil for none.
func (b *videoRecord) again() *submission {
	const last = 12
	if len(b.asked) < last || b.random.IntN(3) > 0 {
		return nil
	}
	s := b.asked[len(b.asked)-1-b.random.IntN(last)]
	if !s.keyed {
		return nil
	}
	return s
}

func (b *videoRecord) kind() kind {
	n := b.random.IntN(100)
	for _, k := range kinds {
		if n -= k.share; n < 0 {
			return k
		}
	}
	return kinds[0]
}

// answer records an answer.
func (b *videoRecord) answer(e event) {
	s := b.find(int(e.N))
	b.mu.Lock()
	defer b.mu.Unlock()
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
		b.problem(unexpected, "submission %+v was answered with %+v", *s, e)
	}
}

// tally adds what was read to the figures.
func (a *videoAudit) tally() {
	f := a.figures
	jobs, _ := a.vendor.orders()
	f.add("jobs", jobs)
	f.add("submissions", len(a.asked))
	f.add("tasks", len(a.tasks))
	for _, s := range a.asked {
		f.add("repetitions", s.sent-1)
		if s.accepted != "" {
			f.add("acknowledged", 1)
		}
	}
	for _, r := range a.tasks {
		f.add(string(r.state), 1)
		f.add("notices", len(r.notices))
		if r.upstream == "" {
			f.add("unknown", 1)
		}
		if !r.held {
			f.add("overdue", 1)
		}
	}
	for _, got := range a.receiver.got {
		f.add("deliveries", len(got))
	}
}
