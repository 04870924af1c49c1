//go:build unix

package crashtest

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/childproc"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
)

// variable is the environment's that makes this binary a child: its task.
const variable = "TOLLHOUSE_CRASHTEST_TASK"

func TestMain(m *testing.M) { os.Exit(childproc.Main(m, variable, child)) }

// child does a task and returns the exit code of the process. It ends early,
// and in order, when its standard input ends.
func child(t task, v *voice) int {
	k := newKiller(t, v)
	ctx := context.Background()
	db, err := t.open(ctx, store.Options{Wrap: k.wrap})
	if err != nil {
		v.Say(event{Kind: broken, ID: "open", Error: err.Error()})
		return 1
	}
	k.phase.Store(serving)
	v.Say(event{Kind: opened})
	if t.Postgres {
		go func() { _ = db.Run(ctx) }() // it ends with the process
	}
	work(ctx, db, t, v)
	if err := db.Close(); err != nil {
		v.Say(event{Kind: broken, ID: "close", Error: err.Error()})
	}
	v.Say(event{Kind: finished})
	return 0
}

func work(ctx context.Context, db *store.DB, t task, v *voice) {
	if t.Workers == 0 {
		return
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	first := newWorker(db, t, v, 0)
	for _, name := range t.Accounts {
		first.create(ctx, name)
	}
	first.bound(ctx)
	var all sync.WaitGroup
	for i := range t.Workers {
		w := newWorker(db, t, v, i+1)
		all.Go(func() {
			for range t.Ops {
				select {
				case <-stop:
					return
				default:
					w.step(ctx)
				}
			}
		})
	}
	all.Wait()
}

// worker is one caller of the store.
type worker struct {
	db    *store.DB
	voice *voice
	task  task
	dice  *rand.Rand
	name  string
	count int
	price *billing.Price
	last  request // that was settled
}

func newWorker(db *store.DB, t task, v *voice, number int) *worker {
	dice := rand.New(rand.NewPCG(t.Seed, uint64(number)))
	// A unit is an image; what the other costs makes the price a new one.
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"}, billing.Rate{Unit: billing.Second, Amount: fmt.Sprint(1 + t.Seed%1_000_000)})
	if err != nil {
		os.Exit(5)
	}
	return &worker{db: db, voice: v, task: t, dice: dice, name: fmt.Sprintf("%s-%d", t.Prefix, number), price: price}
}

// ask says what is asked for, asks for it, and says what came of it. Errors
// that are none of those that are allowed are a defect.
func (w *worker) ask(e event, allowed []fault.Code, do func() (*billing.Receipt, error)) bool {
	w.voice.Say(e)
	r, err := do()
	answer := event{Kind: e.Kind, Done: true, ID: e.ID, Account: e.Account, N: e.N, More: e.More, Receipt: r}
	if err == nil {
		w.voice.Say(answer)
		return true
	}
	answer.Code, answer.Error = fault.From(err).Code, err.Error()
	for _, code := range allowed {
		if answer.Code == code {
			w.voice.Say(answer)
			return false
		}
	}
	answer.Kind, answer.Error = broken, e.Kind+": "+answer.Error
	w.voice.Say(answer)
	return false
}

// units is an amount of money.
func units(n int64) billing.Money { return billing.Money(n) * billing.One }

// process is a child that runs.
type process struct{ *childproc.Process }

// childTimeout is how long a child may take for all that it has to do.
const childTimeout = 60 * time.Second

// starting is held while a child starts: until it has its own program it has
// all files of this process, and with them the lock of a database that a test
// beside this one may have open.
var starting sync.Mutex

// start starts this binary as a child.
func start(t task) (*process, error) {
	starting.Lock()
	defer starting.Unlock()
	p, err := childproc.Start(variable, t)
	return &process{p}, err
}

// moment is when a test ends a child: some time after one of its events.
type moment struct {
	events int // 0 is its start; less than that is never
	after  time.Duration
}

// listen hears the child until it ends.
func (p *process) listen(hear func(event), m moment) (ended exit, err error) {
	var late atomic.Bool
	watchdog := time.AfterFunc(childTimeout, func() {
		late.Store(true)
		p.Kill()
	})
	defer watchdog.Stop()
	arm := func(n int) {
		if n == m.events {
			time.AfterFunc(m.after, p.Kill)
		}
	}
	arm(0)
	n := 0
	for line := range p.Said() {
		n++
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			p.Kill()
			return ended, errors.Join(fmt.Errorf("a child said %q: %w", line, err), p.wait(&ended))
		}
		ended.hear(e)
		hear(e)
		arm(n)
	}
	err = p.wait(&ended)
	if late.Load() {
		err = fmt.Errorf("a child did not end in %s", childTimeout)
	}
	return ended, err
}

