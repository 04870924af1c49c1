//go:build unix

package crashtest

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// variable is the environment's that makes this binary a child: its task.
const variable = "TOLLHOUSE_CRASHTEST_TASK"

// parallelTests is how many tests run at once: most of them wait for a disk or a lease.
const parallelTests = "8"

// TestMain runs the tests, or in a child, which has its task in the environment,
// the task.
func TestMain(m *testing.M) {
	text := os.Getenv(variable)
	if text == "" {
		flag.Parse()
		if err := flag.Set("test.parallel", parallelTests); err != nil {
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		os.Exit(2)
	}
	os.Exit(child(t, &reporter{pipe: os.NewFile(3, "events")}))
}

// child does a task and returns the exit code of the process.
func child(t task, out *reporter) int {
	k := &killer{task: t, out: out}
	k.phase.Store(migrating)
	if t.Vendor != "" {
		return serveVideos(t, k)
	}
	return useLedger(t, k)
}

// place is where a database is.
type place struct {
	Postgres bool
	Where    string // an address of Postgres, or a path
}

// lease is short, so that the holds of a dead process soon end. A process that
// is too slow for it loses its holds to the others, which is no defect.
const lease = 150 * time.Millisecond

func (p place) open(ctx context.Context, o store.Options) (*store.DB, error) {
	if o.Lease == 0 && o.Now == nil { // by a clock that runs faster it would end too soon
		o.Lease = lease
	}
	o.WaitTimeout = 30 * time.Second // a slow machine is not what is tested
	if p.Postgres {
		return postgres.Open(ctx, p.Where, o)
	}
	return sqlite.Open(ctx, p.Where, o)
}

// raw is a connection beside the store.
func (p place) raw() (*sql.DB, error) {
	if p.Postgres {
		return sql.Open("pgx", p.Where)
	}
	return sql.Open("sqlite", "file:"+p.Where+"?_pragma=busy_timeout(5000)")
}

// task is what a child is told at its start.
type task struct {
	place
	Point string        // where it ends itself; empty for nowhere
	Nth   int64         // at which pass of it
	Delay time.Duration // how long after that, at a point that has a length

	// Of a child that uses the ledger.
	Seed     uint64
	Prefix   string    // of all its request ids
	Workers  int       // how many work at once
	Ops      int       // how many operations each of them does
	Accounts []string  // that there shall be
	Again    []request // of earlier rounds, to be settled once more
	Credits  []credit  // of earlier rounds, to be given once more

	// Of a child that serves videos.
	Vendor string // its address
	Clock  clock
}

// order is what a child that serves videos is told later: to submit one, or with
// N 0 to ask after all open ones, as their owners do.
type order struct {
	N       int
	Seconds int64
	Key     string // of idempotency
	Hook    string // the webhook's address
}

// event is what a child reports. One that uses the ledger reports before each call
// what it asks for, and with Done what came of it.
type event struct {
	Kind    string
	Done    bool             `json:",omitempty"`
	ID      string           `json:",omitempty"` // of the request, credit, account or point
	Account string           `json:",omitempty"`
	N       int64            `json:",omitempty"` // units: of the hold, so far, of the charge, of the credit; of a submission its number
	More    int64            `json:",omitempty"` // units that are added to the hold
	Keep    bool             `json:",omitempty"` // with an idempotent answer
	Receipt *billing.Receipt `json:",omitempty"`
	Code    fault.Code       `json:",omitempty"` // of the error
	Error   string           `json:",omitempty"`

	Task    string   `json:",omitempty"` // of a video, told in the answer or in the error
	Open    []string `json:",omitempty"` // the vendor's ids of videos that have not ended
	Waiting int      `json:",omitempty"` // webhook deliveries that are due
}

// The kinds of an event. Those of single operations stand with the work.
const (
	opened   = "opened"   // the store is open, the gateway runs
	finished = "finished" // all is done, and the store was closed
	killed   = "killed"   // the child ends itself now
	unnamed  = "unnamed"  // a statement that writes has no fault point
	broken   = "broken"   // an error that there must not be
	folded   = "folded"   // a checkpoint of the database's log was done before the kill
)

// reporter writes a child's events. It is safe for concurrent use: a line goes out
// by one write, which a pipe takes whole or not at all.
type reporter struct {
	mu   sync.Mutex
	pipe *os.File
}

// report writes an event. Without a test that reads it the child ends.
func (r *reporter) report(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		os.Exit(3)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.pipe.Write(append(line, '\n')); err != nil {
		os.Exit(4) // the test is gone
	}
}

// process is a child that runs. What it has become belongs to its listener until
// gone is closed.
type process struct {
	cmd    *exec.Cmd
	input  io.WriteCloser // its end asks the child to end
	orders *json.Encoder  // to input
	events *os.File
	stderr bytes.Buffer

	gone chan struct{} // closed when the system has forgotten it, and its locks with it
	err  error         // how it ended otherwise than it should

	reached, folded, finished, killed bool
}

// moment is when a test ends a child: some time after one of its events.
type moment struct {
	events int // 0 is its start; less than that is never
	after  time.Duration
}

// never is for a child that ends itself, or when it is done.
var never = moment{events: -1}

// childTimeout is how long a child may take for all that it has to do.
const childTimeout = 90 * time.Second

// starting is held while a child starts. Until the child has its own program it has all files
// of this process. Among them is the lock of a database that a test beside this one may have
// open.
var starting sync.Mutex

// start starts this binary as a child that is ended at a moment, and has hear
// told of what it reports until it has ended.
func start(t task, at moment, hear func(*process, event)) (*process, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	starting.Lock()
	defer starting.Unlock()
	events, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }() // the child has its own
	p := &process{cmd: exec.Command(binary), events: events, gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.ExtraFiles, p.cmd.Stderr = []*os.File{theirs}, &p.stderr
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.orders = json.NewEncoder(p.input)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(at, hear)
	return p, nil
}

// listen reads what the child reports until it ends. A line without an end was not
// reported.
func (p *process) listen(at moment, hear func(*process, event)) {
	defer close(p.gone)
	var late atomic.Bool
	watchdog := time.AfterFunc(childTimeout, func() {
		late.Store(true)
		p.kill()
	})
	defer watchdog.Stop()
	lines := bufio.NewReader(p.events)
	for n := 0; ; n++ {
		if n == at.events {
			time.AfterFunc(at.after, p.kill)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			e = event{Kind: broken, Error: fmt.Sprintf("a child reported %q", line)}
		}
		p.reached = p.reached || e.Kind == killed
		p.folded = p.folded || e.Kind == folded
		p.finished = p.finished || e.Kind == finished
		hear(p, e)
	}
	_, _ = p.events.Close(), p.input.Close()
	err := p.cmd.Wait()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	p.killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	switch {
	case late.Load():
		p.err = fmt.Errorf("a child did not end in %s", childTimeout)
	case !p.killed && !p.finished:
		p.err = fmt.Errorf("a child ended by itself: %w\n%s", err, p.stderr.Bytes())
	}
}

// send gives an order. A child that is dying may not get it.
func (p *process) send(o order) { _ = p.orders.Encode(o) }

// kill ends the child now, if it has not ended.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// killer ends its own process at a fault point.
type killer struct {
	task   task
	out    *reporter
	phase  atomic.Value // of a process that uses the ledger: a string
	passed atomic.Int64 // how often it came by its point
	told   sync.Map     // statements without a point
}

// reach reports whether this is the point, and the time.
func (k *killer) reach(point string) bool {
	return point == k.task.Point && k.passed.Add(1) == k.task.Nth
}

// at ends the process if this is the point, and the time.
func (k *killer) at(point string) {
	if k.reach(point) {
		k.out.report(event{Kind: killed, ID: point})
		die()
	}
}

// within ends the process some time after this, if it is the point, while its
// caller goes on; it reports whether it does. It spins, because timers are coarser
// than a COMMIT is long.
func (k *killer) within(point string) bool {
	if !k.reach(point) {
		return false
	}
	k.out.report(event{Kind: killed, ID: point})
	started, until := make(chan struct{}), time.Now().Add(k.task.Delay)
	go func() {
		close(started)
		for time.Now().Before(until) {
		}
		die()
	}()
	<-started
	return true
}

// die does not return: the signal comes before the system call ends.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// call passes by the points before, during and after a call. It is deferred:
// defer k.call(name)().
func (k *killer) call(name string) (done func()) {
	k.at(before + name)
	k.within(during + name)
	return func() { k.at(after + name) }
}

// wrap is for store.Options: it passes by the points of each step of the database.
func (k *killer) wrap(c driver.Connector) driver.Connector {
	return sqlhook.Wrap(c, func(s sqlhook.Step, do func() error) error {
		switch s.Kind {
		case sqlhook.Begin:
			k.at(k.here(beforeBegin))
			err := do()
			if err == nil {
				k.at(k.here(afterBegin))
			}
			return err
		case sqlhook.Write:
			if m := momentOf(s.Query); m != "" {
				k.statement(m, s.Query)
				if s.First {
					defer func() { k.at(k.here(afterFirst)) }()
				}
			}
		case sqlhook.Commit:
			return k.commit(s.Conn, do)
		}
		return do()
	})
}

// here is the name of a point in the present phase.
func (k *killer) here(moment string) string { return k.phase.Load().(string) + ": " + moment }

// statement passes by the moment before a statement that writes.
func (k *killer) statement(moment, query string) {
	phase := k.phase.Load().(string)
	if _, told := k.told.LoadOrStore(phase+moment, true); !told && !named(phase, moment) {
		k.out.report(event{Kind: unnamed, ID: k.here(moment), Error: query[:min(len(query), 80)]})
	}
	k.at(k.here(moment))
}

func (k *killer) commit(conn driver.Conn, do func() error) error {
	k.at(k.here(beforeCommit))
	k.within(k.here(duringCommit))
	if err := do(); err != nil {
		return err
	}
	k.at(k.here(afterCommit))
	if k.within(k.here(duringCheckpoint)) { // SQLite writes its log into the file meanwhile
		_, err := conn.(driver.ExecerContext).ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)", nil)
		if err != nil {
			k.out.report(event{Kind: broken, ID: "checkpoint", Error: err.Error()})
		}
		k.out.report(event{Kind: folded})
		select {} // until the signal comes
	}
	k.phase.CompareAndSwap(migrating, recovering)
	return nil
}

// named reports whether a statement of a phase has a point. With several
// processes a living one recovers what a dead one left: what recovery does is
// done while serving as well. The sums of all accounts are written once an hour, which
// most runs do not see. A start writes its settings first, or after a migration if there is one.
func named(phase, moment string) bool {
	if strings.HasSuffix(moment, " usage_total") || strings.HasSuffix(moment, " setting") {
		return true
	}
	for _, p := range ledgerPoints {
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
