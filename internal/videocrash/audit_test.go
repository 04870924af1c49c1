//go:build unix

package videocrash

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
)

// audit compares the database with what the client, the vendor and the receiver
// know, when all tasks have had their time. It reads the tables beside the
// store: a store that deceives itself would deceive its callers alike.
type audit struct {
	*journal
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
		receipt, err := a.db.Ledger().Receipt(a.ctx, account, r.request)
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
	if err := a.db.Ledger().Verify(a.ctx); err != nil {
		a.problem("Verify: %v", err)
	}
	b, err := a.db.Ledger().Balance(a.ctx, account)
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

// journal is what the client of one database knows. It is safe for concurrent use.
type journal struct {
	mu       sync.Mutex
	dice     *rand.Rand
	asked    []*submission
	problems []string
	codes    map[fault.Code]int
}

func newJournal(dice *rand.Rand) *journal { return &journal{dice: dice, codes: map[fault.Code]int{}} }

func (b *journal) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(format, args...)
}

func (b *journal) add(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// find is a submission by its number.
func (b *journal) find(n int) *submission {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 1 || n > len(b.asked) {
		b.add("there is no submission %d", n)
		return &submission{}
	}
	return b.asked[n-1]
}

// next is a new submission, or one of the last few that have a key once more.
func (b *journal) next(hook string) command {
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
func (b *journal) again() *submission {
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

func (b *journal) kind() kind {
	n := b.dice.IntN(100)
	for _, k := range kinds {
		if n -= k.share; n < 0 {
			return k
		}
	}
	return kinds[0]
}

// record notes an answer.
func (b *journal) record(e event) {
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

// stats count what was done. They are safe for concurrent use.
type stats struct {
	mu     sync.Mutex
	counts map[string]int
	points map[string]int
}

func newStats() *stats { return &stats{counts: map[string]int{}, points: map[string]int{}} }

func (f *stats) add(name string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[name] += n
}

// reached counts a kill at a point.
func (f *stats) reached(point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.points[point]++
	f.counts["at"]++
}

// missed are the points that were never reached.
func (f *stats) missed(all []string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(p string) bool { return f.points[p] > 0 })
}

// count adds what an audit has read.
func (f *stats) count(a *audit) {
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

func (f *stats) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.counts
	var b strings.Builder
	fmt.Fprintf(&b, "%d kills, %d of them at %d fault points; %d submissions (%d acknowledged, %d repetitions) made %d jobs and %d tasks, of which",
		n["kills"], n["at"], len(f.points), n["submissions"], n["acknowledged"], n["repetitions"], n["jobs"], n["tasks"])
	for _, s := range []video.State{video.Succeeded, video.Failed, video.Cancelled, video.Expired} {
		fmt.Fprintf(&b, " %d %s,", n[string(s)], s)
	}
	fmt.Fprintf(&b, " %d never known to the gateway, %d after their holds; %d notices came %d times", n["unknown"], n["overdue"], n["notices"], n["deliveries"])
	return b.String()
}

// A harness that cannot fail proves nothing: each of these is what a gateway or
// a store would leave that had one of the defects.
var meddlings = []struct{ name, statement string }{
	{"a task is open", "UPDATE task SET ended = FALSE, state = 'running' WHERE id = (SELECT MAX(id) FROM task)"},
	{"a task is gone", "DELETE FROM task WHERE id = (SELECT MAX(id) FROM task WHERE state = 'succeeded')"},
	{"a success is free", "DELETE FROM entry WHERE number = (SELECT MIN(number) FROM entry WHERE kind = 'capture')"},
	{"a success is charged twice", "INSERT INTO entry (account, kind, reference, customer, credit, revenue, overrun, held, available, created_at)" +
		" SELECT account, kind, reference, customer, credit, revenue, overrun, held, available, created_at FROM entry WHERE number = (SELECT MIN(number) FROM entry WHERE kind = 'capture')"},
	{"a success is cheaper", "UPDATE receipt SET charge = charge - 1 WHERE id = (SELECT MAX(reference) FROM entry WHERE kind = 'capture')"},
	{"a failure is charged", "UPDATE receipt SET charge = 1 WHERE id = (SELECT MAX(request_id) FROM task WHERE state <> 'succeeded')"},
	{"a success is a failure", "UPDATE task SET state = 'failed' WHERE id = (SELECT MAX(id) FROM task WHERE state = 'succeeded')"},
	{"a hold is open", "INSERT INTO hold SELECT 'x', 1, id, 0, 'k1', 'video', 'painter', '', 0, '', 0, 9000000000000000000, FALSE FROM account WHERE id = 'local'"},
	{"a key is claimed for ever", "INSERT INTO answer SELECT 'local', 'video', x'6b', x'', 'x', 0, 'open', '', NULL, '', 9000000000000000000 FROM account WHERE id = 'local'"},
	{"a notice is gone", "DELETE FROM notice WHERE id = (SELECT MAX(id) FROM notice)"},
	{"a notice is another one", "UPDATE notice SET id = 'evt_x' WHERE id = (SELECT MAX(id) FROM notice)"},
	{"a notice was never delivered", "UPDATE notice SET state = 'failed' WHERE id = (SELECT MAX(id) FROM notice)"},
	{"a task is told of twice", "INSERT INTO notice SELECT id || 'x', account, task, url, body, created_at, state, tries, reason, next_at, ended_at, owner, lease_until FROM notice LIMIT 1"},
}

func TestTheAuditFindsEachDefect(t *testing.T) {
	b := newHarness(t, newStats(), 1, 1)
	for range 3 {
		b.round("")
	}
	b.round(after + theRelease) // for a second's work
	b.finish()
	if p := b.check(""); len(p) > 0 {
		t.Fatal(p)
	}
	good, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	whole := b.path
	for i, m := range meddlings {
		b.path = fmt.Sprintf("%s.%d", whole, i)
		if err := os.WriteFile(b.path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		if len(b.check(m.statement)) == 0 {
			t.Errorf("nothing is found where %s", m.name)
		}
	}
	for what, spoil := range map[string]func(){
		"a job was ordered twice": func() {
			for _, j := range b.vendor.jobs {
				j.orders++
			}
		},
		"a notice came under two ids": func() {
			for n, got := range b.receiver.got {
				b.receiver.got[n] = append(got, delivery{"evt_x", got[0].body, true})
			}
		},
	} {
		b.path = whole
		before := len(b.book.problems)
		spoil()
		if len(b.check("")) == before {
			t.Errorf("nothing is found where %s", what)
		}
	}
}