// exit is how a child ended.
type exit struct {
	reached  bool // its fault point
	folded   bool
	finished bool // it did all that it had to
	killed   bool
}

func (o *exit) hear(e event) {
	switch e.Kind {
	case killed:
		o.reached = true
	case folded:
		o.folded = true
	case finished:
		o.finished = true
	}
}

// wait returns when the system has forgotten the child, and its locks with it.
func (p *process) wait(o *exit) (err error) {
	o.killed, err = p.Wait()
	if o.finished {
		return nil
	}
	return err
}

// killer ends its process at a fault point.
type killer struct {
	task   task
	voice  *voice
	phase  atomic.Value // a string
	passed atomic.Int64 // how many times it came by
	told   sync.Map     // statements without a point
}

func newKiller(t task, v *voice) *killer {
	k := &killer{task: t, voice: v}
	k.phase.Store(migrating)
	return k
}

// reach reports whether this is the point, and the time.
func (k *killer) reach(moment string) bool {
	name := k.phase.Load().(string) + ": " + moment
	return name == k.task.Point && k.passed.Add(1) == k.task.Nth
}

// at ends the process if this is the point, and the time.
func (k *killer) at(moment string) {
	if k.reach(moment) {
		k.voice.Say(event{Kind: killed, ID: k.task.Point})
		die()
	}
}

// die does not return: the signal comes before the system call ends.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dieSoon ends the process while its caller goes on. It spins, because timers
// are coarser than a COMMIT is long.
func (k *killer) dieSoon() {
	k.voice.Say(event{Kind: killed, ID: k.task.Point})
	started, until := make(chan struct{}), time.Now().Add(k.task.Delay)
	go func() {
		close(started)
		for time.Now().Before(until) {
		}
		die()
	}()
	<-started
}

// wrap is for store.Options.
func (k *killer) wrap(c driver.Connector) driver.Connector { return sqlhook.Wrap(c, k.around) }

// around passes the fault points before, within and after a step.
func (k *killer) around(s sqlhook.Step, do func() error) error {
	switch s.Kind {
	case sqlhook.Begin:
		k.at(beforeBegin)
		err := do()
		if err == nil {
			k.at(afterBegin)
		}
		return err
	case sqlhook.Write:
		if moment := momentOf(s.Query); moment != "" {
			k.statement(moment, s.Query)
			if s.First {
				defer k.at(afterFirst)
			}
		}
	case sqlhook.Commit:
		return k.commit(s.Conn, do)
	}
	return do()
}

// statement is the moment before a statement that writes.
func (k *killer) statement(moment, query string) {
	phase := k.phase.Load().(string)
	if _, told := k.told.LoadOrStore(phase+moment, true); !told && !named(phase, moment) {
		k.voice.Say(event{Kind: unnamed, ID: phase + ": " + moment, Error: query[:min(len(query), 80)]})
	}
	k.at(moment)
}

func (k *killer) commit(conn driver.Conn, do func() error) error {
	k.at(beforeCommit)
	if k.reach(duringCommit) {
		k.dieSoon()
	}
	if err := do(); err != nil {
		return err
	}
	k.at(afterCommit)
	if k.reach(duringCheckpoint) {
		k.fold(conn)
	}
	k.phase.CompareAndSwap(migrating, recovering)
	return nil
}

// fold has SQLite write its log into the file, and the process ended meanwhile.
func (k *killer) fold(conn driver.Conn) {
	k.dieSoon()
	_, err := conn.(driver.ExecerContext).ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)", nil)
	if err != nil {
		k.voice.Say(event{Kind: broken, ID: "checkpoint", Error: err.Error()})
	}
	k.voice.Say(event{Kind: folded})
	select {} // until the signal comes
}

