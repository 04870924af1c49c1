//go:build unix

package crashtest

import (
	"slices"
	"testing"
)

// A harness that cannot fail proves nothing: each of these is what a store
// would leave that had one of the defects.
var meddlings = []struct{ name, statement, kind string }{
	{"a settlement is gone", "DELETE FROM receipt WHERE id = " + toldSettlement, lost},
	{"the entry of a settlement is gone", "DELETE FROM entry WHERE kind = 'capture' AND reference = " + toldSettlement, lost},
	{"a settlement is cheaper than was told", "UPDATE receipt SET charge = charge - 1000000000 WHERE id = " + toldSettlement, lost},
	{"an answer is gone", "DELETE FROM answer WHERE key = (SELECT MAX(key) FROM answer)", lost},
	{"a credit is gone", "DELETE FROM entry WHERE number = (SELECT MIN(number) FROM entry WHERE kind = 'credit')", lost},
	{"a settlement was posted twice", doubling("capture"), doubled},
	{"a credit was posted twice", "DROP INDEX entry_of_credit; " + doubling("credit"), doubled},
	{"an account was opened twice", doubling("opening"), doubled},
	{"a hold is open", "INSERT INTO hold SELECT 'x', 1, id, 0, 'k1', 'image', 'painter', '', 0, '', 0, 9000000000000000000, FALSE FROM account WHERE id = 'acme'", leftOpen},
	{"a balance is not what was given less what was charged", "UPDATE account SET posted = posted + 1 WHERE id = 'acme'", wrong},
	{"an answer has no end", "UPDATE answer SET state = 'open' WHERE key = (SELECT MAX(key) FROM answer)", wrong},
	{"a settlement nobody asked for", "UPDATE receipt SET id = 'x' WHERE id = (SELECT MAX(reference) FROM entry WHERE kind = 'capture')", wrong},
}

// toldSettlement is a request whose settlement was told. On a machine that is busy a
// process can be taken for dead, and what others end for it is told to nobody.
const toldSettlement = "(SELECT MAX(id) FROM receipt WHERE reason = 'complete' AND charge > 0)"

func doubling(kind string) string {
	return "INSERT INTO entry (account, kind, reference, customer, credit, revenue, overrun, held, available, created_at)" +
		" SELECT account, kind, reference, customer, credit, revenue, overrun, held, available, created_at" +
		" FROM entry WHERE number = (SELECT MIN(number) FROM entry WHERE kind = '" + kind + "')"
}

func TestTheAuditFindsEachDefect(t *testing.T) {
	b := onSQLite(t)
	for _, m := range meddlings {
		b.next()
		b.renew()
		work := b.task()
		work.Ops = 10
		b.run(work, never)
		if err := b.look(m.statement); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if !slices.ContainsFunc(b.book.problems, func(p problem) bool { return p.kind == m.kind }) {
			t.Errorf("%s: found %v, want one that is %s", m.name, b.book.problems, m.kind)
		}
	}
}

func TestTheAuditFindsNothingWhereNothingIsWrong(t *testing.T) {
	b := onSQLite(t)
	b.next()
	b.run(b.task(), never)
	b.check()
}
