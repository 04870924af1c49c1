//go:build unix

package videocrash

import (
	"fmt"
	"os"
	"testing"
)

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
	b := newBench(t, newFigures(), 1, 1)
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