// The phases of a process.
const (
	migrating  = "migration" // until the first COMMIT
	recovering = "recovery"  // until the store is open
	serving    = "serving"
)

// point is a moment at which a child ends itself.
type point struct {
	phase, moment string
	most          int    // it does so at one of the first so many times
	only          string // the database that has it; empty for both
}

func (p point) name() string { return p.phase + ": " + p.moment }

func (p point) on(database string) bool { return p.only == "" || p.only == database }

// The moments that are not before a statement.
const (
	beforeBegin      = "before BEGIN"
	afterBegin       = "after BEGIN"
	afterFirst       = "after the first statement that writes"
	beforeCommit     = "before COMMIT"
	duringCommit     = "during COMMIT"
	afterCommit      = "after COMMIT, before it is told"
	duringCheckpoint = "during a checkpoint of the log"
)

// points are all fault points. A statement that writes and is not among them
// fails the test: somebody has to say when it is reached.
var points = []point{
	{migrating, beforeBegin, 1, ""},
	{migrating, afterBegin, 1, ""},
	{migrating, "before CREATE", 12, ""},
	{migrating, "before ALTER", 6, "postgres"},
	{migrating, "before LOCK", 1, "postgres"},
	{migrating, "before INSERT usage_hour", 1, ""},
	{migrating, "before INSERT schema_version", 4, ""},
	{migrating, beforeCommit, 1, ""},
	{migrating, duringCommit, 1, ""},
	{migrating, afterCommit, 1, ""},

	{recovering, beforeBegin, 3, ""},
	{recovering, afterBegin, 3, ""},
	{recovering, afterFirst, 3, ""},
	{recovering, "before INSERT setting", 1, ""},
	{recovering, "before INSERT node", 1, ""},
	{recovering, "before UPDATE node", 1, ""},
	{recovering, "before UPDATE account", 1, ""},
	{recovering, "before UPDATE budget", 1, ""},
	{recovering, "before DELETE hold", 1, ""},
	{recovering, "before INSERT receipt", 1, ""},
	{recovering, "before INSERT usage_hour", 1, "sqlite"},
	{recovering, "before INSERT entry", 1, ""},
	{recovering, "before DELETE answer", 1, ""},
	{recovering, "before DELETE node", 1, ""},
	{recovering, beforeCommit, 3, ""},
	{recovering, duringCommit, 3, ""},
	{recovering, afterCommit, 3, ""},

	{serving, beforeBegin, 40, ""},
	{serving, afterBegin, 40, ""},
	{serving, afterFirst, 40, ""},
	{serving, "before UPDATE node", 40, "postgres"},
	{serving, "before INSERT account", 2, ""},
	{serving, "before UPDATE account", 40, ""},
	{serving, "before INSERT budget", 2, ""},
	{serving, "before UPDATE budget", 20, ""},
	{serving, "before INSERT price", 1, ""},
	{serving, "before INSERT hold", 40, ""},
	{serving, "before UPDATE hold", 20, ""},
	{serving, "before DELETE hold", 40, ""},
	{serving, "before INSERT receipt", 40, ""},
	{serving, "before INSERT usage_hour", 40, "sqlite"},
	{serving, "before INSERT entry", 40, ""},
	{serving, "before INSERT answer", 20, ""},
	{serving, "before UPDATE answer", 10, ""},
	{serving, "before DELETE answer", 10, ""},
	{serving, beforeCommit, 40, ""},
	{serving, duringCommit, 40, ""},
	{serving, afterCommit, 40, ""},
	{serving, duringCheckpoint, 40, "sqlite"},
}

// named reports whether a statement of a phase has a point. With several
// processes a living one recovers what a dead one left: what recovery does is
// done while serving as well.
func named(phase, moment string) bool {
	for _, p := range points {
		if p.moment == moment && (p.phase == phase || phase == serving && p.phase == recovering) {
			return true
		}
	}
	return false
}

// momentOf is the moment before a statement; empty if it writes nothing.
func momentOf(query string) string {
	words := strings.Fields(query)
	switch words[0] {
	case "SELECT", "PRAGMA", "SET":
		return ""
	case "UPDATE":
		return "before UPDATE " + words[1]
	case "INSERT", "DELETE":
		return "before " + words[0] + " " + words[2]
	}
	return "before " + words[0]
}
